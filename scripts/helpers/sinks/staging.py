"""`Staging`: the hidden folders in which attempts keep files until the head has named one of the attempts."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any

from scripts.helpers._lazy import pq
from scripts.helpers.display.units import count_of
from scripts.helpers.errors import InvalidValueError, StagedFilesLostError, TargetError, UnprovenError, rows_have
from scripts.helpers.listing.paths import is_hidden, is_plain
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.sinks.arrow_files import WrittenFiles, footer_in
from scripts.helpers.sinks.file_schema import FileSchema
from scripts.helpers.sinks.outputs import MANIFEST, Attempt, attempt_of, folder_of, staging_beside, version_of
from scripts.helpers.sinks.places import LocalPlace, Place, S3Place, is_same_folder, place_of_name

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagedRows:
    """The location of an attempt's rows: files in its folder, or a branch of a table. A branch has no `place`."""

    folder: str
    place: Place | None = None
    names: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    columns: bytes | None = None
    """The schema of the files, as `FileSchema.to_bytes` writes it; None if it is not known."""

    @property
    def uris(self) -> list[str]:
        """The URIs of the files."""
        return [self.place.uri(f"{self.folder}/{name}") for name in self.names] if self.place else []

    def read(self, name: str, last: int | None = None) -> bytes:
        """Return the content of a file, or its last bytes; FileNotFoundError if the file is gone."""
        data = self.place.read(f"{self.folder}/{name}", last) if self.place else None
        if data is None:
            raise FileNotFoundError(f"{self.folder}/{name}")
        return data

    def footers(self) -> dict[str, pq.FileMetaData]:
        """Return the footer of each file; FileNotFoundError if one is gone."""
        return {name: pq.read_metadata(footer_in(partial(self.read, name))) for name in self.names}

    def copy_to(self, place: Any, within: str = "") -> dict[str, tuple[str, int]]:
        """Copy the files of an attempt into the folder of a table; return new names and bytes, by old name.

        A new name follows from attempt and old name alone. All publishers of the attempt write the same bytes to it, so
        none of them harms what another one has committed.

        Raises
        ------
        FileNotFoundError
            A file is gone: the batch was published meanwhile, or taken back.
        TargetError
            The files cannot be copied there.
        """
        assert isinstance(self.place, LocalPlace | S3Place)
        token = sha256(self.folder.encode()).hexdigest()[:20]
        new = {name: f"{within}part-{at:05d}-{token}.parquet" for at, name in enumerate(self.names)}
        moves = {f"{self.folder}/{name}": new[name] for name in self.names}
        sizes = {f"{self.folder}/{name}": self.sizes[name] for name in self.names}
        if gone := self.place.copy(moves, sizes, place):
            raise FileNotFoundError(gone[0])
        return {name: (new[name], self.sizes[name]) for name in self.names}


def _hidden_partition(name: str) -> str:
    """Return the partition folder that hides a file from readers; '' if none does, or only a folder of Spark's own."""
    for folder in name.split("/")[:-1]:
        if is_hidden(folder):
            # Spark's own hidden folders have no "=" with a value: `_temporary`, `.spark-staging-…`.
            return folder if "=" in folder else ""
    return ""


@dataclass(frozen=True)
class Manifest:
    """The last file that an attempt writes into its folder: its attempt and target, how to publish it, sizes, schema.

    `files` is None once a decision has taken the attempt back, so its files are deleted or about to be. For `terms` see
    `Output.terms`.
    """

    attempt: Attempt
    target: str
    terms: Mapping[str, Any]
    files: Mapping[str, int] | None
    columns: bytes | None = None

    @classmethod
    def read(cls, data: bytes) -> Manifest:
        """Read the bytes that `to_bytes` wrote. ImplausibleError if they are anything else."""
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
        """Return the manifest as JSON."""
        files: Any = False if self.files is None else dict(self.files)
        of_attempt = {**self.attempt._asdict(), "target": self.target, "terms": self.terms}
        columns = {"columns": self.columns.decode()} if self.columns else {}
        return json.dumps({**of_attempt, "files": files, **columns}).encode()

    def is_for(self, target: str) -> bool:
        """Return whether the manifest names a target, even if it spells the name differently."""
        return place_of_name(self.target) == place_of_name(target)


def is_beside(of: Output | Retraction, target: str) -> bool:
    """Return whether a record names the default staging place of a target.

    Any other place is trusted only if the job's script names it. An attacker who can write the record could name a
    folder of his own, with files like those that an attempt stages.
    """
    return is_same_folder(of.staging, staging_beside(target))


def _checked_files(found: Any) -> dict[str, int]:
    for name, size in found.items() if isinstance(found, dict) else ():
        # Reject a path out of the folder: an attempt writes only below its folder.
        if not is_plain(name) or type(size) is not int:
            raise ImplausibleError("it names what is not a file below its folder")
    return dict(found)


def _folders(names: Collection[str]) -> list[str]:
    return sorted({"/".join(name.split("/")[:2]) for name in names if name.count("/") >= 2})


