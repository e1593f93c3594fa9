"""Records in heads and log entries: output that runs staged for targets, and output that operators retract. Pure.

Records are read from the table and may be altered there, so `from_record` checks each field; no other module does.
`sinks.outputs` decides what may be done with a record, by the `job_id` of the item that it was read from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from scripts.helpers.protocol.fields import MAX_COUNT, Fields
from scripts.helpers.protocol.values import to_utc_string

MARK = r"[0-9a-f]{32}"
"""Pattern of a job's mark in names of files: 32 hexadecimal digits of the hash of the job's name."""
EPOCH = r"[0-9A-Za-z._-]+"
MAX_EPOCH = 64
MAX_OUTPUTS = 4_000
"""Records in one list: an item of 400 KB cannot hold more."""
_WORD = "[A-Za-z][A-Za-z0-9_-]*"


class MergeColumns(NamedTuple):
    """Columns that a merge uses: as keys, to order rows with equal keys, and for start and end of a row's versions."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    history: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """What one attempt at a batch staged for one target.

    Attributes
    ----------
    sink
        The kind of sink: ``files``, ``delta``, ``iceberg``, ``database``.
    target
        The `Sink.name`; for files, the URI of the target without a slash at its end.
    staging, folder
        The place where all attempts stage, and the name of this attempt's folder, branch or table there.
    job
        The hash of the job's name, 32 hexadecimal digits, which is part of file names.
    epoch, version, fence
        The epoch and version of the batch, and the fence of the attempt.
    files, bytes
        The number of files, and their total size.
    rows
        The number of rows, if the writer counted them.
    batch_folders
        Whether the files are published into a folder ``batch_id=…/`` of the target.
    replaces
        Whether to replace what an earlier attempt published under the same batch id. True for a run that saves
        nothing: without a commit, several of its attempts may publish.
    engine
        The engine that staged the output for a table, and publishes it.
    partition_by, batch_column, merge
        How to partition a table that is created; the column that stores each row's batch; the columns of a merge.
    snapshot, table
        The Iceberg snapshot that holds the rows, and the id of the table (Iceberg or database).
    columns
        Whether the names and types of the columns are staged, in the manifest of the attempt.
    beside_others
        Whether the target may hold files that this package did not write.
    lacks_after
        The last version that the target still had, if it had lost later versions when this output was published.
        Otherwise None. Set only in `Head.at_targets`.
    job_id
        The name of the job whose batch this is. Not stored: a record that is read gets the job of its item.
    """

    sink: str
    target: str
    staging: str
    folder: str
    job: str
    epoch: str
    version: int
    fence: int
    files: int = 0
    bytes: int = 0
    rows: int | None = None
    batch_folders: bool = False
    replaces: bool = False
    engine: str | None = None
    partition_by: tuple[str, ...] = ()
    batch_column: str | None = None
    merge: MergeColumns | None = None
    snapshot: int | None = None
    table: str | None = None
    columns: bool = False
    beside_others: bool = False
    lacks_after: int | None = None
    job_id: str = ""

    @property
    def batch(self) -> str:
        """The batch id as it occurs in names of files and folders: `batch_name` of epoch and version."""
        return batch_name(self.epoch, self.version)

    @property
    def has_rows(self) -> bool:
        """Whether the output may have rows. True also if there are files and the writer did not count the rows."""
        return bool(self.files) and self.rows != 0

    @property
    def is_retractable(self) -> bool:
        """Whether the rows of the output can be found at the target, and so be taken back."""
        return shows_batches(self.sink, self.batch_column)

    @property
    def terms(self) -> dict[str, Any]:
        """The fields that say how to publish the output. A copy is staged with the rows, as the head can be altered."""
        found = {name: getattr(self, name) for name in _TERMS if _is_given(getattr(self, name))}
        if self.merge is not None:
            found["merge"] = [list(columns) for columns in self.merge]
        return found | ({"partition_by": list(self.partition_by)} if self.partition_by else {})

    def record(self) -> dict[str, Any]:
        """Return the output as texts and whole numbers, for the head and the log; defaults are left out."""
        record = {name: getattr(self, name) for name in _FIXED}
        record |= {name: getattr(self, name) for name in _COUNTS if _is_given(getattr(self, name))}
        options = {name: getattr(self, name) for name in _OPTIONS if _is_given(getattr(self, name))}
        if self.merge is not None:
            named = self.merge._asdict()
            options["merge"] = {name: columns for name, columns in named.items() if columns}
        if self.snapshot is not None:
            options["snapshot"] = str(self.snapshot)  # As text, because JSON readers may round a 64-bit number.
        return record | ({"options": options} if options else {})

    @classmethod
    def from_record(cls, found: Any, where: str, job_id: str) -> Output:
        """Read what `record` made; unknown fields, which a later version of this package may add, are ignored.

        Raise ImplausibleError, naming the field by its path below `where`, if this package cannot have written it.
        """
        fields = Fields(found, where)
        options = fields.map("options")
        merge = options.map("merge")
        return cls(
            **_place_in(fields),
            folder=fields.text("folder"),
            version=fields.whole("version", least=1),
            fence=fields.whole("fence"),
            files=fields.whole("files", 0),
            bytes=fields.whole("bytes", 0),
            rows=fields.whole("rows", None),
            batch_folders=fields.flag("batch_folders"),
            replaces=fields.flag("replaces"),
            lacks_after=fields.whole("lacks_after", None),
            engine=options.text("engine", None, pattern=_WORD, what="the name of an engine"),
            partition_by=options.names("partition_by", ()),
            batch_column=options.text("batch_column", None),
            merge=_merge_in(merge) if "merge" in options else None,
            snapshot=int(options.text("snapshot", "0", pattern="[0-9]{1,19}", what="a number of a snapshot")) or None,
            table=options.text("table", None),
            columns=options.flag("columns"),
            beside_others=options.flag("beside_others"),
            job_id=job_id,
        )


@dataclass(frozen=True)
class Retraction:
    """An operator's decision to remove output from one target: that of versions `first` to `last`, both included.

    Attributes
    ----------
    sink, target, staging, job, epoch, job_id
        As in `Output`.
    since
        The time of the decision, in UTC.
    batch_column
        The column of a table that holds the batch of each row; empty if there is none.
    rows
        Number of rows by version (``{7: 812}``), to report how many stay; empty if rows show their batch: none stay.
    """

    sink: str
    target: str
    staging: str
    job: str
    epoch: str
    first: int
    last: int
    since: datetime
    batch_column: str = ""
    rows: dict[int, int] = field(default_factory=dict)
    job_id: str = ""

    def record(self) -> dict[str, Any]:
        """Return the retraction as texts and whole numbers, for the head."""
        record = {name: getattr(self, name) for name in (*_PLACE_FIELDS, "first", "last")}
        record["since"] = to_utc_string(self.since)
        if self.batch_column:
            record["batch_column"] = self.batch_column
        if self.rows:
            record["rows"] = {str(version): count for version, count in self.rows.items()}
        return record

    @classmethod
    def from_record(cls, found: Any, where: str, job_id: str) -> Retraction:
        """Read what `record` made; raise ImplausibleError as `Output.from_record` does."""
        fields = Fields(found, where)
        first = fields.whole("first", least=1)
        return cls(
            **_place_in(fields),
            first=first,
            last=fields.whole("last", least=first),
            since=fields.utc("since"),
            batch_column=fields.text("batch_column", ""),
            rows=_rows_in(fields),
            job_id=job_id,
        )

    @property
    def closed(self) -> int:
        """The version that a target records for a retraction, so that late runs up to version `last` fail: `last` + 1.

        No batch has it: the decision has this version, or ended the epoch. `last` would show a batch as published.
        """
        return self.last + 1

    def is_published(self, recorded: int) -> bool:
        """Return whether a table whose last recorded version is `recorded` has rows that this decision removes."""
        return self.first <= recorded <= self.last

    def rows_until(self, version: int) -> str:
        """Return the rows staged in the versions `first` to `version`, such as "1,620"; "unknown" without counts."""
        found = [rows for of, rows in self.rows.items() if self.first <= of <= version]
        return f"{sum(found):,}" if found else "unknown"

    def covers(self, version: int | None) -> bool:
        """Return whether the retraction takes back a version of its own job and epoch; False for None."""
        return version is not None and self.first <= version <= self.last


def target_key(target: str) -> str:
    """Return the short hash that stands for a target in `Head.answers`; ``s3a://`` counts as ``s3://``."""
    return sha256(re.sub("^s3[an]://", "s3://", target).rstrip("/").encode()).hexdigest()[:12]


