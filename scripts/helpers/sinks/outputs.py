"""Compute names that show which job staged or published something, and check that a record is of its job. Pure.

A record (an `Output` or a `Retraction`) is read from the table of watermarks, where anybody who may write a job's
items may have altered it. The key of its item shows the job. Names of files, folders, branches, tables and properties
contain 32 digits of that job's hash. The package deletes, moves, drops or publishes only what has a *name* computed
here, from the job and a batch that its head names. Other names belong to other jobs, whatever a record says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import MARK, Output, Retraction, batch_name

MANIFEST = "_manifest"
"""The list of an attempt's files, written last. Readers skip its name, as they skip Spark's `_SUCCESS`."""
NOTE = "_target"
"""The file next to a job's staging folders that names the target for which the job stages there."""
RECORDS = "_glue_watermarks"
"""The folder of a target of files in which an empty file for each job and epoch names the last version published."""
BATCH_COLUMN = "batch_id"
MARK_DIGITS = 32
LANDING = "_in"
"""The suffix of a landing table; the part before it is the name of its staging table."""
_FINAL = re.compile(rf"part-[0-9]{{5,}}-({MARK})-(.+)-([0-9]{{10,}})(?:\..*)?")
_ATTEMPT = re.compile(rf"({MARK})/(.+)-([0-9]{{10,}})-f([0-9]+)-[0-9a-f]+")
_TABLE = re.compile(r"gw_([0-9a-f]{32})_([0-9a-f]{4})_v([0-9a-z]+)_f([0-9a-z]+)_[0-9a-f]+")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class Attempt(NamedTuple):
    """An attempt, parsed from a name. `job`: in a folder's name, a hash of the job; in a table's, of target and job."""

    job: str
    epoch: str
    version: int
    fence: int

    @property
    def is_of_unsaved_run(self) -> bool:
        """Return whether the attempt is of a run that saves no watermarks."""
        return self.fence == 0


def mark_of(job_id: str) -> str:
    """Return the mark of a job: 128 bits of its hash, to be used in names, because a job id may have any character."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:MARK_DIGITS]


def doubt(of: Output | Retraction, epochs: Mapping[str, int]) -> str | None:
    """Return the reason if a record cannot belong to the job in whose item it is stored; None if it can.

    `epochs` has the last version of each epoch that the job's head names (`Head.last_versions`).
    """
    if of.job != mark_of(of.job_id):
        return "its mark is that of another job"
    last = of.version if isinstance(of, Output) else of.last
    known = epochs.get(of.epoch)
    if known is None:
        return "its epoch is not one of the job"
    if last > known:
        return f"the job has {known:,} versions in its epoch, and it is of version {last:,}"
    # Do not check the staging table of a database here: its name depends on the target, so the sink checks it.
    if isinstance(of, Output) and of.sink != "database":
        named = attempt_of(of.folder)
        if named != Attempt(of.job, of.epoch, of.version, of.fence):
            return "its folder is not one that an attempt at its batch makes"
    return None


# --- files, folders and branches ------------------------------------------------------------------


def folder_of(batch: BatchId, fence: int, token: str) -> str:
    """Return the folder of one attempt, relative to the staging place.

    The random `token` separates attempts with the same fence: all runs that save no watermarks have fence 0, and after
    a restore of the table of watermarks a fence may occur again.
    """
    return f"{mark_of(batch.job_id)}/{batch}-f{fence}-{token}"


def attempt_of(folder: str) -> Attempt | None:
    """Return the attempt that the name of a folder or of a staging table shows; None for any other name."""
    for pattern, base in ((_ATTEMPT, 10), (_TABLE, 36)):
        if found := pattern.fullmatch(folder):
            return Attempt(found[1], found[2], int(found[3], base), int(found[4], base))
    return None


def version_of(folder: str, epoch: str) -> int | None:
    """Return the version in the name of an attempt's folder or staging table; None if it is of another epoch."""
    found = attempt_of(folder)
    if found is None:
        return None
    # A staging table's name has no slash, and only the first digits of the epoch's hash.
    is_of = found.epoch == epoch if "/" in folder else _hash(epoch).startswith(found.epoch)
    return found.version if is_of else None


def branch_of(folder: str) -> str:
    """Return the name of an attempt's branch in an Iceberg table, made from its `Output.folder`."""
    return f"{BRANCH}{folder.replace('/', '-')}"


BRANCH = "staged-"


def final_name(output: Output, number: int, staged: str) -> str:
    """Return the name at the target of the staged file `staged`, which is the file `number` of its batch.

    All publishers compute the same name for a file, so a publication can be repeated.
    """
    folders, _, name = staged.rpartition("/")
    # Keep the name from the first dot on, which shows readers the format: Spark writes part-…-c000.snappy.parquet.
    ending = name[name.index(".") :] if "." in name else ""
    parts = [f"{BATCH_COLUMN}={output.batch}"] if output.batch_folders else []
    parts += [folders] if folders else []
    return "/".join([*parts, f"part-{number:05d}-{output.job}-{output.batch}{ending}"])


