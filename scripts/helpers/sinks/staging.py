"""`Staging`: the hidden folders in which attempts leave files until the head has named one of them."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scripts.helpers.display.units import count_of
from scripts.helpers.errors import InvalidValueError, StagedFilesLostError, TargetError, UnprovenError, rows_have
from scripts.helpers.listing.paths import is_hidden, is_plain
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.sinks.arrow_files import WrittenFiles
from scripts.helpers.sinks.file_schema import FileSchema
from scripts.helpers.sinks.outputs import MANIFEST, Attempt, attempt_of, folder_of, staging_beside, version_of
from scripts.helpers.sinks.places import Place, is_same_folder, place_of_name

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagedRows:
    """Where the rows of an attempt are: in files of its folder, or on its branch of a table, which has no place."""

    folder: str
    place: Place | None = None
    names: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    columns: bytes | None = None
    """The schema of files, as `FileSchema.to_bytes` writes it; None if it is not known."""

    @property
    def uris(self) -> list[str]:
        """The files."""
        return [self.place.uri(f"{self.folder}/{name}") for name in self.names] if self.place else []

    def read(self, name: str) -> bytes:
        """Return what a file holds; FileNotFoundError if it is gone."""
        data = self.place.read(f"{self.folder}/{name}") if self.place else None
        if data is None:
            raise FileNotFoundError(f"{self.folder}/{name}")
        return data


def _hidden_partition(name: str) -> str:
    """Return the folder of a partition that hides a file from readers; an empty text where something else does."""
    for folder in name.split("/")[:-1]:
        if is_hidden(folder):
            # Spark's own hidden folders have no value: `_temporary`, `.spark-staging-…`.
            return folder if "=" in folder else ""
    return ""


@dataclass(frozen=True)
class Manifest:
    """What an attempt wrote last into its folder: whose it is, how it is published, and sizes and schema of its files.

    `files` is None once a decision has taken the attempt back, and the files are going or gone. For `terms` see
    `Output.terms`.
    """

    attempt: Attempt
    target: str
    terms: Mapping[str, Any]
    files: Mapping[str, int] | None
    columns: bytes | None = None

    @classmethod
    def read(cls, data: bytes) -> Manifest:
        """Read what `to_bytes` wrote. ImplausibleError if it is anything else."""
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise ImplausibleError("it is not JSON") from None
        fields = Fields(found, MANIFEST)
        attempt = Attempt(fields.text("job"), fields.text("epoch"), fields.whole("version"), fields.whole("fence"))
        files = fields.of("files", (dict, bool), "a map of names")
        terms = fields.of("terms", dict, "a map")
        columns = fields.of("columns", str, "a text", "").encode() or None
        return cls(attempt, fields.text("target"), terms, None if files is False else _checked_files(files), columns)

    def to_bytes(self) -> bytes:
        """Write it."""
        files: Any = False if self.files is None else dict(self.files)
        of_attempt = {**self.attempt._asdict(), "target": self.target, "terms": self.terms}
        columns = {"columns": self.columns.decode()} if self.columns else {}
        return json.dumps({**of_attempt, "files": files, **columns}).encode()

    def is_for(self, target: str) -> bool:
        """Return whether it names a target, however that is written."""
        return place_of_name(self.target) == place_of_name(target)


def is_beside(of: Output | Retraction, target: str) -> bool:
    """Return whether a record names the staging place that follows from its target.

    Any other is known to the script alone: who may write the record has a folder of his own as well, and can put
    into it what an attempt would have staged.
    """
    return is_same_folder(of.staging, staging_beside(target))


def _checked_files(found: Any) -> dict[str, int]:
    for name, size in found.items() if isinstance(found, dict) else ():
        # What is not below the folder is not of the attempt.
        if not is_plain(name) or type(size) is not int:
            raise ImplausibleError("it names what is not a file below its folder")
    return dict(found)


def _folders(names: Collection[str]) -> list[str]:
    return sorted({"/".join(name.split("/")[:2]) for name in names if name.count("/") >= 2})


class Attempts(ABC):
    """What attempts leave where no reader looks, each under its `Output.folder`, until the head has named one."""

    called = "folder"
    """What one of them leaves, in logs."""

    def has(self, folder: str, job: str) -> bool:
        """Return whether a folder is one that attempts of a job make here, whatever a record says."""
        found = attempt_of(folder)
        return found is not None and found.job == job

    def own(self, output: Output) -> str:
        """Return the folder of an output; UnprovenError if it is not of an attempt of its job.

        Whatever a record says, nothing of another job is deleted, and no other table.
        """
        if not self.has(output.folder, output.job):
            raise UnprovenError(output.target, output.version, f"{output.folder!r} is not of an attempt of the job")
        return output.folder

    @abstractmethod
    def find(self, output: Output) -> StagedRows:
        """Return the rows of an attempt.

        Raises
        ------
        StagedFilesLostError
            They are gone, or a part of them is.
        UnprovenError
            They are of another attempt, or for another target, whatever the output says. Nothing may be published.
        """

    @abstractmethod
    def left(self, job: str) -> list[str]:
        """Return what attempts of a job, as `mark_of` writes it, have left, each as `Output.folder`."""

    @abstractmethod
    def left_at(self, folder: str) -> str:
        """Return where an attempt has left something, and how much."""

    @abstractmethod
    def clear(self, folder: str) -> None:
        """Delete what is left of an attempt when all of it is published."""

    @abstractmethod
    def drop(self, folder: str) -> None:
        """Delete what an attempt staged that is never to be published."""

    @abstractmethod
    def withdraw(self, retraction: Retraction) -> bool:
        """Let nobody publish what attempts staged for a retraction; return whether one of them was for its target.

        That they did is still found afterwards, until `retract` deletes it.
        """

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return what attempts have left for the versions of a retraction, as texts."""
        return [self.left_at(folder) for folder in self.covered(retraction)]

    def covered(self, retraction: Retraction) -> list[str]:
        """Return the folder of each attempt that has left something for the versions of a retraction."""
        left = self.left(retraction.job)
        return [folder for folder in left if retraction.covers(version_of(folder, retraction.epoch))]

    def retract(self, retraction: Retraction) -> None:
        """Delete what attempts staged for the versions of a retraction."""
        for folder in self.covered(retraction):
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
            logger.info("event=staging_swept target=%s %s=%s", output.target, self.called, folder)
        return len(losers)