def shows_batches(sink: str, batch_column: str | None) -> bool:
    """Return whether published output shows its batch: files in their names, rows of a table in a batch column."""
    return sink == "files" or bool(batch_column)


def make_retractions(
    outputs: tuple[Output, ...], unseen: tuple[Output, ...], kept: int, epochs: Mapping[str, int], at: datetime
) -> tuple[Retraction, ...]:
    """Return the retractions of a decision, one for each target.

    Parameters
    ----------
    outputs
        The output of versions above `kept` that an operator asked to take back.
    unseen
        Output that may be published in part: it is taken back too, as its rows are read again under new batch ids.
    kept
        The version that the decision goes back to.
    epochs
        The last version of each epoch that the head names.
    """
    found: dict[tuple[str, ...], Retraction] = {}

    def add(output: Output, first: int) -> Retraction | None:
        key = (output.sink, output.target, output.staging, output.job, output.epoch, output.batch_column or "")
        last = epochs.get(output.epoch, 0)
        if first <= last:
            before = found.get(key) or Retraction(*key[:5], first, last, at, key[5], job_id=output.job_id)
            found[key] = replace(before, first=min(first, before.first))
        return found.get(key)

    for output in unseen:
        # Take back the target's later versions as well: a table refuses a version below the last one that it recorded.
        # A target that published this batch may have later ones: the batch is `unseen` because another target lacks it.
        made = add(output, output.version)
        # Without a batch column, a batch's rows cannot be found and stay in the table. Keep their number to report it.
        if made is not None and output.rows and not output.is_retractable:
            made.rows[output.version] = output.rows
    for output in outputs:
        # Take back all versions after `kept`: `outputs` lacks those whose log entries expired, though rows may remain.
        add(output, kept + 1)
    return tuple(found.values())


