"""Whose what is staged and published is: names that are made of the job, and what a record has to prove. Pure.

A record comes from the table, where everybody who may write a job's items may write anything. The record says what is
to be done. The key of its item says for which job. Files, folders, branches, tables and properties bear 32 digits of
that job's hash, and nothing is deleted, moved, dropped or published whose *name* is not the one computed here, from the
job and from a batch that its head names. Anything with another name belongs to another job, whatever a record says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import MARK, Output, Retraction, batch_name

MANIFEST = "_manifest"
"""The list of an attempt's files, written last. Its name is hidden from readers, as Spark's `_SUCCESS` is."""
NOTE = "_target"
"""What an attempt leaves beside the folders of its job: the target for which the job stages there."""
RECORDS = "_glue_watermarks"
"""The folder of a target of files in which an empty file for each job and epoch names the last version published."""
BATCH_COLUMN = "batch_id"
MARK_DIGITS = 32
LANDING = "_in"
"""How the name of a landing table ends; all before it is that of its staging table."""
_FINAL = re.compile(rf"part-[0-9]{{5,}}-({MARK})-(.+)-([0-9]{{10,}})(?:\..*)?")
_ATTEMPT = re.compile(rf"({MARK})/(.+)-([0-9]{{10,}})-f([0-9]+)-[0-9a-f]+")
_TABLE = re.compile(r"gw_([0-9a-f]{32})_([0-9a-f]{4})_v([0-9a-z]+)_f([0-9a-z]+)_[0-9a-f]+")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class Attempt(NamedTuple):
    """Whose attempt at which version a name is of; `job` is as the name has it, or what stands for it there."""

    job: str
    epoch: str
    version: int
    fence: int

    @property
    def is_of_unsaved_run(self) -> bool:
        """Return whether it is of a run that saves nothing."""
        return self.fence == 0


def mark_of(job_id: str) -> str:
    """Return a job as it is in names: 128 bits of its hash, as its own name may hold anything."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:MARK_DIGITS]


def doubt(of: Output | Retraction, epochs: Mapping[str, int]) -> str | None:
    """Return what speaks against a record being of the job whose item it is in; None for nothing.

    Parameters
    ----------
    epochs
        The last version of each epoch that the job's head names (`Head.last_versions`).
    """
    if of.job != mark_of(of.job_id):
        return "its mark is that of another job"
    last = of.version if isinstance(of, Output) else of.last
    known = epochs.get(of.epoch)
    if known is None:
        return "its epoch is not one of the job"
    if last > known:
        return f"the job has {known:,} versions in its epoch, and it is of version {last:,}"
    # The table of a database is looked at by its sink, which knows the name of its target.
    if isinstance(of, Output) and of.sink != "database":
        named = attempt_of(of.folder)
        if named != Attempt(of.job, of.epoch, of.version, of.fence):
            return "its folder is not one that an attempt at its batch makes"
    return None


# --- files, folders and branches ------------------------------------------------------------------


def folder_of(batch: BatchId, fence: int, token: str) -> str:
    """Return the folder of one attempt, relative to the staging place.

    The token keeps even attempts apart that share a fence: those of runs that save nothing, and those of a table
    and its restored copy.
    """
    return f"{mark_of(batch.job_id)}/{batch}-f{fence}-{token}"


def attempt_of(folder: str) -> Attempt | None:
    """Return whose attempt a folder or a staging table is of, job and epoch of a table as hashes; None if of nobody."""
    for pattern, base in ((_ATTEMPT, 10), (_TABLE, 36)):
        if found := pattern.fullmatch(folder):
            return Attempt(found[1], found[2], int(found[3], base), int(found[4], base))
    return None


def version_of(folder: str, epoch: str) -> int | None:
    """Return the version that the folder or the staging table of an attempt is of; None if it is of another epoch."""
    found = attempt_of(folder)
    if found is None:
        return None
    # A staging table, which has no slash in its name, has the first digits of the hash.
    is_of = found.epoch == epoch if "/" in folder else _hash(epoch).startswith(found.epoch)
    return found.version if is_of else None


def branch_of(folder: str) -> str:
    """Return the branch of an attempt in an Iceberg table."""
    return f"{BRANCH}{folder.replace('/', '-')}"


BRANCH = "staged-"


