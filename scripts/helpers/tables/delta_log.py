"""What a commit file of Delta's log says: which files a version added and took away. Pure.

A commit file has one action a line. One with ``dataChange: false`` moves rows to other files, as ``OPTIMIZE`` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.sinks.connectors import actions_of
from scripts.helpers.tables.sources import Commit, Kind

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
UNNAMED = "UNKNOWN"
"""Stands for an operation that a writer has not named."""


@dataclass(frozen=True)
class DeltaCommit:
    """One version of a Delta table.

    Attributes
    ----------
    version, operation, at
        As those of `Commit`.
    added
        The ``add`` actions that change data, as they are in the log.
    removed
        Paths of files whose rows were taken away.
    moved
        Paths of files whose rows are in other files now.
    feed
        Paths of files that hold the changes of this version; empty where added and removed files tell them.
    """

    version: int
    operation: str
    at: datetime | None
    added: Sequence[Mapping[str, Any]]
    removed: frozenset[str]
    moved: frozenset[str]
    feed: frozenset[str]

    @property
    def kind(self) -> Kind:
        """Tell what became of the table's rows."""
        if self.operation == "RESTORE":
            return "rollback"
        if self.removed:
            return "overwrite"
        return "append" if self.added else "nothing"

    @property
    def told(self) -> Commit:
        """The commit, in the words of all formats."""
        return Commit(self.version, self.kind, self.operation, self.at)

    @property
    def paths(self) -> frozenset[str]:
        """Paths of the files that were added."""
        return frozenset(str(action["path"]) for action in self.added)


def read_commit(version: int, text: str) -> DeltaCommit:
    """Read the file of a commit.

    Examples
    --------
    >>> read_commit(3, '{"add":{"path":"a","dataChange":true}}').kind
    'append'
    >>> read_commit(4, '{"remove":{"path":"a","dataChange":false}}').kind
    'nothing'
    """
    found: dict[str, list[dict[str, Any]]] = {"add": [], "remove": [], "cdc": [], "commitInfo": []}
    for action in actions_of(text):
        for name, content in action.items():
            if name in found and isinstance(content, dict):
                found[name].append(content)
    info = found["commitInfo"][0] if found["commitInfo"] else {}
    return DeltaCommit(
        version,
        str(info.get("operation") or UNNAMED),
        _moment(info),
        tuple(content for content in found["add"] if _changes_data(content)),
        frozenset(str(content["path"]) for content in found["remove"] if _changes_data(content)),
        frozenset(str(content["path"]) for content in found["remove"] if not _changes_data(content)),
        frozenset(str(content["path"]) for content in found["cdc"]),
    )


def taken_by(commits: Iterable[DeltaCommit], after: int, until: int) -> list[Mapping[str, Any]]:
    """Return the files that commits of a span have appended, and not those of commits that took rows away."""
    taken = (commit for commit in commits if after < commit.version <= until and commit.kind == "append")
    return [action for commit in taken for action in commit.added]


def may_be_gone(commits: Sequence[DeltaCommit], after: int | None, until: int, *, feed: bool) -> set[str]:
    """Return which files a span needs that the table has no longer, so that a vacuum may have deleted them.

    Parameters
    ----------
    commits
        Of the span and all later ones.
    after
        None for the whole table as `until` left it.
    """
    if after is None:
        later = [commit for commit in commits if commit.version > until]
        # A file that was added later was not there at `until`.
        return _taken_out(later).difference(*(commit.paths for commit in later))
    left = _taken_out(commits)
    inside = [commit for commit in commits if after < commit.version <= until]
    if not feed:
        return {str(action["path"]) for action in taken_by(inside, after, until)} & left
    needed: set[str] = set()
    for commit in inside:
        # Files of a feed are in no version of the table, so a vacuum deletes them by their age alone.
        needed |= commit.feed if commit.feed else (commit.paths & left) | commit.removed
    return needed


def _taken_out(commits: Iterable[DeltaCommit]) -> set[str]:
    """Return the files that commits have taken out of the table, their rows with them or not."""
    return {path for commit in commits for path in commit.removed | commit.moved}


def _changes_data(action: Mapping[str, Any]) -> bool:
    # The protocol has the field in every action. Where it is missing, no row may be passed over.
    return action.get("dataChange") is not False


def _moment(info: Mapping[str, Any]) -> datetime | None:
    milliseconds = info.get("inCommitTimestamp", info.get("timestamp"))
    return EPOCH + timedelta(milliseconds=milliseconds) if isinstance(milliseconds, int) else None
