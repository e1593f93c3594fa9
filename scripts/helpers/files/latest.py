"""The state of a job that reads only the largest partition: its value, and a hash of its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from scripts.helpers.errors import SourceError
from scripts.helpers.files.partition_delta import Partition, PartitionDelta
from scripts.helpers.files.partitions import PartitionRule, Values, sort_key
from scripts.helpers.files.states import PartitionState, opened_state
from scripts.helpers.listing.listing import Location

OnSame = Literal["take", "skip", "raise"]


class PartitionDecision(NamedTuple):
    """The delta that a run reads, the state that follows, and whether the partition is unchanged since the last run."""

    delta: PartitionDelta
    state: PartitionState | None
    is_same: bool = False


class LatestPartition:
    """The largest partition of a source, compared with the partition that an earlier run took.

    Parameters
    ----------
    location, rule
        The source and its partition columns.
    state
        The stored state; None on a first run.
    context, job_id
        The name of the source in the job, and the job, for error messages.

    Raises
    ------
    SourceError
        The state is of another source, or of other columns or types.
    """

    def __init__(
        self, location: Location, rule: PartitionRule, state: Mapping[str, Any] | None, context: str, job_id: str
    ) -> None:
        self._location, self._rule = location, rule
        self._context, self._job_id = context, job_id
        self._state = None if state is None else opened_state(PartitionState, state, location.name, context)
        if self._state is not None:
            before = _shown(self._state.columns, self._state.types)
            now = _shown(rule.columns.names, rule.columns.types)
            if before != now:
                raise SourceError(now, reason="changed", context=context, before=before)

    def decided(self, delta: PartitionDelta, on_same: OnSame) -> PartitionDecision:
        """Return what the run reads: `delta` has the files of the largest partition, or none if there is no partition.

        Raises
        ------
        SourceError
            The partition is smaller than the one taken before, or no partition exists any more.
        SourceError
            The partition has the same files as before, and `on_same` is ``raise``.
        """
        found = delta.partitions
        if self._state is None:
            return PartitionDecision(delta, self._following(found[0]) if found else None)
        before = self._state.value
        if not found or sort_key(_values(found[0])) < sort_key(before):
            location, context, job_id = str(self._location), self._context, self._job_id
            raise SourceError(location, reason="snapshot_behind", context=context, job_id=job_id)
        following = self._following(found[0])
        if following != self._state:
            return PartitionDecision(delta, following)
        if on_same == "raise":
            raise SourceError(str(self._location), reason="snapshot_unchanged", context=self._context)
        if on_same == "skip":
            return PartitionDecision(delta.without_files(), following, is_same=True)
        return PartitionDecision(delta, following, is_same=True)

    def _following(self, partition: Partition) -> PartitionState:
        columns = self._rule.columns
        return PartitionState(
            self._location.name, columns.names, columns.types, _values(partition), partition.files.count,
            _digest(partition),
        )  # fmt: skip


def _values(partition: Partition) -> Values:
    return tuple(partition.values.values())


def _digest(partition: Partition) -> str:
    """Return a hash of the identities of all files, which changes if a file is added, overwritten or deleted."""
    return hashlib.sha256(json.dumps(partition.files.files).encode("utf-8", "surrogatepass")).hexdigest()


def _shown(names: Sequence[str], types: Sequence[str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
