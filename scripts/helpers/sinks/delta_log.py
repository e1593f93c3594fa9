"""Which applications the log of a Delta table names. Spark lists them; `deltalake` answers for one that is named.

The log is its newest checkpoint that is complete, in any of the forms of Delta's protocol, and the commits after it.
``_last_checkpoint`` is not read: it may be missing, or name a checkpoint that is gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import BytesIO
from math import inf
from typing import Any

from scripts.helpers._lazy import pq
from scripts.helpers.errors import TargetError
from scripts.helpers.sinks.connectors import actions_of
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.sink import rolled_back

LOG = "_delta_log"
RETENTION = "delta.setTransactionRetentionDuration"
"""The property of a table whose transactions expire."""
Commits = Iterable[tuple[int, Sequence[Mapping[str, Any]]]]
"""Versions of a table, each with what its file says."""
KINDS = ["txn", "metaData"]
TRIES = 10
"""A clean-up may delete files between the listing and the read so often. Each try lists again."""
_COMMIT = re.compile(rf"{LOG}/([0-9]{{20}})\.json")
_CHECKPOINT = re.compile(
    rf"{LOG}/([0-9]{{20}})\.checkpoint"
    r"(?:\.parquet|\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet|\.[0-9a-f-]{36}\.(?:parquet|json))"
)
"""One file, one of several parts, or the top file of a V2 checkpoint: its sidecars hold no transactions."""


def versions_in(place: Place) -> tuple[dict[str, int], bool, Commits]:
    """Return the last version of each application that the log of a table names, and whether some may have expired.

    And the commits since the checkpoint, the newest first.

    Raises
    ------
    TargetError
        A commit is missing.
    """
    for _ in range(TRIES):
        names = _needed(place.files(LOG))
        found = [_actions_in(name, place.read(name)) for name in names or ()]
        if names is not None and None not in found:
            actions = [action for each in found for action in each or ()]
            versions = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
            tables = [action["metaData"] for action in actions if "metaData" in action]
            may_expire = any(RETENTION in dict(table["configuration"] or {}) for table in tables)
            read = dict(zip(names, found, strict=True))
            return versions, may_expire, [(at, read[name] or []) for at, name in _commits(names).items()][::-1]
    raise TargetError(place.uri(LOG), "a commit after the last checkpoint is missing. Restore it from a backup.")


def history_in(place: Place) -> Commits:
    """Read the commits of a table as far back as its log has them, the newest first."""
    names = _commits(place.files(LOG))
    return ((version, _actions_in(name, place.read(name)) or []) for version, name in [*names.items()][::-1])


def rolled_back_in(job: str, commits: Commits) -> dict[str, int]:
    """Return what a table has lost of a job's versions by `RESTORE … TO VERSION`; see `rolled_back`.

    Commits are read as far back as they are needed.
    """
    parents, marks, restored = dict[int, int](), dict[int, tuple[str, int]](), inf
    for at, actions in commits:
        parents[at] = at - 1
        for action in actions:
            done, info = action.get("txn") or {}, action.get("commitInfo") or {}
            if str(done.get("appId")).startswith(f"{job}/"):
                marks[at] = (done["appId"], int(done["version"]))
            to = str((info.get("operationParameters") or {}).get("version"))
            if info.get("operation") == "RESTORE" and to.isdecimal():
                parents[at], restored = int(to), min(restored, int(to))
        if marks and at <= restored + 1:
            break
    newest = max(parents, default=-1)
    # The commit that the table was taken back to, and the one before the oldest, are known as well.
    parents = dict.fromkeys(parents.values(), -1) | parents
    return rolled_back(newest, parents, sorted(parents), marks)


def _commits(names: Collection[str]) -> dict[int, str]:
    """Return the commits among the files of a log by their versions, in order."""
    return {int(found[1]): name for name in sorted(names) if (found := _COMMIT.fullmatch(name))}


def _needed(names: Collection[str]) -> list[str] | None:
    """Return the files of the log that say what the table is; None where one is missing."""
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


def _actions_in(name: str, data: bytes | None) -> list[dict[str, Any]] | None:
    """Return what a file of the log says of transactions and the table; None if it is gone."""
    if data is None:
        return None
    if name.endswith(".json"):
        return [action for action in actions_of(data.decode()) if not action.keys().isdisjoint([*KINDS, "commitInfo"])]
    # No other column: those of files are most of a checkpoint.
    found = pq.ParquetFile(BytesIO(data)).read(columns=KINDS)
    return [{kind: action} for kind in found.column_names for action in found[kind].drop_null().to_pylist()]
