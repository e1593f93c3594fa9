"""`AfterCommit`: archive or delete the files of a batch once it is committed and published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import pa
from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.run import Run
from scripts.helpers.sinks.places import is_within

if TYPE_CHECKING:
    from scripts.helpers.batch.batch import Batch
    from scripts.helpers.files.bookmark import FileBookmark

logger = logging.getLogger(__name__)

ACTIONS = ("archive", "delete")


@dataclass(frozen=True)
class AfterCommit:
    """The options of `new_files` that archive or delete source files after a commit; by default the files stay.

    Attributes
    ----------
    after_commit
        ``archive``, ``delete`` or None.
    archive_to
        Where ``archive`` moves files, as ``v<version>/<key>``: an S3 prefix, or a directory if the source is local.
    min_age
        How long files stay in the source after they were written and after their batch was committed.
    """

    after_commit: str | None = None
    archive_to: str | None = None
    min_age: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        """Raise InvalidValueError, which names option, value and remedy, for options that do not go together."""
        check_choice("after_commit", self.after_commit, (*ACTIONS, None))
        if self.after_commit == "archive" and (not isinstance(self.archive_to, str) or not self.archive_to):
            raise InvalidValueError(
                f"archive_to is {self.archive_to!r}. Name the prefix or directory that files are moved to."
            )
        if self.after_commit != "archive" and self.archive_to is not None:
            raise InvalidValueError(f"archive_to is {self.archive_to!r}. Give it with after_commit='archive' only.")
        if not isinstance(self.min_age, timedelta) or self.min_age < timedelta(0):
            raise InvalidValueError(f"min_age is {self.min_age!r}. Use a timedelta that is not negative.")
        if self.after_commit is None and self.min_age:
            raise InvalidValueError(f"min_age is {self.min_age!r}. Give it with after_commit only.")

    def check_clearable(self, bookmark: FileBookmark, sees_all: bool) -> None:
        """Raise InvalidValueError for a source that is never listed completely, or whose files cannot be moved.

        If a run dies before it archives or deletes its files, only a later listing of the whole source finds them.
        """
        location, options = bookmark.location, bookmark.options
        if not location.is_local and not location.is_s3:
            raise InvalidValueError(f"after_commit is for S3 and local directories, not for {location.scheme}://.")
        if options.layout is not None or not sees_all:
            raise InvalidValueError(
                f"after_commit={self.after_commit!r} needs a listing of the whole source, which finds what a run that "
                "died has left. Use no layout, and with events a relist."
            )
        if self.archive_to is None:
            return
        archive = type(location).parse(self.archive_to)
        if archive.is_local != location.is_local or archive.is_s3 != location.is_s3:
            raise InvalidValueError(
                f"archive_to is {self.archive_to!r}, and the source is {location}. Use a bucket for a bucket, and a "
                "directory for a directory."
            )
        for one, other in ((archive, location), (location, archive)):
            if is_within(str(one), str(other)):
                raise InvalidValueError(
                    f"archive_to is {self.archive_to!r}, which overlaps the source {str(location)!r}"
                    ", so archived files would be new there. Use another prefix."
                )


@dataclass(frozen=True)
class ClearingUp:
    """Archives or deletes source files that this run and earlier runs have taken; called after the commit.

    Parameters
    ----------
    run
        The run of the batch.
    taken
        A function that returns tables of files: of this batch, and of earlier ones whose files are still in the source.
    """

    after: AfterCommit
    batch: Batch
    run: Run
    bookmark: FileBookmark
    taken: Callable[[], Sequence[pa.Table]] = tuple

    def check_rights(self) -> None:
        """Raise AccessRefusedError if it is certain that this login may not archive or delete the files."""
        self._clearing().check_rights()

    def __call__(self) -> None:
        """Archive or delete the files whose batch is visible to readers, and for which `min_age` is over."""
        at = cache(self.batch.committed_at)
        due = [taken for taken in self._found() if self._is_due(taken, at)]
        if not due:
            return
        done = self._clearing().clear(due)
        logger.info(
            "event=cleared job=%s source=%s action=%s files=%d bytes=%d changed=%d gone=%d",
            self.run.job_id, self.bookmark.location, self.after.after_commit, done.files, done.bytes, done.changed,
            done.gone,
        )  # fmt: skip

    def _clearing(self) -> Any:
        from scripts.helpers.listing.clearing import Clearing

        location, options = self.bookmark.location, self.bookmark.options
        archive = type(location).parse(self.after.archive_to) if self.after.archive_to else None
        return Clearing(location, archive, self.batch.s3_client, options.request_payer, options.compare == "mtime")

    def _found(self) -> list[Any]:
        """Return the files of this batch and of earlier ones that were still in the source when the run listed it."""
        from scripts.helpers.listing.clearing import Taken

        found = []
        for table in self.taken():
            columns = (table.column(name).to_pylist() for name in Taken._fields)
            found += [Taken(*row) for row in zip(*columns, strict=True)]
        return found

    def _is_due(self, taken: Any, at: Callable[[int], datetime | None]) -> bool:
        # Keep source files of batches that readers do not see yet: they are needed if the staged files are lost.
        unpublished = [output.version for output in self.run.unpublished]
        if taken.version > self.run.version or (unpublished and taken.version >= min(unpublished)):
            return False
        if not self.after.min_age:
            return True
        # Wait `min_age` after the commit as well: a rewind may still need a file that was written long ago.
        last = self.run.head.last
        committed = last.at if last is not None and taken.version == self.run.version else at(taken.version)
        since = max(committed or taken.modified, taken.modified)
        return bool(self.batch.clock() - since >= self.after.min_age)
