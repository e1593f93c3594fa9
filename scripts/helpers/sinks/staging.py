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
    """Where an attempt's rows are: in files of `place`, or if that is None, in a branch or a staging table."""

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
        """Return the content of a file, or its last `last` bytes; FileNotFoundError if the file is gone."""
        data = self.place.read(f"{self.folder}/{name}", last) if self.place else None
        if data is None:
            raise FileNotFoundError(f"{self.folder}/{name}")
        return data

    def footers(self) -> dict[str, pq.FileMetaData]:
        """Return the footer of each file; FileNotFoundError if one is gone."""
        return {name: pq.read_metadata(footer_in(partial(self.read, name))) for name in self.names}

    def copy_to(self, place: Any, within: str = "") -> dict[str, tuple[str, int]]:
        """Copy the files of an attempt into the folder of a table; return the new name and the bytes, by old name.

        A new name is computed from the attempt and the file's number. So all publishers of the attempt write the same
        bytes to the same name, and none of them harms what another one has committed.

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
    """Return the partition folder in a file's name that hides the file from readers, such as `_day=1`; '' if none."""
    for folder in name.split("/")[:-1]:
        if is_hidden(folder):
            # A hidden folder without "=" is not of a partition: Spark has hidden folders such as `_temporary`.
            return folder if "=" in folder else ""
    return ""


@dataclass(frozen=True)
class Manifest:
    """The file that is written last into an attempt's folder. It names the attempt, its target and its files.

    `files` has sizes by name, or is None if an operator took the attempt back, so that its files are or will be
    deleted. `columns` is the schema of the files, and `terms` says how to publish them: see `Output.terms`.
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
        """Return whether the manifest is for the target `target`, even if it spells the target's name differently."""
        return place_of_name(self.target) == place_of_name(target)


def is_beside(of: Output | Retraction, target: str) -> bool:
    """Return whether a record names the default staging place of a target.

    Any other place is trusted only if the job's script names it: somebody who can alter the record could name
    another folder in it, with forged files that look like those of an attempt.
    """
    return is_same_folder(of.staging, staging_beside(target))


def _checked_files(found: Any) -> dict[str, int]:
    for name, size in found.items() if isinstance(found, dict) else ():
        # Refuse a name such as `../a`, which leads out of the attempt's folder.
        if not is_plain(name) or type(size) is not int:
            raise ImplausibleError("it names what is not a file below its folder")
    return dict(found)


def _folders(names: Collection[str]) -> list[str]:
    return sorted({"/".join(name.split("/")[:2]) for name in names if name.count("/") >= 2})