class Staging(Attempts):
    """A place where each attempt has a folder of its own, ``<job>/<batch>-f<fence>-<token>/``, with a manifest."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._last, self._found = "", list[str]()

    def stage(
        self, batch: BatchId, output: Output, write: Callable[[Place, str], Any], schema: FileSchema | None = None
    ) -> tuple[Output, StagedRows]:
        """Let `write` fill a folder of this attempt alone, for an output; it may return `WrittenFiles`, or the rows.

        Returned is the output with the folder, relative to the staging place, and the counts of files and bytes, and
        of rows if the writer counted them.
        """
        folder = folder_of(batch, output.fence, new_token()[:8])
        try:
            made = write(self.place, folder)
        except InvalidValueError as error:
            # All is written by then. After another failure tasks of Spark may still write here, and a later run sweeps.
            if error.reason == "unfit_partition":
                self.drop(folder)
            raise
        rows, staged = made if isinstance(made, WrittenFiles) else (made, self.place.files(folder))
        self._last, self._found = folder, list(staged)
        if isinstance(rows, int) and rows == 0:
            # A file without rows is one more to open for each reader, after each quiet night.
            self.place.delete(staged)
            staged = {}
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
        columns = replace(schema, attempt=folder).to_bytes() if schema is not None and rows != 0 else None
        made_by = Attempt(output.job, output.epoch, output.version, output.fence)
        self._write(folder, Manifest(made_by, output.target, output.terms, sizes, columns))
        output = replace(
            output, staging=self.place.uri(""), folder=folder, rows=rows if isinstance(rows, int) else None,
            files=len(sizes), bytes=sum(sizes.values()),
        )  # fmt: skip
        return output, StagedRows(folder, self.place, sorted(sizes), sizes, columns)

    def find(self, output: Output) -> StagedRows:
        listed = self.listed(output)
        there = self.place.files(output.folder) if listed is not None else {}
        needed = [f"{output.folder}/{name}" for name in (listed.names if listed is not None else [MANIFEST])]
        lost = [self.place.uri(path) for path in needed if path not in there]
        if lost or listed is None:
            raise StagedFilesLostError(output.target, output.version, lost)
        return listed

    def is_own_place(self, of: Output | Retraction) -> bool:
        """Return whether the place that a record names is this one."""
        return is_same_folder(of.staging, self.place.uri(""))

    def listed(self, output: Output) -> StagedRows | None:
        """Return what the manifest of an attempt lists; None where it is gone, or was taken back.

        Raises
        ------
        UnprovenError
            It is of another attempt, or for another target, whatever the output says. Nothing may be published.
        TargetError
            The job stages in another place than it did then, and looking here would say that the files are gone.
        """
        if output.staging and not self.is_own_place(output):
            raise TargetError(
                output.target,
                f"version {output.version} is staged in {output.staging!r}, and this job stages in "
                f"{self.place.uri('')!r} now. Pass staging={output.staging!r} until a run has published it.",
            )
        found = self._read(output.folder, output.target, output.version)
        if found is None or found.files is None:
            return None
        # The record is a hint. It was written by whoever may write to the table, and this by the attempt itself.
        if found.attempt != Attempt(output.job, output.epoch, output.version, output.fence):
            raise UnprovenError(output.target, output.version, f"{MANIFEST} of its folder is of another attempt")
        if not found.is_for(output.target):
            raise UnprovenError(output.target, output.version, f"{MANIFEST} of its folder is for another target")
        if found.terms != output.terms:
            raise UnprovenError(output.target, output.version, f"{MANIFEST} of its folder says another way to publish")
        return StagedRows(output.folder, self.place, sorted(found.files), found.files, found.columns)

    def _read(self, folder: str, target: str, version: int) -> Manifest | None:
        data = self.place.read(f"{folder}/{MANIFEST}")
        try:
            return None if data is None else Manifest.read(data)
        except ImplausibleError as error:
            raise UnprovenError(target, version, f"{MANIFEST} of its folder is not what is written: {error}") from error

    def _write(self, folder: str, manifest: Manifest) -> None:
        self.place.write(f"{folder}/{MANIFEST}", manifest.to_bytes())

    def clear(self, folder: str) -> None:
        # The manifest last: as long as it is there, anybody can go on from where this process may die. What a task of
        # Spark has added since the listing waits for a run that sweeps it.
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}", self._found if folder == self._last else None)

    def drop(self, folder: str) -> None:
        # The manifest first: without it nobody takes the missing files for lost ones.
        self.place.delete([f"{folder}/{MANIFEST}"])
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}")

    def left(self, job: str) -> list[str]:
        return _folders(self.place.files(job))

    def left_at(self, folder: str) -> str:
        count = len(self.place.files(folder).keys() - {f"{folder}/{MANIFEST}"})
        return f"{count_of(count, 'file')} in {self.place.uri(folder)}"

    def withdraw(self, retraction: Retraction) -> bool:
        # The manifests stay, and say that their files were taken back: a process that dies between this and the note of
        # it at the target finds them again. `retract` deletes them.
        is_for_target = False
        for folder in self.covered(retraction):
            try:
                found = self._read(folder, retraction.target, retraction.first)
            except UnprovenError:
                found = None  # It is deleted with the others, and proves nothing.
            is_for_target |= found is not None and found.is_for(retraction.target)
            if found is not None:
                self._write(folder, replace(found, files=None))
                self.place.delete([name for name in self.place.files(folder) if name != f"{folder}/{MANIFEST}"])
        return is_for_target