def batch_of(name: str) -> tuple[str, str, int] | None:
    """Return the job's hash (`mark_of`), epoch and version from a published file's name; None for any other name."""
    found = _FINAL.fullmatch(name.rpartition("/")[2])
    return (found[1], found[2], int(found[3])) if found else None


def is_published_name(name: str, of: Output | Retraction) -> bool:
    """Return whether a file's name shows that it was published for an output, or for a version of a retraction."""
    found = batch_of(name)
    if found is None or found[:2] != (of.job, of.epoch):
        return False
    return found[2] == of.version if isinstance(of, Output) else of.covers(found[2])


def record_of(job: str, batch: str) -> str:
    """Return the name of the empty file that records, at a target of files, that the target has a batch."""
    return f"{RECORDS}/{job}/{batch}"


def recorded_by(record: str) -> tuple[str, int] | None:
    """Return ``<job's hash>/<epoch>`` and the version from a name that `record_of` made; None for another name.

    >>> recorded_by(record_of("5e8c9902", "e1f00ba42-0000000003"))
    ('5e8c9902/e1f00ba42', 3)
    """
    app, _, version = record.removeprefix(f"{RECORDS}/").rpartition("-")
    return (app, int(version)) if version.isdecimal() and version.isascii() else None


def staging_beside(target: str) -> str:
    """Return the folder next to a target in which attempts stage by default; '' if the target is a whole bucket.

    The folder is not in the target, because DuckDB and other readers of ``**/*.parquet`` do not skip hidden names.

    >>> staging_beside("s3://raw/repairs"), staging_beside("s3://raw")
    ('s3://raw/_repairs.staging', '')
    """
    start, _, name = target.rpartition("/")
    if not name or start.endswith((":/", ":")):
        return ""
    return f"{start}/_{name}.staging"


# --- tables ---------------------------------------------------------------------------------------


def application_of(of: Output | Retraction) -> str:
    """Return the name under which a target records the versions of a job: ``<hash of the job's id>/<epoch>``.

    It includes the epoch, because after a restore versions start again at a lower number, and Delta would skip them.
    """
    return f"{of.job}/{of.epoch}"


def batch_value(of: Output | Retraction, version: int) -> str:
    """Return a version's value in the batch column. It begins with a hash of the job's id: jobs may share a table.

    >>> batch_value(Output("delta", "", "", "", "5e8c9902" * 4, "e1f00ba42", 3, 1), 3)
    '5e8c99025e8c99025e8c99025e8c9902-e1f00ba42-0000000003'
    """
    return f"{of.job}-{batch_name(of.epoch, version)}"


def batch_values(of: Retraction) -> tuple[str, str]:
    """Return the batch column's values for a retraction's first and last version. Values sort by version."""
    return batch_value(of, of.first), batch_value(of, of.last)


def value_of_batch(batch: BatchId) -> str:
    """Return the value of the batch column for the batch of a given id."""
    return f"{mark_of(batch.job_id)}-{batch}"


def owner_of(target: str, job: str) -> str:
    """Return how names of a job's staging tables for a target begin; `job` is the hash of the job's id (`mark_of`)."""
    return f"gw_{_hash(target, job)[:MARK_DIGITS]}_"


def staging_table(target: str, batch: BatchId, fence: int, token: str) -> str:
    """Return the name of an attempt's staging table. It is short enough for every database.

    >>> staging_table("repairs", BatchId("parking", "e1f00ba42", 3), 7, "ab12c")
    'gw_fda7d0ab8ac6d382fecce5736b6511f8_433d_v3_f7_ab12c'
    """
    owner = owner_of(target, mark_of(batch.job_id))
    return f"{owner}{_hash(batch.epoch)[:4]}_v{_base36(batch.version)}_f{_base36(fence)}_{token}"


def is_own_table(output: Output, target: str) -> bool:
    """Return whether an output's staging table has the name that an attempt at its batch would make for `target`."""
    found = attempt_of(output.folder)
    if found is None or not output.folder.startswith(owner_of(target, output.job)):
        return False
    return (version_of(output.folder, output.epoch), found.fence) == (output.version, output.fence)


def epoch_in_batches(of: Output | Retraction) -> str:
    """Return the value of the column `epoch` in the table of batches, in at most 64 characters.

    The value is the epoch and a hash of job and epoch, so that two jobs never have the same key for a batch. The column
    `job` alone, a hash, is not enough: made by an earlier version of this package, it has only 8 digits of the hash.
    """
    return f"{of.epoch[:31]}-{_hash(of.job, of.epoch)[:MARK_DIGITS]}"


def app_of_batch_row(job: str, digits: str, found: str) -> str:
    """Return ``<job>/<epoch>`` of a row in the table of batches, with `digits` (a hash) as job, `found` as epoch."""
    # `found`, the row's epoch, ends with a hash of job and epoch (`epoch_in_batches`): it shows if `job` wrote the row.
    epoch = found.rpartition("-")[0]
    return f"{job if found == f'{epoch}-{_hash(job, epoch)[:MARK_DIGITS]}' else digits}/{epoch}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _ALPHABET[digit] + digits
        if not number:
            return digits