class Attempts(ABC):
    """What attempts store where no reader looks, each under its `Output.folder`, until the head names one attempt."""

    called = "folder"
    """The word in logs for what one attempt stores."""

    def has(self, folder: str, job: str) -> bool:
        """Return whether a folder's name shows that an attempt of the job made it. No record is trusted for this."""
        found = attempt_of(folder)
        return found is not None and found.job == job

    def own(self, output: Output) -> str:
        """Return the folder of an output; UnprovenError if its name is not that of an attempt of the job.

        So a false record cannot make this package delete what belongs to another job, or another table.
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
            The rows are gone, at least a part of them.
        UnprovenError
            The rows are of another attempt or for another target than the output says. They must not be published.
        """

    @abstractmethod
    def left(self, job: str) -> list[str]:
        """Return the `Output.folder` of each attempt of a job, as `mark_of` writes it, that has left something."""

    @abstractmethod
    def left_at(self, folder: str) -> str:
        """Return what an attempt has left and where, such as "2 files in s3://…"."""

    @abstractmethod
    def clear(self, folder: str) -> None:
        """Delete the staged files, or the branch, of an attempt whose rows are all published."""

    @abstractmethod
    def drop(self, folder: str) -> None:
        """Delete the staged rows of an attempt that is never to be published."""

    @abstractmethod
    def withdraw(self, retraction: Retraction) -> bool:
        """Make the staged rows of a retraction's versions unpublishable; return whether any were for its target.

        A repeated call still returns True for such an attempt, until `retract` deletes the note about it.
        """

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return a text for each attempt whose rows or manifest are left for the versions of a retraction."""
        return [self.left_at(folder) for folder in self.covered(retraction)]

    def covered(self, retraction: Retraction) -> list[str]:
        """Return the folder of each attempt that has left rows or a manifest for the versions of a retraction."""
        left = self.left(retraction.job)
        return [folder for folder in left if retraction.covers(version_of(folder, retraction.epoch))]

    def retract(self, retraction: Retraction) -> None:
        """Delete what attempts staged for the versions of a retraction."""
        for folder in self.covered(retraction):
            self.drop(folder)

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        """Delete what losing attempts staged for batches up to this one; return the number of these attempts."""
        # Runs may be staging later versions, or have won and wait to be published. Even a process that pauses here for
        # a day must not delete these rows.
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
        """Let `write` fill a folder of this attempt alone, for an output; it may return `WrittenFiles`, or a row count.

        Returns the output with its folder, relative to the staging place, and the counts of files and bytes, and of
        rows if the writer counted them.
        """
        folder = folder_of(batch, output.fence, new_token()[:8])
        try:
            made = write(self.place, folder)
        except InvalidValueError as error:
            # Delete the folder after this error only. After others, Spark's tasks may still write, so later runs sweep.
            if error.reason == "unfit_partition":
                self.drop(folder)
            raise
        rows, staged = made if isinstance(made, WrittenFiles) else (made, self.place.files(folder))
        self._last, self._found = folder, list(staged)
        if isinstance(rows, int) and rows == 0:
            # Delete a file without rows: each reader would have to open one more file for each run without new rows.
            self.place.delete(staged)
            staged = {}
        sizes: dict[str, int] = {}
        for name in sorted(staged):
            within = name.removeprefix(f"{folder}/")
            # Skip files that Spark hides from readers as its own: markers, checksums, files of unfinished tasks.
            if not is_hidden(within):
                sizes[within] = staged[name]
            elif _hidden_partition(within):
                self.drop(folder)
                raise TargetError(
                    self.place.uri(""),
                    f"a value of partition_by makes the folder {_hidden_partition(within)!r}, which readers such as "
                    "Spark skip, so its rows would be lost. Change the value, or choose another column.",
                )
        # Spark wrote where this process does not look: on the disk of another machine, or in a store of another
        # address. Without this error, the batch would be published as empty, and its rows lost.
        if isinstance(rows, int) and rows > 0 and not sizes:
            raise TargetError(
                self.place.uri(""),
                f"{rows_have(rows)} been written to {self.place.uri(folder)}, and this process finds no file there. "
                "Name a folder that Spark and this process reach in the same place, such as s3://…, and give "
                "s3_client= if the store is none of AWS.",
            )
        # Write the manifest last: an attempt without one has not finished. Publishers read the manifest, not a listing:
        # a task of a dead driver may still add a file with rows of another file.
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
        return replace(listed, sizes={name: there[f"{output.folder}/{name}"] for name in listed.names})

    def is_own_place(self, of: Output | Retraction) -> bool:
        """Return whether a record names this staging place."""
        return is_same_folder(of.staging, self.place.uri(""))

    def listed(self, output: Output) -> StagedRows | None:
        """Return the files that the manifest of an attempt lists; None if it is gone, or was taken back.

        Raises
        ------
        UnprovenError
            The manifest names another attempt or target than the output. Nothing may be published.
        TargetError
            The job stages in another place now than it did then, and a look at the new place would find no files.
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
        # Trust the manifest, which the attempt wrote. Anyone who may write to the table could have written the output.
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
        # Delete the manifest last: while it exists, another process can finish if this one dies. A later run
        # sweeps a file that a task of Spark has added since the listing.
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}", self._found if folder == self._last else None)

    def drop(self, folder: str) -> None:
        # Delete the manifest first, so that no publisher finds a manifest without its files and reports them as lost.
        self.place.delete([f"{folder}/{MANIFEST}"])
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}")

    def left(self, job: str) -> list[str]:
        return _folders(self.place.files(job))

    def left_at(self, folder: str) -> str:
        count = len(self.place.files(folder).keys() - {f"{folder}/{MANIFEST}"})
        return f"{count_of(count, 'file')} in {self.place.uri(folder)}"

    def withdraw(self, retraction: Retraction) -> bool:
        # Keep the manifests, and note in them that their files were taken back: if this process dies before the target
        # has a record, a later process finds the notes. `retract` deletes the manifests.
        is_for_target = False
        for folder in self.covered(retraction):
            try:
                found = self._read(folder, retraction.target, retraction.first)
            except UnprovenError:
                found = None  # An invalid manifest proves nothing. `retract` deletes it.
            is_for_target |= found is not None and found.is_for(retraction.target)
            if found is not None:
                self._write(folder, replace(found, files=None))
                self.place.delete([name for name in self.place.files(folder) if name != f"{folder}/{MANIFEST}"])
        return is_for_target
