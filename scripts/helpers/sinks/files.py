"""`FileSink`: a batch as files that readers see once, whatever becomes of the attempts that write them.

::

    stage     <staging>/<job>/<batch>-f<fence>-…/part-….parquet, then _manifest     nobody sees it
    commit    the head names this attempt: not here, and nothing else does
    publish   <target>/import_date=…/part-00000-<job>-<batch>.parquet               readers see it
    sweep     the staged folder is deleted, its manifest last; those of losers too
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import (
    InvalidValueError,
    ReservedNameError,
    StagedFilesLostError,
    TargetLayoutError,
    TargetTakenError,
)
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.sinks.outputs import (
    BATCH_COLUMN,
    MANIFEST,
    Output,
    batch_of,
    folder_of,
    job_hash,
    staging_beside,
    version_of,
)
from scripts.helpers.sinks.places import Place, S3Place, place_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

LOOKED_AT = 1_000
"""Files of a target that are looked at to tell how it is laid out: one page of S3."""


class FileSink:
    """Files below one folder, in any format that is written as files: Parquet, ORC, CSV, JSON.

    Promises: once a batch is committed and published, its rows are at the target exactly once, whatever
    attempts still write, sleep or die. Before its commit no reader of the target sees a row of it. Between
    commit and the end of its publication a reader sees a part of its files, each of them whole. It holds where
    a rename is atomic (file systems) or a copy is (S3), as long as nobody else deletes staged files.

    Parameters
    ----------
    target
        The folder that readers read.
    batch_folders
        Whether each batch gets a folder ``batch_id=…/``. None: as the target is laid out already, without for
        a new one.
    staging
        Where attempts stage, in the same bucket or file system; by default beside the target.
    beside_others
        Whether the target may hold files of others.

    Raises
    ------
    InvalidValueError
        The paths do not go together.
    """

    def __init__(
        self,
        target: str,
        *,
        spark: SparkSession | None = None,
        s3_client: S3Client | None = None,
        batch_folders: bool | None = None,
        staging: str | None = None,
        beside_others: bool = False,
    ) -> None:
        self.target: Place = place_of(target, spark, s3_client)
        chosen = staging.rstrip("/") if staging else staging_beside(self.target.uri(""))
        if not chosen:
            raise InvalidValueError(
                f"{target!r} is a whole bucket, so nothing lies beside it. Say where to stage: staging='s3://…/_staging/'."
            )
        self.staging: Place = place_of(chosen, spark, s3_client)
        _check_apart(self.target, self.staging)
        self._batch_folders, self._beside_others = batch_folders, beside_others

    @classmethod
    def of(cls, output: Output, spark: SparkSession | None = None, s3_client: S3Client | None = None) -> FileSink:
        """Return the sink that something was staged for."""
        return cls(output.target, spark=spark, s3_client=s3_client, staging=output.staging)

    def stage(
        self,
        batch: BatchId,
        fence: int,
        write: Callable[[Place, str], Any],
        *,
        columns: Collection[str] = (),
        replaces: bool = False,
    ) -> Output:
        """Let `write` fill a folder of this attempt alone, and return what it left there. Nobody sees it yet.

        Parameters
        ----------
        write
            Called with a place and an empty folder there.
        columns
            Of the rows.
        replaces
            See `Output`.

        Raises
        ------
        TargetTakenError, TargetLayoutError, ReservedNameError
            Before anything is written.
        TargetError
            A folder or file that cannot be listed or written.
        """
        batch_folders = self._layout()
        # A reader takes a column of that name from the folders: one in the rows would be hidden by it, or clash.
        if batch_folders and BATCH_COLUMN in (str(name).lower() for name in columns):
            raise ReservedNameError(BATCH_COLUMN, [BATCH_COLUMN])
        folder = folder_of(batch, fence, new_token()[:8])
        write(self.staging, folder)
        staged = self.staging.files(folder)
        # What Spark hides from readers it keeps for itself: markers, checksums, tasks that have not ended.
        names = sorted(name for name in staged if not is_hidden(name.removeprefix(f"{folder}/")))
        manifest = {name.removeprefix(f"{folder}/"): staged[name] for name in names}
        # Last: an attempt without a manifest has not ended its write. And it counts, not the folder: a task of a
        # driver that is dead may still add a file, whose rows are in another one already.
        self.staging.write(f"{folder}/{MANIFEST}", json.dumps(manifest).encode())
        return Output(
            sink="files",
            target=self.target.uri(""),
            staging=self.staging.uri(""),
            folder=folder,
            job=job_hash(batch.job_id),
            epoch=batch.epoch,
            version=batch.version,
            fence=fence,
            files=len(manifest),
            bytes=sum(manifest.values()),
            batch_folders=batch_folders,
            replaces=replaces,
        )

    def publish(self, output: Output) -> None:
        """Show the files of a committed attempt to readers.

        To be called by whoever knows from the head that the attempt won. May be called again, and by two at
        once: both move the same files to the same names.

        Raises
        ------
        StagedFilesLostError
            Files are neither staged nor at the target.
        TargetError
            Files that cannot be moved. Call again.
        """
        manifest = self._manifest(output)
        if manifest is None:
            # Deleted after all files were moved, or by a person's order to drop them. Then the head has forgotten
            # the output, which the caller knows. What is left is that somebody else emptied the place.
            if len(self.published(output)) < output.files:
                raise StagedFilesLostError(output.target, output.version, [MANIFEST])
            return
        moves = {
            f"{output.folder}/{name}": output.final_name(number, name) for number, name in enumerate(sorted(manifest))
        }
        # What else is under the batch's name: an earlier attempt of a run whose attempts no commit tells apart, or, in
        # a batch's own folder, files that a version of this package wrote there which did not stage.
        if output.replaces or output.batch_folders:
            self.target.delete(set(self._there(output)) - set(moves.values()))
        self._move(output, moves, {f"{output.folder}/{name}": size for name, size in manifest.items()})

    def clear(self, output: Output) -> None:
        """Delete what is left of an attempt's staged folder when all of it is published."""
        # The manifest last: as long as it is there, anybody can go on from where this process may die.
        self.staging.delete_folder(output.folder, f"{output.folder}/{MANIFEST}")

    def drop(self, output: Output) -> None:
        """Delete what an attempt staged that is never to be published."""
        self._drop(output.folder)

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        """Delete what losers staged for batches up to this one, once it is published; return how many they were.

        Parameters
        ----------
        kept
            Folders of committed attempts that are not published yet.
        """
        # Versions above this one may be at work, or have won and wait to be published: a process that sleeps
        # here for a day and goes on then must not touch them.
        folders = {name.split("/")[1] for name in self.staging.files(output.job) if name.count("/") >= 2}
        left = []
        for folder in sorted(folders):
            version = version_of(folder, output.epoch)
            if version is not None and version <= output.version and f"{output.job}/{folder}" not in kept:
                left.append(f"{output.job}/{folder}")
        for path in left:
            self._drop(path)
            logger.info("event=staging_swept target=%s folder=%s", output.target, path)
        return len(left)

    def published(self, output: Output) -> list[str]:
        """Return the names at the target that are of a batch."""
        return [name for name in self._there(output) if output.is_published_name(name)]

    def retract(self, output: Output) -> int:
        """Delete the files of a committed batch, staged or published; return how many were published.

        The head must have forgotten the output before, or the next run publishes it again.
        """
        # In this order: a publisher that sleeps between two files finds nothing to move when it wakes. The other way
        # round it would put a file back that was deleted here.
        self.drop(output)
        found = self.published(output)
        self.target.delete(found)
        return len(found)

    def _there(self, output: Output) -> list[str]:
        """Return the names at the target that are of a batch, or lie in its folder."""
        if output.batch_folders:
            return list(self.target.files(f"{BATCH_COLUMN}={output.batch}"))
        return [name for name in self.target.files() if output.is_published_name(name)]

    def _drop(self, folder: str) -> None:
        # The manifest first: without it nobody takes the missing files for lost ones.
        self.staging.delete([f"{folder}/{MANIFEST}"])
        self.staging.delete_folder(folder, f"{folder}/{MANIFEST}")

    def _manifest(self, output: Output) -> dict[str, int] | None:
        data = self.staging.read(f"{output.folder}/{MANIFEST}")
        if data is None:
            return None
        return {str(name): int(size) for name, size in json.loads(data).items()}

    def _move(self, output: Output, moves: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        """Move staged files to the target, which lies below another root of the same bucket or file system."""
        gone = self.staging.move(moves, sizes, self.target)
        if not gone:
            return
        # Another publisher was here. What it has moved is at the target.
        there = set(self.published(output))
        lost = [name for name in gone if moves[name] not in there]
        if lost and self._manifest(output) is not None:
            raise StagedFilesLostError(output.target, output.version, lost)

    def _layout(self) -> bool:
        """Tell whether this batch goes into a folder of its own; refuse a target where it cannot go."""
        found = [name for name in self.target.files(most=LOOKED_AT) if not is_hidden(name)]
        in_folders = [name for name in found if name.startswith(f"{BATCH_COLUMN}=")]
        flat = [name for name in found if batch_of(name) and not name.startswith(f"{BATCH_COLUMN}=")]
        target = self.target.uri("")
        if found and not in_folders and not flat and not self._beside_others:
            raise TargetTakenError(target, found[0])
        if self._batch_folders is None:
            if in_folders and not flat:
                logger.warning(
                    "event=batch_folders_kept target=%s: it is laid out in folders batch_id=…, so this batch is too. "
                    "Say batch_folders=True to mean it", target,
                )  # fmt: skip
                return True
            return False
        clash = flat if self._batch_folders else in_folders
        if clash:
            raise TargetLayoutError(
                target,
                f"batch_folders={self._batch_folders}, but {clash[0]!r} is laid out in the other way, and Spark reads "
                "no mixture. Leave the option out, or name another folder.",
            )
        return self._batch_folders


def _check_apart(target: Place, staging: Place) -> None:
    """Raise InvalidValueError for a staging place that readers see, or that files cannot be moved from."""
    if isinstance(target, S3Place) != isinstance(staging, S3Place) or type(target) is not type(staging):
        raise InvalidValueError(
            f"staging {staging.root!r} is another kind of storage than {target.root!r}: files could not be moved. "
            "Stage in the same."
        )
    if isinstance(target, S3Place) and isinstance(staging, S3Place) and target.bucket != staging.bucket:
        raise InvalidValueError(
            f"staging is in bucket {staging.bucket!r} and the target in {target.bucket!r}. Stage in the target's: a "
            "copy from there needs other rights, and takes as long as a download."
        )
    if f"{staging.root}/".startswith(f"{target.root}/") or f"{target.root}/".startswith(f"{staging.root}/"):
        raise InvalidValueError(
            f"staging {staging.root!r} and the target {target.root!r} lie within each other: readers would see what "
            "is not committed. Stage beside the target."
        )
