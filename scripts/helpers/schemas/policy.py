"""Find the changes of a source's columns, and decide what to do about them: the rules of `on_schema_change`. Pure."""

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
"""What each policy does with a new column, for the help texts of commands."""

NEW, GONE, WIDER, OTHER = "new", "gone", "wider", "of another type"


class ColumnChange(NamedTuple):
    """One column that has changed: `before` is None for a new column, `now` for one that is gone."""

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
    """Where the columns of a source come from, and how reliable their types are.

    Attributes
    ----------
    source, context
        The names of the source and of its context, for error texts.
    is_text
        Whether the types were inferred from texts (CSV, JSON), so that the values may fit another type, too.
    may_lack
        Whether records may leave a column out (JSON), so that a column that no record has does not count as gone.
    """

    source: str
    context: str | None
    is_text: bool = False
    may_lack: bool = False


@dataclass(frozen=True)
class Decision:
    """The columns that a batch reads, and what happens to the other columns of the source.

    Attributes
    ----------
    target
        The columns, with their types, that the rows of the batch get, in this order.
    kept
        The columns that the state stores after this batch.
    changes
        How the source's columns differ from those that the state stored before.
    left_out
        The source's columns and nested fields that the batch leaves out, such as ``note`` and ``address.zip``.
    rescued
        The columns whose values go to the rescue column: new columns that are left out, and columns of another type.
    """

    target: Columns
    kept: Columns
    changes: Sequence[ColumnChange] = ()
    left_out: Sequence[str] = ()
    rescued: Sequence[str] = field(default=())


def check_policy(policy: object) -> None:
    """Raise InvalidValueError unless `policy` is one of `POLICIES`."""
    check_choice("on_schema_change", policy, POLICIES)


def changes_between(kept: Columns, found: Columns) -> list[ColumnChange]:
    """Return the changes, in order of the columns. A new type is not a change if the kept type holds all its values.

    Names are compared case-insensitively, as Spark does.
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
    """Return which of the columns `found` in a source a batch reads.

    Parameters
    ----------
    kept
        The columns of earlier batches; None for the first batch, which takes all columns.
    rescues
        Whether values that are left out go to a rescue column, so that they need not stop the run.

    Raises
    ------
    SchemaChangedError
        The policy does not allow a change.
    InvalidValueError
        Names differ only by case, and the policy compares names case-insensitively.
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
    """Return whether a change stops the run before anything is read."""
    if change.what in (NEW, GONE):
        return policy == "raise"
    if rescues:
        return False
    if change.what == WIDER and policy == "add":
        return False
    if not given.is_text:
        # Stop: only values of texts (CSV, JSON) are checked one by one, so a cast of other values could lose some.
        return True
    # Continue if the type is inferred as "string", as it is for a column without any value. Reading checks each value.
    return policy == "raise" and change.now != "string"
