"""What an attempt staged for one target, as the head and the log keep it. Pure.

Names of folders and files say whose they are, so that a reader of a listing needs nothing else: the job (hashed,
as names of jobs may hold anything), the batch, and of a staged folder the attempt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from scripts.helpers.protocol.names import BatchId

MANIFEST = "_manifest"
"""The list of an attempt's files, written last. Its name is hidden from readers, as Spark's `_SUCCESS` is."""
BATCH_COLUMN = "batch_id"
_FINAL = re.compile(r"part-[0-9]{5,}-([0-9a-f]{8})-(.+)-([0-9]{10})(?:\..*)?")
_BATCH_FOLDER = re.compile(rf"{BATCH_COLUMN}=([^/]+)-([0-9]{{10}})/")
_UNSAVED = re.compile(r".+[-_]f0[-_][0-9a-f]+")
_STAGED = re.compile(r"(.+)-([0-9]{10})-f[0-9]+-[0-9a-f]+")


@dataclass(frozen=True)
class Output:
    """What one attempt at a batch staged for one target.

    Attributes
    ----------
    sink
        Which kind of sink: ``files``, ``delta``, ``iceberg``.
    target
        The `Sink.name`: for files the URI of the target, without a slash at its end.
    staging, folder
        The URI below which attempts stage, and the folder of this one there.
    job
        The job, as `job_hash` writes it.
    epoch, version, fence
        Of the batch, and of the attempt.
    files, bytes
        How many files, and how large they are together.
    rows
        How many rows, as far as the writer counted them.
    batch_folders
        Whether they go below ``batch_id=…/``.
    replaces
        Whether what an earlier attempt published under the same batch id goes: of a run that saves nothing, whose
        attempts no commit tells apart.
    options
        What else this kind of sink needs to publish it, such as the keys of a merge. Nothing secret.
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
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Output:
        """Read what `record` made; fields of later versions of this package are passed over."""
        return cls(**{known.name: record[known.name] for known in fields(cls) if known.name in record})

    def record(self) -> dict[str, Any]:
        """Return it as texts and whole numbers, for the head and the log."""
        record = asdict(self)
        return {name: value for name, value in record.items() if value is not None and value != {}}

    @property
    def batch(self) -> str:
        """The batch as its files and folders are named."""
        return f"{self.epoch}-{self.version:010d}"

    def final_name(self, number: int, staged: str) -> str:
        """Return the name at the target of the file that was staged as `staged`, the number-th of the batch.

        It is the same whoever publishes, and however often: that makes a publication repeatable.
        """
        folders, _, name = staged.rpartition("/")
        # Spark names them part-00000-<uuid>-c000.snappy.parquet: all from the first dot on tells readers the format.
        ending = name[name.index(".") :] if "." in name else ""
        parts = [f"{BATCH_COLUMN}={self.batch}"] if self.batch_folders else []
        parts += [folders] if folders else []
        return "/".join([*parts, f"part-{number:05d}-{self.job}-{self.batch}{ending}"])

    def is_published_name(self, name: str) -> bool:
        """Tell whether a name at the target is one of this batch."""
        return batch_of(name) == (self.job, self.epoch, self.version)


@dataclass(frozen=True)
class Retraction:
    """What a decision takes back from one target: the output of some versions, both ends included.

    Attributes
    ----------
    sink, target, staging, job, epoch
        As of `Output`.
    since
        When it was decided, as ISO 8601 in UTC.
    batch_column
        The column of a table that holds the batch id of each row; empty where there is none.
    rows
        How many rows were staged, by version, where they cannot be told apart once they are published.
    """

    sink: str
    target: str
    staging: str
    job: str
    epoch: str
    first: int
    last: int
    since: str
    batch_column: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Retraction:
        """Read what a head lists as `retracting`."""
        return cls(**{known.name: record[known.name] for known in fields(cls) if known.name in record})

    @property
    def closed(self) -> int:
        """The version that a table records to refuse them: the decision's own, under which no batch can be.

        Recorded as the last batch's, nobody could tell any more whether that one was published.
        """
        return self.last + 1

    @property
    def batches(self) -> tuple[str, str]:
        """The first and the last of the batch ids. `BatchId` writes them in fixed width, so they compare as texts."""
        return f"{self.epoch}-{self.first:010d}", f"{self.epoch}-{self.last:010d}"

    def is_published(self, recorded: int) -> bool:
        """Tell whether a table that has recorded a version as its last has rows of these."""
        return self.first <= recorded <= self.last

    def rows_until(self, version: int) -> str:
        """Return how many rows the versions up to one have, as far as that was counted."""
        found = [rows for of, rows in self.rows.items() if self.first <= int(of) <= version]
        return f"{sum(found):,}" if found else "unknown"

    def covers(self, version: int | None) -> bool:
        """Tell whether a version of the job and epoch is one of those."""
        return version is not None and self.first <= version <= self.last

    def is_of_published_name(self, name: str) -> bool:
        """Tell whether a name at the target is one of theirs."""
        found = batch_of(name)
        return found is not None and found[:2] == (self.job, self.epoch) and self.covers(found[2])


def job_hash(job_id: str) -> str:
    """Return a job as it stands in names of files."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:8]


def folder_of(batch: BatchId, fence: int, token: str) -> str:
    """Return the folder of one attempt, relative to the staging place.

    The token keeps even attempts apart that share a fence: those of runs that save nothing, and those of a table
    and its restored copy.
    """
    return f"{job_hash(batch.job_id)}/{batch}-f{fence}-{token}"


def version_of(folder: str, epoch: str) -> int | None:
    """Return the version that an attempt's folder is of; None if it is of another epoch."""
    found = _STAGED.fullmatch(folder.rpartition("/")[2])
    return int(found[2]) if found and found[1] == epoch else None


def is_of_unsaved_run(folder: str) -> bool:
    """Tell whether an attempt's folder, or its staging table, is of a run that saves nothing: its fence is 0."""
    return _UNSAVED.fullmatch(folder) is not None


def batch_of(name: str) -> tuple[str, str, int] | None:
    """Return job, epoch and version that a published name is of; None if it is not one of ours."""
    found = _FINAL.fullmatch(name.rpartition("/")[2])
    return (found[1], found[2], int(found[3])) if found else None


def batch_folder_of(name: str) -> tuple[str, int] | None:
    """Return epoch and version of the folder ``batch_id=…/`` that a name at a target lies in; None if in none."""
    found = _BATCH_FOLDER.match(name)
    return (found[1], int(found[2])) if found else None


def staging_beside(target: str) -> str:
    """Return where attempts at a target stage unless told otherwise: in a hidden folder beside it.

    Not within: DuckDB and others who are asked for ``**/*.parquet`` do not know which names are hidden.

    >>> staging_beside("s3://raw/repairs"), staging_beside("s3://raw")
    ('s3://raw/_repairs.staging', '')
    """
    start, _, name = target.rpartition("/")
    if not name or start.endswith((":/", ":")):
        return ""
    return f"{start}/_{name}.staging"