def batch_name(epoch: str, version: int) -> str:
    """Return the batch id as names of files have it, such as ``e1f00ba42-0000000003``. Names sort by version."""
    return f"{epoch}-{version:010d}"


_PLACE_FIELDS = ("sink", "target", "staging", "job", "epoch")
_FIXED = (*_PLACE_FIELDS, "folder", "version", "fence", "files", "bytes")
_COUNTS = ("rows", "batch_folders", "replaces", "lacks_after")
_TERMS = ("sink", "batch_folders", "replaces", "engine", "batch_column")
_OPTIONS = ("engine", "partition_by", "batch_column", "table", "columns", "beside_others")


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value != ()


def _place_in(fields: Fields) -> dict[str, Any]:
    """Read the sink, target, staging place, job and epoch of a record."""
    return {
        "sink": fields.text("sink", longest=20, pattern=_WORD, what="the name of a kind of target"),
        "target": _uri_in(fields, "target"),
        "staging": _uri_in(fields, "staging", ""),
        "job": fields.text("job", pattern=MARK, what="32 hexadecimal digits"),
        "epoch": fields.text("epoch", longest=MAX_EPOCH, pattern=EPOCH, what="the name of an epoch"),
    }


def _uri_in(fields: Fields, name: str, *default: str) -> Any:
    """Return a URI. Refuse one with '.' or '..', which may lead to another place: sinks store no such URI."""
    found = fields.text(name, *default)
    if {".", ".."} & set(found.split("/")):
        raise fields.wrong(name, "a path without '.' and '..'")
    return found


def _merge_in(fields: Fields) -> MergeColumns:
    found = MergeColumns(fields.names("keys"), fields.names("sequence_by"), fields.names("history", ()))
    if len(found.history) not in (0, 2):
        raise fields.wrong("history", "a list of two texts")
    return found


def _rows_in(fields: Fields) -> dict[int, int]:
    found = fields.of("rows", Mapping, "a map of counts", {})
    for version, count in found.items():
        is_version = len(str(version)) <= len(str(MAX_COUNT)) and str(version).isdecimal()
        if not is_version or type(count) is not int or not 0 <= count <= MAX_COUNT:
            raise fields.wrong("rows", "a map of counts by version")
    return {int(version): count for version, count in found.items()}
