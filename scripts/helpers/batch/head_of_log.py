"""Rebuild a job's head, if it is unreadable or missing, from the job's log. An operator sees it before the write."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from scripts.helpers.batch.publishing import answers_of, newest_outputs
from scripts.helpers.decisions.decisions import Decided, make_order
from scripts.helpers.errors import (
    DAMAGE,
    CorruptItemError,
    InvalidValueError,
    JobMovedError,
    RowsMissingError,
    StaleError,
    TargetAheadError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.fields import MAX_COUNT
from scripts.helpers.protocol.head import Head, LogEntry, Outputs
from scripts.helpers.protocol.requests import IS_NEW, Put, log_query, unchanged_conditions
from scripts.helpers.sinks.choice import sink_of
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.watermarks import Watermarks

FIELDS_LOST_WITHOUT_HEAD = (
    "the open plan: the next run makes a new one, and what a run wrote for it to a sink of your own stays",
    "batches that wait for their target: the next run publishes those since the last rewind or reset that are staged",
    "rows that a rewind or a reset had still to take back, and versions that were taken back before",
    "answers after earlier restores, and epochs whose versions have expired: their targets ask again",
    "releases of runs, the error of the last run, and what is usual for the job",
)
"""Fields of a head that no log entry has, and what happens without them."""


@dataclass(frozen=True)
class HeadOfLog:
    """A head made from the log entry `entry`. `write` stores it in place of the damaged or missing head.

    `item` is the damaged head as it is stored, or None. `skipped` has the keys of newer log entries that are damaged.
    """

    item: items.Item | None
    entry: LogEntry
    skipped: Sequence[str]
    decided: Decided

    def write(self, watermarks: Watermarks) -> None:
        """Write the head and its log entry; StaleError if the item has changed since it was read."""
        watermarks.store.write_chunks(self.decided.after.job_id, self.decided.chunks)
        put = Put(
            items.head_to_item(self.decided.after), IS_NEW if self.item is None else unchanged_conditions(self.item)
        )
        if not watermarks.store.table.write(put):
            raise StaleError(f"The head of job {self.decided.after.job_id!r} changed while you looked. Look again.")
        assert self.decided.after.log_entry is not None
        watermarks.store.write_log(self.decided.after.log_entry)


def head_of_log(
    watermarks: Watermarks,
    job_id: str,
    *,
    sinks: Sequence[Sink],
    retract: bool | None,
    back_to: int | None,
    why: str,
    who: str | None,
) -> HeadOfLog:
    """Make a head, in a new epoch, from the newest undamaged log entry and what targets have recorded. Write nothing.

    Parameters and errors are those of `after_restore`.

    Raises
    ------
    InvalidValueError
        The head can be read, or every log entry is damaged.
    JobMovedError
        The job is in another table.
    """
    store, clock = watermarks.store, watermarks.clock
    watermarks.lookups.check_job(job_id)
    item = store.read(job_id, items.HEAD_KEY)
    with suppress(CorruptItemError):
        if item is not None:
            items.head_from_item(item)
            raise InvalidValueError(
                f"The head of job {job_id!r} can be read, so it is not made from the log. To see what is wrong, call "
                "doctor without --from-log."
            )
    for name in {"movedTo", "arrivingFrom"} & (item or {}).keys():
        raise JobMovedError(job_id, store.table_name, str(next(iter((item or {})[name].values()))))
    history, skipped, newest = _log(watermarks, job_id)
    if not history:
        raise InvalidValueError(f"Job {job_id!r} has no log entry that is whole. Restore its items from a backup.")
    # Log entries have no epoch. Take each epoch and its last version from outputs; the last epoch ends at `history[0]`.
    epochs = {output.epoch: output.version for entry in reversed(history) for output in entry.change.outputs}
    entry, last = history[0], next(reversed(epochs), None)
    epochs |= {} if last is None else {last: entry.version}
    # Keep the highest fence: a sink that the user wrote may refuse one that is lower than an earlier one.
    fence = max(entry.change.fence, _number(item, "fence"))
    head = replace(
        Head.first(job_id), version=entry.version, fence=fence, watermarks=entry.watermarks, last=entry.change,
        epochs=epochs,
    )  # fmt: skip
    asked = list(sinks)
    try:
        seen, taken = answers_of(head, history, asked, retract, back_to, clock)
    except (TargetAheadError, RowsMissingError) as error:
        error.args = (str(error).replace("--after-restore", "--from-log"),)
        raise
    # Use only entries after the last rewind or reset, as the log does not say which unpublished output it took back.
    since = list(takewhile(lambda entry: entry.change.op not in ("REWIND", "RESET"), history))
    waiting = _waiting(job_id, since, asked)
    there = tuple(one for entry in reversed(since) for one in entry.change.outputs if one not in waiting)
    head = replace(head.published(there), unpublished=waiting)
    decided = watermarks.decisions.restored(head, make_order(who, why, clock()), seen, taken, back_to)
    # Choose a version above all others, so that its log entry is new even if newer entries are damaged or missing.
    version = max(newest, _number(item, "version")) + 1
    after = replace(decided.after, version=version, epochs=epochs)
    return HeadOfLog(item, entry, skipped, decided._replace(after=after))


def _number(item: items.Item | None, name: str) -> int:
    """Return the number `name` of an item whose other attributes may be damaged; 0 if it cannot be read."""
    with suppress(*DAMAGE):
        return min(int((item or {})[name]["N"]), MAX_COUNT - 1)
    return 0


def _log(watermarks: Watermarks, job_id: str) -> tuple[list[LogEntry], list[str], int]:
    """Return readable entries, newest first; keys of damaged entries newer than these; and the log's newest version."""
    entries: list[LogEntry] = []
    skipped: list[str] = []
    newest = 0
    for item in watermarks.store.query(log_query(job_id)):
        range_key = item[items.RANGE_KEY]["S"]
        with suppress(ValueError):
            version = int(range_key.removeprefix(items.LOG_PREFIX))
            newest = max(newest, min(version, MAX_COUNT - 1))
        try:
            entry = items.log_from_item(item)
            if not entries:
                _check_states(watermarks, entry)
            entries.append(entry)
        except CorruptItemError:
            skipped += [] if entries else [range_key]
    return entries, skipped, newest


def _check_states(watermarks: Watermarks, entry: LogEntry) -> None:
    """Raise CorruptItemError if a state in a log entry, or a chunk of such a state, is damaged or gone."""
    for reference in references(entry.watermarks):
        watermarks.store.read_spilled(entry.job_id, reference)
    for context in entry.watermarks:
        watermarks.lookups.state_at(entry, context)


def _waiting(job_id: str, since: Sequence[LogEntry], asked: Sequence[Sink]) -> Outputs:
    """Return the output that might be unpublished: all output that is still staged. Publishing twice is harmless.

    For a target that only the job's script can reach, return its newest output, which the script's next run checks.
    """
    waiting = []
    for target, newest in newest_outputs(since).items():
        sink = sink_of(newest, asked, None, None)
        staged = set(sink.staged(mark_of(job_id))) if sink is not None else {newest.folder}
        outputs = (output for entry in since for output in entry.change.outputs)
        waiting += [output for output in outputs if output.target == target and output.folder in staged]
    return tuple(sorted(waiting, key=lambda output: output.version))
