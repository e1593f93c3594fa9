"""`FileDelta`: the new files of one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, pd
from scripts.helpers.display.tables import MAX_SHOWN, Column, Table, need_pandas
from scripts.helpers.display.units import count_of, size_text
from scripts.helpers.errors import FileContentError, InvalidValueError
from scripts.helpers.files.kept_schemas import KeptSchemas, schema_name
from scripts.helpers.files.readable import ReadableWhenSmall
from scripts.helpers.files.unchanged import check_unchanged
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import Identity, no_rows
from scripts.helpers.schemas.frames import ANY, columns_of_rows, fitted_rows
from scripts.helpers.schemas.kinds import Columns
from scripts.helpers.schemas.policy import Decision, Given, OnSchemaChange, check_policy, decide
from scripts.helpers.spark.progress import time_limit

# Modules that read files are imported at the first read, so a run without new files does not import them.
if TYPE_CHECKING:
    from scripts.helpers.files.readings import Readings
    from scripts.helpers.reading.by_schema import Asked, Part, ReadFiles
    from scripts.helpers.reading.small_files import OnChanged

K = TypeVar("K")
INSIDE = {"location", "part", "read_with", "readable", "readings"}
INSIDE |= {"check_unread", "fetched", "request_payer", "s3_client", "schemas", "table", "unpinned"}
"""Attributes for this package only, which completion in an editor does not offer."""


class _FirstFiles(Table[dict[str, Any]]):
    """The first files of a delta, shown as a table in a notebook."""

    columns = (
        Column("key", itemgetter("key")),
        Column("size", itemgetter("size"), "size"),
        Column("modified", itemgetter("modified"), "time"),
    )


@dataclass(frozen=True, eq=False)
class FileDelta(ReadableWhenSmall):
    """The new files of one batch, in the order of their keys' bytes.

    A delta without files is not an error: it means that no file is new.

    Attributes
    ----------
    table : pyarrow.Table
        One row per file: key (relative to the source), etag, version_id, size, modified and more.
    has_more : bool
        Whether `max_files` or `max_bytes` left files for the next batch.
    gone : int
        Number of objects that do not exist any more.
    request_payer : bool
        Whether the requester pays for requests to the source.
    unpinned : set
        Which of ``read`` and ``paths`` were used on this delta or a part of it: both ignore the planned versions.
    fetched : set
        Keys of files whose planned bytes `read_pandas` has read.
    readings : Readings or None
        With ``on_unreadable="set_aside"``: tracks the reads of this delta and its parts, and unreadable files.
    s3_client : S3Client or None
        Fetches CSV headers and files for pandas, and checks whether files are unchanged. It is the client that listed
        the files, as boto3's default may have another endpoint or login. If None, a client is created.
    schemas : KeptSchemas or None
        In a job: the columns of earlier batches.
    part : str
        For a part made by `split`: its value, such as ``csv``; else empty. Each part keeps its own schema.

    Examples
    --------
    >>> delta = FileBookmark(landing).new_files()
    >>> delta.count, delta.bytes
    (2, 12)
    >>> [path.rpartition("/")[2] for path in delta.paths]
    ['1.csv', '2.csv']
    """

    location: Location
    table: pa.Table = field(default_factory=no_rows)
    has_more: bool = False
    gone: int = 0
    request_payer: bool = False
    unpinned: set[str] = field(default_factory=set)
    fetched: set[str] = field(default_factory=set)
    readings: Readings | None = None
    schemas: KeptSchemas | None = None
    part: str = ""
    s3_client: S3Client | None = None

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in INSIDE]

    def __repr__(self) -> str:
        more = ", and more to come" if self.has_more else ""
        return f"<FileDelta {str(self.location)!r}: {count_of(self.count, 'file')}, {self.bytes:,} bytes{more}>"

    def _repr_html_(self) -> str:
        """Return count, size and first keys for a notebook, without looking at the source."""
        more = f", of which the first {MAX_SHOWN} are" if self.count > MAX_SHOWN else ""
        caption = f"{self.location}: {count_of(self.count, 'file')}, {size_text(self.bytes)}{more}"
        return _FirstFiles(self.table.slice(0, MAX_SHOWN).to_pylist(), caption)._repr_html_()

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with a row per file: key, etag, version_id, size in bytes, modified (aware, UTC) and more.

        Raises
        ------
        ConfigurationError
            pandas is not installed.
        """
        need_pandas()
        return self.table.to_pandas()

    @property
    def files(self) -> tuple[Identity, ...]:
        """The identities of the files as tuples of key, ETag and size."""
        self._note_read()
        columns = (self.table.column(name).to_pylist() for name in Identity._fields)
        return tuple(Identity(*row) for row in zip(*columns, strict=True))

    @property
    def paths(self) -> list[str]:
        """Full URIs of the files, without escapes. Spark's readers take ``*`` in them for a glob; `read` does not."""
        # Record in `unpinned` that the caller reads the paths by itself: the latest versions, not the planned ones.
        self.unpinned.add("paths")
        self._note_read()
        if self.readings is not None:
            self.readings.note_all_given()
        return self.location.readable_uris(self.readable.column("key").to_pylist())

    @property
    def set_aside(self) -> Mapping[str, str]:
        """Why each set-aside file could not be read, by key. `count` includes these files. See `readings.Readings`."""
        return {} if self.readings is None else dict(self.readings.reasons)

    @property
    def readable(self) -> pa.Table:
        """The rows of `table` whose files are not set aside."""
        return self.table if self.readings is None else self.readings.readable(self.table)

    @property
    def count(self) -> int:
        """Number of files."""
        return int(self.table.num_rows)

    @property
    def bytes(self) -> int:
        """Sum of the sizes of the files in bytes."""
        return int(pc.sum(self.table.column("size")).as_py() or 0)

    def split(self, by: Callable[[str], K]) -> dict[K, FileDelta]:
        """Divide the delta by a function of the key: `paths.suffix` makes a part for ``csv``, and one for ``json``."""
        parts: dict[K, list[int]] = {}
        for index, key in enumerate(self.table.column("key").to_pylist()):
            parts.setdefault(by(key), []).append(index)
        deltas: dict[K, FileDelta] = {}
        for value, rows in parts.items():
            # Share the set `unpinned`: if one part reads latest object versions, `unchanged` checks these in all parts.
            part = f"{self.part}/{value}".lstrip("/")
            deltas[value] = replace(self, table=self.table.take(rows), has_more=False, gone=0, part=part)
        return deltas

    def _read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        from scripts.helpers.reading.spark import read_files

        self.unpinned.add("read")

        def read(table: pa.Table, schema: Any, options: Mapping[str, Any]) -> DataFrame:
            return read_files(
                spark, self.location, table, asked.format,
                schema=schema, path_column=asked.path_column, options=options,
            )  # fmt: skip

        return self.read_with(spark, asked, read)

    def _read_small(self, spark: SparkSession, asked: Asked, on_changed: OnChanged) -> DataFrame:
        from scripts.helpers.reading.small_files import SmallFiles, check_small_files, try_small_files

        # Check the options before anything is fetched to infer a schema.
        check_small_files(self.location, asked.format, asked.schema or "inferred", on_changed, asked.options)
        small = SmallFiles(spark, self.location, asked.format, asked.path_column, on_changed, self.request_payer)

        def fetch(table: pa.Table) -> None:
            # Fetch these files on the driver first: an error in a task kills its Python worker, which costs seconds.
            try_small_files(self.location, table, request_payer=self.request_payer)

        frame = self.read_with(spark, asked, small, look=fetch, skip_changed=on_changed == "skip")
        self._note_read()
        return frame

    def read_with(
        self,
        spark: SparkSession,
        asked: Asked,
        read_files: ReadFiles,
        *,
        look: Callable[[pa.Table], None] | None = None,
        skip_changed: bool = False,
    ) -> DataFrame:
        """Decide the columns of the files, store them for later batches, and read the files. All Spark reads call this.

        Parameters
        ----------
        read_files
            Function that returns a frame with the rows of some of the files.
        look
            Function that reads some of the files without Spark, and raises the error of the first bad file.
        skip_changed
            Whether `read_files` leaves out files that were overwritten or deleted.
        """
        from scripts.helpers.reading.by_schema import SchemaReader
        from scripts.helpers.reading.search import typed_read_errors
        from scripts.helpers.reading.spark import check_values

        if not hasattr(spark, "createDataFrame"):
            raise InvalidValueError(f"spark is a {type(spark).__name__}. Pass the SparkSession, or use read_pandas.")
        kept, name = self.schemas, schema_name(asked.format, self.part)
        reader = SchemaReader(
            spark, self.location, asked, read_files, kept.of(name) if kept else None, kept.context if kept else None,
            self.s3_client, self.request_payer, skip_changed,
        )  # fmt: skip
        decided: list[tuple[Decision, list[Part]]] = []

        def read(table: pa.Table) -> DataFrame:
            decided.append(reader.decided(table))
            return reader.read(*decided[-1])

        def exhaust(frame: DataFrame, table: pa.Table) -> None:
            if look is not None:
                look(table)
            # Use the columns of the whole batch: a file read alone would get columns of its own, and never fail.
            try:
                with time_limit(spark, 0 if self.readings is None else self.readings.seconds):
                    # With noop, Spark computes all columns of all rows, and stores none.
                    reader.read(*reader.again(*decided[-1], table)).write.format("noop").mode("overwrite").save()
            except TimeoutError as error:
                keys = table.column("key").to_pylist()
                one = keys[0] if len(keys) == 1 else f"one of {len(keys)} files"
                raise FileContentError(str(self.location), one, asked.format, str(error)) from error

        refusal = nullcontext() if kept is None else kept.noting_refusal(self.part)
        with refusal, typed_read_errors(str(self.location)):
            check_values(spark, asked.format, asked.options)
            frame: DataFrame = self._watched(asked.format, read, exhaust)
        # Store the columns here, not in `read`, which also runs for parts of the batch, to find an unreadable file.
        if kept is not None and self.readable.num_rows:
            kept.keep(name, decided[-1][0])
            self._note_read(frame)
        return frame

    def read_pandas(
        self,
        format: str,
        *,
        path_column: str | None = None,
        s3_client: S3Client | None = None,
        on_schema_change: OnSchemaChange | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """Read exactly these files into a DataFrame of pandas, without Spark; see `reading.pandas_files`.

        Parameters
        ----------
        on_schema_change
            As in `read`, but it compares only the names of columns, because pandas chooses types by the values of each
            batch. None, the default, accepts any columns. CSV columns are stored even with None: a text column stays
            text, and a file that has none of the columns of earlier batches is an error, unless this is ``take``.

        Raises
        ------
        SchemaChangedError
            The policy does not allow a change of columns.
        """
        from scripts.helpers.reading.pandas_files import parser_of, read_pandas

        if on_schema_change is not None:
            check_policy(on_schema_change)
        # Check the options before any file is read, otherwise a wrong option would set all files aside.
        parser_of(self.location, format, options)
        # Store the columns under another name than Spark's readers do, which store types that pandas does not have.
        name = f"pandas:{schema_name(format, self.part)}"
        known = None if self.schemas is None else self.schemas.of(name)

        def read(table: pa.Table) -> pd.DataFrame:
            return read_pandas(
                self.location, table, format,
                path_column=path_column, s3_client=s3_client or self.s3_client, request_payer=self.request_payer,
                options=options, kept=None if on_schema_change == "take" else known,
            )  # fmt: skip

        # The third argument, `exhaust`, does nothing, because pandas has already read all files to the end.
        frame: pd.DataFrame = self._watched(format, read, lambda frame, table: None)
        self.fetched.update(self.readable.column("key").to_pylist())
        self._note_read(frame)
        if self.schemas is None or (on_schema_change is None and format != "csv"):
            return frame
        of_files = frame if path_column is None else frame.drop(columns=path_column, errors="ignore")
        decision = Decision(known or {}, known or {})
        if self.readable.num_rows:
            with self.schemas.noting_refusal(self.part):
                decision = self._decided_by_names(of_files, format, known, on_schema_change)
            self.schemas.keep(name, decision)
        if known is None or on_schema_change in (None, "take"):
            return frame
        fitted: pd.DataFrame = fitted_rows(of_files, decision)
        if path_column is not None and path_column in frame:
            fitted[path_column] = frame[path_column]
        return fitted

    def _decided_by_names(
        self, frame: pd.DataFrame, format: str, known: Columns | None, policy: OnSchemaChange | None
    ) -> Decision:
        """Return the columns that `policy` allows, and those to store. A column that was text once stays text."""
        assert self.schemas is not None
        given = Given(str(self.location), self.schemas.context, is_text=True, may_lack=format == "json")
        names = None if known is None else dict.fromkeys(known, ANY)
        decision = decide(given, names, columns_of_rows(frame), policy or "add")
        kinds = {name.lower(): kind for name, kind in (known or {}).items()}
        for name in frame if format == "csv" else ():
            is_text = pd.api.types.is_string_dtype(frame.dtypes[name])
            # pandas may choose text for a column without values, so do not change the stored type of such a column.
            if not is_text or frame[name].notna().any():
                kinds[str(name).lower()] = "string" if is_text else ANY
        kept = {name: kinds.get(name.lower(), ANY) for name in decision.kept}
        return replace(decision, kept=kept, changes=decision.changes if policy else ())

    def _note_read(self, rows: Any = None) -> None:
        """Report to the job that files were read. `rows` is the frame; None if the caller reads the files by itself."""
        if self.schemas is not None:
            self.schemas.note_read(self.part, rows)

    def _watched(self, format: str, read: Callable[[pa.Table], Any], exhaust: Callable[[Any, pa.Table], None]) -> Any:
        """Call `read`. With ``on_unreadable="set_aside"``, set aside files for which `exhaust`, a full read, fails."""
        if self.readings is None:
            return read(self.table)
        return self.readings.read(self.table, format, read, exhaust)

    def unchanged(self, on_changed: OnChanged = "raise", s3_client: S3Client | None = None) -> FileDelta:
        """Check at the source whether these files are still as planned, and return the delta.

        Parameters
        ----------
        on_changed
            ``raise`` raises a ChangedObjectError that names changed files. A file with a known VersionId has changed
            if that version is gone. After `read` or `paths`, which use the latest version, a newer version counts, too.
            ``skip`` returns the delta without changed files: a file that was overwritten is new in the next batch.
        """
        pinned = on_changed == "raise" and not self.unpinned
        client = s3_client or self.s3_client
        found = check_unchanged(
            self.location, self.readable, client, on_changed, request_payer=self.request_payer, pinned=pinned
        )
        return replace(self, table=found)

    def check_unread(self, s3_client: S3Client | None) -> None:
        """Raise ChangedObjectError if a file changed. Send no request if `read_pandas` fetched all files by ETag."""
        if self.unpinned or not self.fetched.issuperset(self.readable.column("key").to_pylist()):
            self.unchanged("raise", s3_client)
