"""`FileBookmark`: which objects of a listing are new, and the `FileDelta` that reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from scripts.helpers.errors import SourceChangedError, SourceError
from scripts.helpers.identities import Identity, in_order, pack, unpack
from scripts.helpers.object_listing import Location, list_objects
from scripts.helpers.spark_paths import check_readable, folder_columns, is_hidden

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

K = TypeVar("K")


@dataclass(frozen=True)
class FileDelta:
    """The new files of one batch, in the order of their keys' bytes.

    An empty delta is a good answer: nothing is new.

    Examples
    --------
    >>> delta = FileBookmark(landing).new_files()
    >>> delta.count, delta.bytes
    (2, 12)
    >>> [path.rpartition("/")[2] for path in delta.paths]
    ['1.csv', '2.csv']
    """

    location: Location
    files: tuple[Identity, ...]

    def __repr__(self) -> str:
        return f"<FileDelta {str(self.location)!r}: {self.count:,} files, {self.bytes:,} bytes>"

    @property
    def paths(self) -> list[str]:
        """Full URIs with raw keys. Spark would glob them: `read` does not."""
        return [self.location.uri(file.key) for file in self.files]

    @property
    def count(self) -> int:
        """Number of files."""
        return len(self.files)

    @property
    def bytes(self) -> int:
        """Sum of their sizes in bytes."""
        return sum(file.size for file in self.files)

    def split(self, by: Callable[[str], K]) -> dict[K, FileDelta]:
        """Part the delta by a function of the key, such as `spark_paths.suffix`."""
        parts: dict[K, list[Identity]] = {}
        for file in self.files:
            parts.setdefault(by(file.key), []).append(file)
        return {value: FileDelta(self.location, tuple(files)) for value, files in parts.items()}

    def read(
        self, spark: SparkSession, format: str, *, schema: StructType | str | None = None, **options: Any
    ) -> DataFrame:
        """Read exactly these files.

        Spark globs paths by default; here a key is what it is, also with ``* ? [ {`` in it. Folders
        such as ``year=2013/`` become columns, as they do when Spark reads the whole prefix.

        Parameters
        ----------
        format
            A file format of Spark: csv, json, parquet, orc, text.
        schema
            StructType or DDL text. Needed where Spark could not infer one: for an empty delta.
        **options
            Reader options.

        Returns
        -------
        DataFrame
            Lazily read; empty, with `schema`, for an empty delta.

        Raises
        ------
        SourceError
            Some files lie in ``name=value`` folders and some do not: Spark would drop the latter
            without a word. Read them apart: ``delta.split(spark_paths.folder_columns)``.
        """
        from pyspark.sql.types import StructType

        if not self.files:
            return spark.createDataFrame([], schema or StructType([]))
        layouts = self.split(folder_columns)
        if len(layouts) > 1:
            found = " and ".join(sorted(f"{part.count} files with {list(names)}" for names, part in layouts.items()))
            raise SourceError(
                str(self.location),
                f"the folders give different columns: {found}. Spark would drop files. "
                "Read them apart: delta.split(spark_paths.folder_columns).",
            )
        reader = spark.read.format(format).option("basePath", str(self.location))
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load([_literal(path) for path in self.paths])

    def to_plan(self) -> dict[str, Any]:
        """Return what the frozen plan stores."""
        return {"kind": "files", "source": self.location.name, "files": pack(self.files)}

    @classmethod
    def from_plan(cls, location: Location, plan: Mapping[str, Any], context: str) -> FileDelta:
        """Return the delta of a frozen plan, with the caller's spelling of the source."""
        _check_source(plan, location, context)
        return cls(location, tuple(_unpacked(location, plan.get("files"))))


class FileBookmark:
    """What is remembered of an S3 prefix or a local directory, and what is new there.

    Mode *exact*: the identities (key, ETag, size) of all objects seen are kept, so no clock and no
    upload time can hide a file. A changed object is new again. One that was deleted is forgotten.

    Parameters
    ----------
    source
        ``s3://bucket/prefix/``, ``s3a://bucket/prefix/`` or a local directory.
    state
        What an earlier `state_after` returned; None on a first run.
    context
        Name of the source inside its job, for error texts.
    s3_client
        A boto3 S3 client; by default one from boto3's default session.

    Examples
    --------
    >>> bookmark = FileBookmark(landing)
    >>> delta = bookmark.new_files()
    >>> delta.count
    2
    >>> FileBookmark(landing, state=bookmark.state_after).new_files().count
    0
    """

    def __init__(
        self,
        source: str,
        *,
        state: Mapping[str, Any] | None = None,
        context: str = "files",
        s3_client: S3Client | None = None,
    ) -> None:
        self.location = Location.parse(source)
        self._s3_client = s3_client
        self._known: frozenset[Identity] = frozenset()
        self._listed: list[Identity] | None = None
        if state is not None:
            _check_source(state, self.location, context)
            self._known = frozenset(_unpacked(self.location, state.get("objects")))

    def __repr__(self) -> str:
        return f"<FileBookmark {str(self.location)!r}: {len(self._known):,} objects known>"

    def new_files(self) -> FileDelta:
        """List the source and return the objects whose identity is not known.

        Hidden files are left out by Spark's rule, on every folder below the prefix.

        Raises
        ------
        SourceError
            The source cannot be listed completely, or holds a key that Spark cannot read.
        """
        listed = [found for found in list_objects(self.location, self._s3_client) if not is_hidden(found.key)]
        for found in listed:
            check_readable(str(self.location), found.key)
            if self.location.is_local and ":" in found.key.rpartition("/")[2]:
                raise SourceError(
                    str(self.location), f"key {found.key!r} has a colon, which Hadoop cannot read locally. Rename it."
                )
        self._listed = in_order(listed)
        return FileDelta(self.location, tuple(found for found in self._listed if found not in self._known))

    @property
    def state_after(self) -> dict[str, Any]:
        """What to store once the delta of `new_files` is processed."""
        if self._listed is None:
            raise SourceError(str(self.location), "it has not been listed yet. Call new_files first.")
        return {
            "kind": "files",
            "source": self.location.name,
            "objects": pack(self._listed),
        }


def _literal(path: str) -> str:
    """Escape what Spark would glob.

    Its switch ``__globPaths__`` is no way out: turned off, each path with such a character stands for
    all paths of the call (DataSource.checkAndGlobPathIfNecessary), and their rows come more than once.
    """
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _check_source(stored: Mapping[str, Any], location: Location, context: str) -> None:
    """Raise SourceChangedError if a state or plan is that of another source."""
    fields = stored if isinstance(stored, Mapping) else {}
    if fields.get("kind") != "files" or fields.get("source") != location.name:
        before = str(fields.get("source", f"a source of kind {fields.get('kind')}"))
        raise SourceChangedError(context, before, location.name)


def _unpacked(location: Location, packed: Any) -> list[Identity]:
    try:
        return unpack(packed)
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(
            str(location), f"its stored file list is damaged ({error}). Restore the job's item from a backup."
        ) from error
