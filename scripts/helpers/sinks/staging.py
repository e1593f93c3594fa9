"""`Staging`: the hidden folders in which attempts leave files until the head has named one of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from scripts.helpers.errors import EmptyPartitionError, TargetError, rows_have
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.sinks.outputs import MANIFEST, Output, Retraction, folder_of, version_of
from scripts.helpers.sinks.places import Place

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Staged:
    """What an attempt left in its folder.

    Attributes
    ----------
    folder
        Relative to the staging place.
    sizes
        The bytes of each file, by its name in the folder.
    rows
        As many as the writer counted; None if it did not.
    """

    folder: str
    sizes: dict[str, int]
    rows: int | None


def _hidden_partition(name: str) -> str:
    """Return the folder of a partition that hides a file from readers; an empty text where something else does."""
    for folder in name.split("/")[:-1]:
        if is_hidden(folder):
            # Spark's own hidden folders have no value: `_temporary`, `.spark-staging-…`.
            return folder if "=" in folder else ""
    return ""


class Staging:
    """A place where each attempt has a folder of its own, ``<job>/<batch>-f<fence>-<token>/``, with a manifest."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def stage(self, batch: BatchId, fence: int, write: Callable[[Place, str], Any]) -> Staged:
        """Let `write` fill a folder of this attempt alone; it may return how many rows it wrote."""
        folder = folder_of(batch, fence, new_token()[:8])
        try:
            rows = write(self.place, folder)
        except EmptyPartitionError:
            # All is written by then. After another failure tasks of Spark may still write here, and a later run sweeps.
            self.drop(folder)
            raise
        staged = self.place.files(folder)
        sizes: dict[str, int] = {}
        for name in sorted(staged):
            within = name.removeprefix(f"{folder}/")
            # What Spark hides from readers it keeps for itself: markers, checksums, tasks that have not ended.
            if not is_hidden(within):
                sizes[within] = staged[name]
            elif _hidden_partition(within):
                self.drop(folder)
                raise TargetError(
                    self.place.uri(""),
                    f"a value of partition_by makes the folder {_hidden_partition(within)!r}, which readers such as "
                    "Spark skip, so its rows would be lost. Change the value, or choose another column.",
                )
        # Spark wrote where nobody here sees it: on the disk of another machine, or in a store of another address. As an
        # empty batch it would be published, and its rows lost.
        if isinstance(rows, int) and rows > 0 and not sizes:
            raise TargetError(
                self.place.uri(""),
                f"{rows_have(rows)} been written to {self.place.uri(folder)}, and this process finds no file there. "
                "Name a folder that Spark and this process reach in the same place, such as s3://…, and give "
                "s3_client= if the store is none of AWS.",
            )
        # Last: an attempt without a manifest has not ended its write. And it counts, not the folder: a task of a
        # driver that is dead may still add a file, whose rows are in another one already.
        self.place.write(f"{folder}/{MANIFEST}", json.dumps(sizes).encode())
        return Staged(folder, sizes, rows if isinstance(rows, int) else None)

    def manifest(self, folder: str) -> dict[str, int] | None:
        """Return the bytes of each file of an attempt, by name; None where the list is gone."""
        data = self.place.read(f"{folder}/{MANIFEST}")
        if data is None:
            return None
        return {str(name): int(size) for name, size in json.loads(data).items()}

    def clear(self, folder: str) -> None:
        """Delete what is left of a folder when all of it is published."""
        # The manifest last: as long as it is there, anybody can go on from where this process may die.
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}")

    def drop(self, folder: str) -> None:
        """Delete what an attempt staged that is never to be published."""
        # The manifest first: without it nobody takes the missing files for lost ones.
        self.place.delete([f"{folder}/{MANIFEST}"])
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}")

    def left(self, job: str) -> list[str]:
        """Return the folders that attempts of a job have left, as `job_hash` writes it."""
        return sorted({"/".join(name.split("/")[:2]) for name in self.place.files(job) if name.count("/") >= 2})

    def retract(self, retraction: Retraction) -> None:
        """Delete what attempts staged for the versions of a retraction."""
        for folder in self.left(retraction.job):
            if retraction.covers(version_of(folder, retraction.epoch)):
                self.drop(folder)

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        """Delete what losers staged for batches up to this one; return how many they were."""
        # Versions above this one may be at work, or have won and wait to be published: a process that sleeps
        # here for a day and goes on then must not touch them.
        losers = []
        for folder in self.left(output.job):
            version = version_of(folder, output.epoch)
            if version is not None and version <= output.version and folder not in kept:
                losers.append(folder)
        for folder in losers:
            self.drop(folder)
            logger.info("event=staging_swept target=%s folder=%s", output.target, folder)
        return len(losers)
