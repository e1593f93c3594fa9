"""List the applications (one for each job and epoch) in a Delta table's log: Spark can list them, `deltalake` cannot.

This reads the log's newest complete checkpoint, in any form that Delta's protocol has, and the commits after that.
It does not read the file ``_last_checkpoint``, which may be missing, or name a checkpoint that is gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any

from scripts.helpers._lazy import pq
from scripts.helpers.errors import TargetError
from scripts.helpers.sinks.connectors import actions_of
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.sink import rolled_back

LOG = "_delta_log"
RETENTION = "delta.setTransactionRetentionDuration"
"""The table property that makes the transactions of a table expire."""
Commits = Iterable[tuple[int, Sequence[Mapping[str, Any]]]]
"""Versions of a table, each with the actions in its file."""
File = tuple[str, Any, Any]
"""A data file: its path, and the deletion vector that marks its deleted rows."""
KINDS, COMMITTED = ["txn", "metaData"], ["txn", "commitInfo", "add", "remove"]
LOOKS = 100
"""The most commits read to find out whether a table was rolled back; other writers may commit all the time."""
TRIES = 10
"""Tries to read the log while a clean-up deletes files between the listing and the read. Each try lists again."""
_COMMIT = re.compile(rf"{LOG}/([0-9]{{20}})\.json")
_CHECKPOINT = re.compile(
    rf"{LOG}/([0-9]{{20}})\.checkpoint"
    r"(?:\.parquet|\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet|\.[0-9a-f-]{36}\.(?:parquet|json))"
)
"""A single file, one of several parts, or the top file of a V2 checkpoint, whose sidecars hold no transactions."""


def versions_in(place: Place) -> tuple[dict[str, int], bool, Commits]:
    """Return the last version by application from the log of a table, and whether some of them may have expired.

    The third value is the newest commits; see `history_in`.

    Raises
    ------
    TargetError
        A commit is missing.
    """
    for _ in range(TRIES):
        names = place.files(LOG)
        needed = _needed(names)
        found = [_actions_in(name, place.read(name), KINDS) for name in needed or ()]
        if needed is not None and None not in found:
            actions = [action for each in found for action in each or ()]
            versions = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
            tables = [action["metaData"] for action in actions if "metaData" in action]
            may_expire = any(RETENTION in dict(table["configuration"] or {}) for table in tables)
            return versions, may_expire, history_in(place, names)
    raise TargetError(place.uri(LOG), "a commit after the last checkpoint is missing. Restore it from a backup.")


def history_in(place: Place, names: Collection[str]) -> Commits:
    """Yield the newest commits of a table, newest first. Each commit's file is read only when that commit is needed."""
    newest = [*_commits(names).items()][::-1][:LOOKS]
    return ((version, _actions_in(name, place.read(name), COMMITTED) or []) for version, name in newest)


def rolled_back_in(job: str, commits: Commits) -> dict[str, int]:
    """Return which versions of a job a table has lost by a `RESTORE`, in the form of `sink.rolled_back`.

    The log does not say to which version a `RESTORE` to a time went back, but its files do: the commits after that
    version added the files that the `RESTORE` removed, and removed the files that it brought back.
    """
    parents, marks = dict[int, int](), dict[int, tuple[str, int]]()
    undone: dict[int, tuple[set[File], set[File]]] = {}
    for at, actions in commits:
        added, removed = ({_file_of(one[kind]) for one in actions if kind in one} for kind in ("add", "remove"))
        parents[at] = at - 1
        for restore, (gone, back) in [*undone.items()]:
            # The undone commits added the files that the RESTORE removed (`gone`), and removed those it put `back`.
            # If one of them removed a file that is not in `back` (compaction), an older undone commit added that file.
            gone.difference_update(added)
            gone.update(removed - back)
            back.difference_update(removed)
            if not gone and not back:
                parents[restore] = at - 1
                del undone[restore]
        for action in actions:
            done = action.get("txn") or {}
            if str(done.get("appId")).startswith(f"{job}/"):
                marks[at] = (done["appId"], int(done["version"]))
            if (action.get("commitInfo") or {}).get("operation") == "RESTORE" and (added or removed):
                undone[at] = (removed, added)
        if marks and not undone:
            break
    newest = max(parents, default=-1)
    # Add parents that were not read (the oldest commit's, and what a RESTORE went back to), with an unknown parent, -1.
    parents = dict.fromkeys(parents.values(), -1) | parents
    return rolled_back(newest, parents, sorted(parents), marks)


def _file_of(action: Mapping[str, Any]) -> File:
    rows = action.get("deletionVector") or {}
    return action["path"], rows.get("pathOrInlineDv"), rows.get("offset")


def _commits(names: Collection[str]) -> dict[int, str]:
    """Return the names of the commits' files among the files of a log, by version, in ascending order."""
    return {int(found[1]): name for name in sorted(names) if (found := _COMMIT.fullmatch(name))}


def _needed(names: Collection[str]) -> list[str] | None:
    """Return the log files that define the current state of the table; None if one is missing."""
    commits = _commits(names)
    parts = defaultdict(list)
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            parts[int(found[1]), int(found["parts"] or 0), "" if found["parts"] else name].append(name)
    complete = {version: files for (version, count, _), files in sorted(parts.items()) if len(files) == (count or 1)}
    start = max(complete, default=-1)
    later = [version for version in commits if version > start]
    if later != list(range(start + 1, start + 1 + len(later))):
        return None
    return [*complete.get(start, ()), *(commits[version] for version in later)]


def _actions_in(name: str, data: bytes | None, kinds: list[str]) -> list[dict[str, Any]] | None:
    """Return the actions of the given kinds in a file of the log; None if the file is gone."""
    if data is None:
        return None
    if name.endswith(".json"):
        return [action for action in actions_of(data.decode()) if not action.keys().isdisjoint(kinds)]
    # Read only the columns of `kinds`: most of a checkpoint is in other columns, those for data files.
    found = pq.ParquetFile(BytesIO(data)).read(columns=kinds)
    return [{kind: action} for kind in found.column_names for action in found[kind].drop_null().to_pylist()]