def final_name(output: Output, number: int, staged: str) -> str:
    """Return the name at the target of the file that was staged as `staged`, the number-th of its batch.

    It is the same whoever publishes, and however often: that makes a publication repeatable.
    """
    folders, _, name = staged.rpartition("/")
    # Spark names them part-00000-<uuid>-c000.snappy.parquet: all from the first dot on tells readers the format.
    ending = name[name.index(".") :] if "." in name else ""
    parts = [f"{BATCH_COLUMN}={output.batch}"] if output.batch_folders else []
    parts += [folders] if folders else []
    return "/".join([*parts, f"part-{number:05d}-{output.job}-{output.batch}{ending}"])


def batch_of(name: str) -> tuple[str, str, int] | None:
    """Return job, epoch and version that a published name is of; None if it is not one of ours."""
    found = _FINAL.fullmatch(name.rpartition("/")[2])
    return (found[1], found[2], int(found[3])) if found else None


def is_published_name(name: str, of: Output | Retraction) -> bool:
    """Return whether a name at the target is one of a batch, or of the batches of a retraction."""
    found = batch_of(name)
    if found is None or found[:2] != (of.job, of.epoch):
        return False
    return found[2] == of.version if isinstance(of, Output) else of.covers(found[2])


def record_of(job: str, batch: str) -> str:
    """Return the name, at a target of files, of what records that a batch is there."""
    return f"{RECORDS}/{job}/{batch}"


def recorded_by(record: str) -> tuple[str, int] | None:
    """Return job with epoch, and version, of a name made by `record_of`; None for what is none.

    >>> recorded_by(record_of("5e8c9902", "e1f00ba42-0000000003"))
    ('5e8c9902/e1f00ba42', 3)
    """
    app, _, version = record.removeprefix(f"{RECORDS}/").rpartition("-")
    return (app, int(version)) if version.isdecimal() and version.isascii() else None


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


# --- tables ---------------------------------------------------------------------------------------


def application_of(of: Output | Retraction) -> str:
    """Return the application of Delta whose transaction versions are those of a job's batches.

    With the epoch: after a restore versions begin again lower, and would be skipped.
    """
    return f"{of.job}/{of.epoch}"


def batch_value(of: Output | Retraction, version: int) -> str:
    """Return what a table's batch column holds of a version: the job's mark, too, as tables have rows of several jobs.

    >>> batch_value(Output("delta", "", "", "", "5e8c9902" * 4, "e1f00ba42", 3, 1), 3)
    '5e8c99025e8c99025e8c99025e8c9902-e1f00ba42-0000000003'
    """
    return f"{of.job}-{batch_name(of.epoch, version)}"


def batch_values(of: Retraction) -> tuple[str, str]:
    """Return the first and the last value of the batch column. They are of one width, so they compare as texts."""
    return batch_value(of, of.first), batch_value(of, of.last)


def value_of_batch(batch: BatchId) -> str:
    """Return what a table's batch column holds of a batch."""
    return f"{mark_of(batch.job_id)}-{batch}"


def owner_of(target: str, job: str) -> str:
    """Return how the names of a job's staging tables beside a target begin; the job is as `mark_of` writes it."""
    return f"gw_{_hash(target, job)[:MARK_DIGITS]}_"


def staging_table(target: str, batch: BatchId, fence: int, token: str) -> str:
    """Return the name of an attempt's staging table, which is short enough for every database.

    >>> staging_table("repairs", BatchId("parking", "e1f00ba42", 3), 7, "ab12c")
    'gw_fda7d0ab8ac6d382fecce5736b6511f8_433d_v3_f7_ab12c'
    """
    owner = owner_of(target, mark_of(batch.job_id))
    return f"{owner}{_hash(batch.epoch)[:4]}_v{_base36(batch.version)}_f{_base36(fence)}_{token}"


def is_own_table(output: Output, target: str) -> bool:
    """Return whether the staging table of an output is one that an attempt at its batch makes for a target."""
    found = attempt_of(output.folder)
    if found is None or not output.folder.startswith(owner_of(target, output.job)):
        return False
    return (version_of(output.folder, output.epoch), found.fence) == (output.version, output.fence)


def epoch_in_batches(of: Output | Retraction) -> str:
    """Return what the column `epoch` of the table of batches holds, in at most 64 characters.

    In a table of earlier versions the column `job` has room for 8 digits. So that no other job can write the key of a
    batch of this one, the hash of job and epoch follows the epoch.
    """
    return f"{of.epoch[:31]}-{_hash(of.job, of.epoch)[:MARK_DIGITS]}"


def app_from_batches(job: str, digits: str, found: str) -> str:
    """Return job and epoch of a row of the table of batches, as `application_of` does; of another job by `digits`."""
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