class Attempts(ABC):
    """The staged rows of all attempts, each under its `Output.folder`: a folder, a staging table or a branch."""

    called = "folder"
    """The word in logs for what one attempt stores."""

    def has(self, folder: str, job: str) -> bool:
        """Return whether a folder's name alone shows that it is of a job; `job` is the job's mark, a hash in names."""
        found = attempt_of(folder)
        return found is not None and found.job == job

    def own(self, output: Output) -> str:
        """Return the folder of an output; UnprovenError if its name is not that of an attempt of the job.

        Without this check, an altered record could make this package delete what belongs to another job or table.
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
            Some or all of the rows are gone.
        UnprovenError
            The rows are of another attempt, or for another target, than the output says. They must not be published.
        """

    @abstractmethod
    def left(self, job: str) -> list[str]:
        """Return `Output.folder` of attempts with rows or a note of rows taken back; `job` is the job id's hash."""

    @abstractmethod
    def left_at(self, folder: str) -> str:
        """Return a text that says what an attempt has left and where, such as "2 files in s3://…"."""

    @abstractmethod
    def clear(self, folder: str) -> None:
        """Delete the staged files, or the branch, of an attempt whose rows are all published."""

    @abstractmethod
    def drop(self, folder: str) -> None:
        """Delete the staged rows of an attempt that is never to be published."""

    @abstractmethod
    def withdraw(self, retraction: Retraction) -> bool:
        """Make sure that a retraction's staged rows are never published. Return whether any were staged for its target.

        A note of the withdrawal stays, so that a repeated call returns the same. `retract` deletes these notes.
        """

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return a text, such as "2 files in s3://…", for each attempt whose rows `retract` would delete."""
        return [self.left_at(folder) for folder in self.covered(retraction)]

    def covered(self, retraction: Retraction) -> list[str]:
        """Return `Output.folder` of attempts at retracted versions with staged rows or a note of their withdrawal."""
        left = self.left(retraction.job)
        return [folder for folder in left if retraction.covers(version_of(folder, retraction.epoch))]

    def retract(self, retraction: Retraction) -> None:
        """Delete all that attempts staged for the versions of a retraction."""
        for folder in self.covered(retraction):
            self.drop(folder)

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        """Delete what losing attempts staged for versions up to this output's; return the number of these attempts."""
        # Keep attempts at later versions, which other runs may be staging, and those in `kept`, which are committed and
        # not published yet. Even if this process pauses here for a day, it must not delete them.
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
        """Call `write` to write the rows into a new folder of this attempt. It returns `WrittenFiles` or a row count.

        Returns the output with the folder, relative to the staging place, and with the numbers of files and bytes, and
        of rows if `write` returned a row count.
        """
        folder = folder_of(batch, output.fence, new_token()[:8])
        try:
            made = write(self.place, folder)
        except InvalidValueError as error:
            # Drop the folder only for this error: all rows are written. After other errors, Spark may still write.
            if error.reason == "unfit_partition":
                self.drop(folder)
            raise
        rows, staged = made if isinstance(made, WrittenFiles) else (made, self.place.files(folder))
        self._last, self._found = folder, list(staged)
        if isinstance(rows, int) and rows == 0:
            # Without rows, publish no file: otherwise each run without new rows would add a file that readers open.
            self.place.delete(staged)
            staged = {}
        sizes: dict[str, int] = {}
        for name in sorted(staged):
            within = name.removeprefix(f"{folder}/")
            # Leave out files that Spark writes for itself and hides: markers, checksums, files of unfinished tasks.
            if not is_hidden(within):
                sizes[within] = staged[name]
            elif _hidden_partition(within):
                self.drop(folder)
                raise TargetError(
                    self.place.uri(""),
                    f"a value of partition_by makes the folder {_hidden_partition(within)!r}, which readers such as "
                    "Spark skip, so its rows would be lost. Change the value, or choose another column.",
                )
        # If Spark counted rows but this process finds no file, Spark wrote to the disk of another machine or to another
        # store. Without this error, an empty batch would be published, and the rows would be lost.
        if isinstance(rows, int) and rows > 0 and not sizes:
            raise TargetError(
                self.place.uri(""),
                f"{rows_have(rows)} been written to {self.place.uri(folder)}, and this process finds no file there. "
                "Name a folder that Spark and this process reach in the same place, such as s3://…, and give "
                "s3_client= if the store is none of AWS.",
            )
        # Write the manifest last: an attempt without a manifest has not finished. Publishers move only the files in the
        # manifest, because a Spark task whose driver is dead may still add a file with rows that another file has.
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
        """Return whether a record's `staging` is this staging place."""
        return is_same_folder(of.staging, self.place.uri(""))

    def listed(self, output: Output) -> StagedRows | None:
        """Return the files in an attempt's manifest; None if there is no manifest, or `withdraw` deleted the files.

        Raises
        ------
        UnprovenError
            The manifest names another attempt or target than the output. Nothing may be published.
        TargetError
            The output was staged in another place than the one where the job stages now.
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
        # Compare the output with the manifest, which the attempt wrote: the output may have been altered in the table.
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
        # Delete the manifest last: if this process dies, another one finds it, and can finish. If a Spark task adds a
        # file after the folder was listed, the file stays until a later run sweeps it.
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}", self._found if folder == self._last else None)

    def drop(self, folder: str) -> None:
        # Delete the manifest first: a publisher that found the manifest without the files would report them as lost.
        self.place.delete([f"{folder}/{MANIFEST}"])
        self.place.delete_folder(folder, f"{folder}/{MANIFEST}")

    def left(self, job: str) -> list[str]:
        return _folders(self.place.files(job))

    def left_at(self, folder: str) -> str:
        count = len(self.place.files(folder).keys() - {f"{folder}/{MANIFEST}"})
        return f"{count_of(count, 'file')} in {self.place.uri(folder)}"

    def withdraw(self, retraction: Retraction) -> bool:
        # Delete the files, but keep each manifest, with a note that its files were taken back: if this process dies
        # before the target has recorded that, a later process finds the note. `retract` deletes the manifests.
        is_for_target = False
        for folder in self.covered(retraction):
            try:
                found = self._read(folder, retraction.target, retraction.first)
            except UnprovenError:
                found = None  # The folder's manifest is invalid: do not count its files. `retract` deletes the folder.
            is_for_target |= found is not None and found.is_for(retraction.target)
            if found is not None:
                self._write(folder, replace(found, files=None))
                self.place.delete([name for name in self.place.files(folder) if name != f"{folder}/{MANIFEST}"])
        return is_for_target
