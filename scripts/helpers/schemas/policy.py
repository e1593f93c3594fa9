"""What changed of a source's columns, and what becomes of it: the one table of `on_schema_change`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import InvalidValueError, SchemaChangedError
from scripts.helpers.schemas.kinds import Columns, Kind, common, differing_by_case, kind_text, new_fields

OnSchemaChange = Literal["add", "warn", "raise", "take"]
POLICIES = ("add", "warn", "raise", "take")
POLICIES_IN_WORDS = "add: read them; warn: leave them out; raise: stop; take: read the source as it is"
"""What each policy does about a new column, for the help of commands."""

NEW, GONE, WIDER, OTHER = "new", "gone", "wider", "of another type"


class ColumnChange(NamedTuple):
    """One column that is not what it was: `before` or `now` is None where it was or is not there."""

    what: str
    column: str
    before: Kind | None
    now: Kind | None

    def __str__(self) -> str:
        if self.what == NEW:
            return f"{self.column!r} is new ({kind_text(self.now)})"
        if self.what == GONE:
            return f"{self.column!r} is gone (it was {kind_text(self.before)})"
        return f"{self.column!r} was {kind_text(self.before)} and is {kind_text(self.now)}"


class Given(NamedTuple):
    """Where columns come from, and how much their types say.

    Attributes
    ----------
    source, context
        For error texts.
    is_text
        The types were inferred from texts (CSV, JSON): a value may fit though its batch has another type.
    may_lack
        A record may leave a column out (JSON), so that one which no record has is not gone.
    """

    source: str
    context: str | None
    is_text: bool = False
    may_lack: bool = False


@dataclass(frozen=True)
class Decision:
    """What is read.

    Attributes
    ----------
    target
        The columns to give, in their order.
    kept
        The columns to remember.
    changes
        What is not as it was.
    left_out
        Columns of the source that are not in `target`, and fields inside its columns, by dotted names.
    rescued
        Columns whose values go to the rescue column: those that are left out, and those of another type.
    """

    target: Columns
    kept: Columns
    changes: Sequence[ColumnChange] = ()
    left_out: Sequence[str] = ()
    rescued: Sequence[str] = field(default=())


def check_policy(policy: object) -> None:
    """Raise SourceOptionError for what is no policy."""
    check_choice("on_schema_change", policy, POLICIES)


def changes_between(kept: Columns, found: Columns) -> list[ColumnChange]:
    """Return what differs, in the order of the columns. A type whose values all fit the kept one is no change.

    Names are compared without case, as Spark does.
    """
    now = {name.lower(): kind for name, kind in found.items()}
    known = {name.lower() for name in kept}
    changes = []
    for name, before in kept.items():
        kind = now.get(name.lower())
        if kind is None:
            changes.append(ColumnChange(GONE, name, before, None))
            continue
        holds_both = common(before, kind)
        if holds_both is None:
            changes.append(ColumnChange(OTHER, name, before, kind))
        elif holds_both != before:
            changes.append(ColumnChange(WIDER, name, before, kind))
    changes += [ColumnChange(NEW, name, None, kind) for name, kind in found.items() if name.lower() not in known]
    return changes


def decide(
    given: Given, kept: Columns | None, found: Columns, policy: OnSchemaChange, *, rescues: bool = False
) -> Decision:
    """Return what is read of the columns that a source has now.

    Parameters
    ----------
    kept
        The columns of earlier batches; None for a first one, which takes what there is.
    rescues
        Values that are left out go to a rescue column, so that none of them has to stop the run.

    Raises
    ------
    SchemaChangedError
        The policy does not let a change pass.
    InvalidValueError
        Names differ only by case, and the policy compares them without it.
    """
    alike = differing_by_case(found) if policy != "take" else []
    if alike:
        raise InvalidValueError(
            f"Columns {', '.join(alike)} of {given.source!r} differ only by case, and on_schema_change={policy!r} "
            "takes them for one. Rename one of them, or read without it."
        )
    if kept is None:
        return Decision(found, found)
    changes = changes_between(kept, found)
    if policy == "take":
        return Decision(found, found, changes)
    if given.may_lack:
        changes = [change for change in changes if change.what != GONE]
    refused = [change for change in changes if _stops(change, policy, given, rescues)]
    if refused:
        raise SchemaChangedError(given.source, given.context, [(each.column, str(each)) for each in refused], policy)
    target = dict(kept)
    left_out: list[str] = []
    rescued: list[str] = []
    for change in changes:
        if change.what == NEW and policy == "add":
            target[change.column] = change.now
        elif change.what == NEW:
            left_out.append(change.column)
            rescued.append(change.column)
        elif change.what == WIDER and policy == "add":
            target[change.column] = common(change.before, change.now)
        elif change.what in (WIDER, OTHER):
            left_out += new_fields(change.before, change.now, change.column)
            rescued.append(change.column)
    return Decision(target, target, changes, left_out, rescued)


def _stops(change: ColumnChange, policy: OnSchemaChange, given: Given, rescues: bool) -> bool:
    """Tell whether a change ends the run, before anything is read."""
    if change.what in (NEW, GONE):
        return policy == "raise"
    if rescues:
        return False
    if change.what == WIDER and policy == "add":
        return False
    if not given.is_text:
        # Typed values are not looked at one by one, so that a cast could lose some of them.
        return True
    # A batch without any value has texts, too. Where there are values, each is looked at when it is read.
    return policy == "raise" and change.now != "string"
