"""`DeltaTable`: read what was committed to a Delta table since a version, with Spark or without it.

Spark can read the rows appended between two versions only as a stream. So this module finds in the log the files that
the commits of a batch added, and reads these files as Delta does. It reads Delta's change feed with Delta's own reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, pa, pc, pq
from scripts.helpers.errors import SourceError, TargetError
from scripts.helpers.sinks.connectors import (
    actions_of,
    address_of,
    check_delta_on_spark,
    check_delta_path,
    check_installed,
    delta_log_on_spark,
    delta_schema,
    deltalake_place,
    is_of_deltalake,
    rows_at,
)
from scripts.helpers.sinks.places import Place, place_of
from scripts.helpers.spark.java_errors import is_spark_error, names_java_class, reason_of
from scripts.helpers.spark.jvm import frame_of_java, java_frame, java_of, without_code
from scripts.helpers.spark.settings import check_all_is_read
from scripts.helpers.tables.frames import check_no_feed_columns, ordered_changes, whole_rows, with_feed_columns
from scripts.helpers.tables.sources import Commit, Kind, TableHead, TableHistory, TableSource
from scripts.helpers.tables.spans import FEED_COLUMNS, TableSpan

if TYPE_CHECKING:
    from scripts.helpers.tables.frames import Returns


# --- delta log ------------------------------------------------------------------------------------
# The content of a commit file in Delta's log: which files a version added and removed.
#
# A commit file has one action on each line. ``dataChange: false`` marks rows that only moved, as by ``OPTIMIZE``.

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
UNNAMED = "UNKNOWN"
"""The operation of a commit whose writer named none."""


@dataclass(frozen=True)
class DeltaCommit:
    """One version of a Delta table.

    Attributes
    ----------
    version, operation, at
        The number of the version, the name of the operation, and the time, as in `Commit`.
    added
        The ``add`` actions that change data, as they are in the log.
    removed
        Paths of files whose rows were removed.
    moved
        Paths of files whose rows were moved to other files.
    feed
        Paths of change files, which list the changed rows; empty if only ``added`` and ``removed`` show the changes.
    """

    version: int
    operation: str
    at: datetime | None
    added: Sequence[Mapping[str, Any]]
    removed: frozenset[str]
    moved: frozenset[str]
    feed: frozenset[str]

    @property
    def kind(self) -> Kind:
        """The effect of the commit on the table's rows, such as ``append``; see `Commit.kind`."""
        if self.operation == "RESTORE":
            return "rollback"
        if self.removed:
            return "overwrite"
        return "append" if self.added else "nothing"

    @property
    def told(self) -> Commit:
        """The commit as a `Commit`, which is the same for all formats."""
        return Commit(self.version, self.kind, self.operation, self.at)

    @property
    def paths(self) -> frozenset[str]:
        """Paths of the files that were added."""
        return frozenset(str(action["path"]) for action in self.added)


def read_commit(version: int, text: str) -> DeltaCommit:
    """Parse the file of a commit.

    Examples
    --------
    >>> read_commit(3, '{"add":{"path":"a","dataChange":true}}').kind
    'append'
    >>> read_commit(4, '{"remove":{"path":"a","dataChange":false}}').kind
    'nothing'
    """
    found: dict[str, list[dict[str, Any]]] = {"add": [], "remove": [], "cdc": [], "commitInfo": []}
    for action in actions_of(text):
        for name, content in action.items():
            if name in found and isinstance(content, dict):
                found[name].append(content)
    info = found["commitInfo"][0] if found["commitInfo"] else {}
    return DeltaCommit(
        version,
        str(info.get("operation") or UNNAMED),
        _moment(info),
        tuple(content for content in found["add"] if _changes_data(content)),
        frozenset(str(content["path"]) for content in found["remove"] if _changes_data(content)),
        frozenset(str(content["path"]) for content in found["remove"] if not _changes_data(content)),
        frozenset(str(content["path"]) for content in found["cdc"]),
    )


def taken_by(commits: Iterable[DeltaCommit], after: int, until: int) -> list[Mapping[str, Any]]:
    """Return the ``add`` actions of those commits after `after`, up to `until`, that only appended rows."""
    taken = (commit for commit in commits if after < commit.version <= until and commit.kind == "append")
    return [action for commit in taken for action in commit.added]


def possibly_vacuumed_files(commits: Sequence[DeltaCommit], after: int | None, until: int, *, feed: bool) -> set[str]:
    """Return the paths of files that a span needs, but that a vacuum may have deleted: the newest version lacks them.

    Parameters
    ----------
    commits
        The commits of the span, and all later ones.
    after
        The version before the span; None for the whole table as of `until`.
    """
    if after is None:
        later = [commit for commit in commits if commit.version > until]
        # Leave out files that `later` commits both added and removed: the table did not have them at version `until`.
        return _paths_taken_out(later).difference(*(commit.paths for commit in later))
    left = _paths_taken_out(commits)
    inside = [commit for commit in commits if after < commit.version <= until]
    if not feed:
        return {str(action["path"]) for action in taken_by(inside, after, until)} & left
    needed: set[str] = set()
    for commit in inside:
        # Include every change file: no version of the table lists it, so a vacuum may have deleted it by age alone.
        needed |= commit.feed if commit.feed else (commit.paths & left) | commit.removed
    return needed


def _paths_taken_out(commits: Iterable[DeltaCommit]) -> set[str]:
    """Return the paths of files that commits removed from the table, even if their rows are now in other files."""
    return {path for commit in commits for path in commit.removed | commit.moved}


def _changes_data(action: Mapping[str, Any]) -> bool:
    # The protocol requires `dataChange` in every action. If it is missing, assume a change, to miss no row.
    return action.get("dataChange") is not False


def _moment(info: Mapping[str, Any]) -> datetime | None:
    milliseconds = info.get("inCommitTimestamp", info.get("timestamp"))
    return EPOCH + timedelta(milliseconds=milliseconds) if isinstance(milliseconds, int) else None


# --- delta ----------------------------------------------------------------------------------------

GONE_IN_SPARK = ("FileNotFoundException", "FILE_NOT_EXIST", "PATH_NOT_FOUND", "NoSuchKey", "DELTA_FILE_NOT_FOUND")
READERS = 16
"""Files to read concurrently without Spark: each read mostly waits for storage."""
READABLE = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping"}
"""Table features that do not keep pyarrow from reading the Parquet files. The last two are checked further."""


class DeltaTable(TableSource):
    """A Delta table at a path, for `IncrementalJob.rows_since` to read what was committed since a version.

    Parameters
    ----------
    path
        The folder of the table: ``s3://bucket/prefix/`` or a directory.
    spark
        The session. Without it, `deltalake` reads the table, and rows are returned in memory.
    s3_client
        A boto3 client. `deltalake` uses its login and endpoint, too.
    returns
        Without Spark: ``"pandas"``, the default, with columns of Arrow types, or ``"arrow"``.

    Raises
    ------
    InvalidValueError
        The path is invalid; `returns` is unknown, or is given together with `spark`.
    NoJvmError
        The session is one of Spark Connect.
    """

    format, named_by = "delta", "path"
    _engine: _SparkEngine | _ArrowEngine

    def __init__(
        self,
        path: str,
        *,
        spark: SparkSession | None = None,
        s3_client: S3Client | None = None,
        returns: Returns | None = None,
    ) -> None:
        check_delta_path(path, spark)
        place = place_of(path.rstrip("/"), spark, s3_client)
        super().__init__(place.uri(""), returns, with_spark=spark is not None)
        self._engine = _SparkEngine(self.name, spark) if spark is not None else _ArrowEngine(place)
        self._read: dict[int, DeltaCommit] = {}

    def folder(self) -> str:
        return self.name

    def head(self) -> TableHead:
        # Forget the commits that were read: they never change, but the folder may have another table by now.
        self._read = {}
        with self._typed():
            self._engine.check()
            version, uuid = self._engine.newest()
            last = self._engine.commits([version])
        # Store the folder with s3://, because s3a:// and s3n:// are the same place.
        scheme, separator, rest = self.name.partition("://")
        folder = f"s3://{rest}" if separator and scheme in ("s3a", "s3n") else self.name
        identity = {"folder": folder, "uuid": uuid}
        return TableHead(identity, version, last[0].at if last else None, version, version)

    def history(self, after: int, at: datetime | None, head: TableHead) -> TableHistory:
        newest = head.newest
        assert newest is not None
        if newest < after:
            return TableHistory(lost="rollback")
        commits = self._commits(after, newest)
        # Compare the times, because a table restored from a copy may have other commits under the same numbers.
        first = commits[0] if commits and commits[0].version == after else None
        if first is not None and at is not None and first.at is not None and first.at != at:
            return TableHistory(lost="rollback")
        since = [commit for commit in commits if commit.version > after]
        if len(since) != newest - after:
            return TableHistory(lost="expired")
        return TableHistory([commit.told for commit in since])

    def check_feed(self, span: TableSpan) -> None:
        if span.is_empty or span.whole:
            return
        try:
            self._engine.check_feed(span)
        except Exception as error:
            if not self._engine.is_of_connector(error):
                raise
            # "incompatible" means that a commit renamed, dropped or retyped a column: Delta reads no feed across it.
            on = "" if "incompatible" in str(error).lower() else "Set delta.enableChangeDataFeed=true on the table. "
            raise SourceError(
                self.name,
                f"its changes cannot be read as rows: {reason_of(error)} {on}Begin after that version (start_from, or "
                "`watermarks set`), or give changes='append'.",
                reason="change_feed",
            ) from error

    def is_lost(self, span: TableSpan) -> bool:
        assert span.until is not None
        with self._typed():
            newest = self._engine.newest()[0]
        # If the table has no version `until`, it was rolled back by hand, and the span is lost.
        if newest < span.until:
            return True
        after = span.until if span.whole else (span.after or 0)
        commits = self._commits(after, newest)
        found = {commit.version for commit in commits}
        if not span.whole and not found >= set(range(after + 1, span.until + 1)):
            return True
        doubtful = possibly_vacuumed_files(commits, None if span.whole else after, span.until, feed=span.is_feed)
        with self._typed():
            return bool(self._engine.missing(sorted(doubtful)))

    # --- internals of DeltaTable ----------------------------------------------------------------

    def _commits(self, first: int, last: int) -> list[DeltaCommit]:
        """Return the commits of the versions `first` to `last`, without those whose file in the log is gone."""
        versions = range(first, last + 1)
        with self._typed():
            found = self._engine.commits([version for version in versions if version not in self._read])
        self._read |= {commit.version: commit for commit in found}
        return [self._read[version] for version in versions if version in self._read]

    def _committed(self, span: TableSpan) -> Any:
        if span.is_feed:
            return self._engine.feed(span)
        assert span.after is not None
        assert span.until is not None
        taken = taken_by(self._commits(span.after, span.until), span.after, span.until)
        return self._engine.appended(span, taken)


class _SparkEngine:
    """Reads with Delta's connector for Spark.

    `commits` omits the versions whose commit file does not exist. `missing` returns the files that do not exist.
    """

    def __init__(self, uri: str, spark: SparkSession) -> None:
        check_all_is_read(spark)
        self._uri, self._spark = uri, spark

    def check(self) -> None:
        check_delta_on_spark(self._spark)

    def newest(self) -> tuple[int, str]:
        snapshot = self._log()._2()
        version = int(snapshot.version())
        if version < 0:
            raise SourceError(self._uri, "there is no Delta table. Check the path.")
        return version, str(snapshot.metadata().id())

    def commits(self, versions: Sequence[int]) -> list[DeltaCommit]:
        log = self._log()._1()
        settings, folder = log.newDeltaHadoopConf(), log.logPath()
        found = []
        for version in versions:
            path = self._path(folder, f"{version:020d}.json")
            try:
                text = log.store().read(path, settings).mkString("\n")
            except Exception as error:
                if names_java_class(error, "FileNotFoundException", "NoSuchKey"):
                    continue
                raise
            found.append(read_commit(version, str(text)))
        return found

    def missing(self, paths: Sequence[str]) -> list[str]:
        log = self._log()._1()
        folder, settings, java = log.dataPath(), log.newDeltaHadoopConf(), java_of(self._spark)
        found = []
        for path in paths:
            # Resolve the path as Delta does: it is a URI, relative to the table's folder or absolute.
            file = java.org.apache.hadoop.fs.Path(folder, java.org.apache.hadoop.fs.Path(java.java.net.URI(path)))
            if not file.getFileSystem(settings).exists(file):
                found.append(path)
        return found

    def whole(self, span: TableSpan) -> DataFrame:
        return whole_rows(self._spark, "delta", self._uri, span, self._uri)

    def appended(self, span: TableSpan, taken: Sequence[Mapping[str, Any]]) -> DataFrame:
        java, found = java_of(self._spark), self._log()
        log, snapshot = found._1(), found._2()
        if int(snapshot.version()) != span.until:
            # Read with the columns and partitions that the table had at the end of the span: they may have changed.
            plan = java_frame(rows_at(self._spark, "delta", self._uri, span.until)).queryExecution().analyzed()
            snapshot = plan.collectLeaves().head().relation().location().getSnapshot()
        files = java.java.util.ArrayList()
        for action in taken:
            files.add(java.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps({"add": action})))
        sequence = java.scala.collection.JavaConverters.asScalaBufferConverter(files).asScala().toSeq()
        # Make the frame as Delta's own stream does: with partition values, deletion vectors and mapped columns.
        frame = log.createDataFrame(snapshot, sequence, False, java.scala.Option.apply(None))
        return without_code(frame_of_java(frame, self._spark), self._uri)

    def feed(self, span: TableSpan) -> DataFrame:
        assert span.after is not None
        reader = self._spark.read.format("delta").option("readChangeFeed", "true")
        found = (
            reader.option("startingVersion", span.after + 1).option("endingVersion", str(span.until)).load(self._uri)
        )
        check_no_feed_columns(without_code(found, self._uri).columns, self._uri, known=FEED_COLUMNS[:3])
        return ordered_changes(found)

    def check_feed(self, span: TableSpan) -> None:
        # Plan the query without running it: planning checks whether each version has recorded its changes.
        java_frame(self.feed(span)).queryExecution().executedPlan()

    def is_of_connector(self, error: Exception) -> bool:
        return is_spark_error(error)

    def is_gone(self, error: Exception) -> bool:
        if names_java_class(error, "Cannot time travel Delta table", "DELTA_VERSION_NOT_FOUND"):
            return True
        # The error must name this table's path: while a sink stages the rows, the missing file may be the sink's.
        return names_java_class(error, *GONE_IN_SPARK) and names_java_class(error, self._uri.partition("://")[2])

    def _path(self, folder: Any, name: str) -> Any:
        return java_of(self._spark).org.apache.hadoop.fs.Path(folder, name)

    def _log(self) -> Any:
        return delta_log_on_spark(self._uri, self._spark)


class _ArrowEngine:
    """Reads with the package `deltalake`, and appended files with pyarrow."""

    def __init__(self, place: Place) -> None:
        self._place, (self._uri, self._options) = place, deltalake_place(place)

    def check(self) -> None:
        check_installed("delta", ["deltalake"])

    def newest(self) -> tuple[int, str]:
        table = self._table()
        return int(table.version()), str(table.metadata().id)

    def commits(self, versions: Sequence[int]) -> list[DeltaCommit]:
        found = []
        for version in versions:
            data = self._bytes(f"_delta_log/{version:020d}.json")
            if data is not None:
                found.append(read_commit(version, data.decode()))
        return found

    def missing(self, paths: Sequence[str]) -> list[str]:
        import pyarrow.fs as pafs
        from deltalake.fs import DeltaStorageHandler

        files = pafs.PyFileSystem(DeltaStorageHandler(self._uri, self._options))
        found = files.get_file_info(list(map(unquote, paths))) if paths else []
        return [path for path, info in zip(paths, found, strict=True) if info.type == pafs.FileType.NotFound]

    def whole(self, span: TableSpan) -> pa.Table:
        # For an empty span, return only the columns. Use those of the newest version: the span's version may be gone.
        table = self._table(None if span.is_empty else span.until)
        schema = delta_schema(table)
        found = schema.empty_table() if span.is_empty else self._scanned(table, schema)
        return with_feed_columns(found, span, self._uri) if span.is_feed else found

    def appended(self, span: TableSpan, taken: Sequence[Mapping[str, Any]]) -> pa.Table:
        table = self._table(span.until)
        self._check_readable(table, taken)
        schema, columns = delta_schema(table), list(table.metadata().partition_columns)

        def read(action: Mapping[str, Any]) -> pa.Table:
            # Decode the file name, which the log stores as a URI, such as `day=a%20b/part-0.parquet`.
            file = unquote(str(action["path"]))
            data = self._bytes(file)
            if data is None:
                raise FileNotFoundError(file)
            return _rows_of_file(data, schema, columns, action.get("partitionValues") or {})

        # Do not use the file system of `deltalake`: while it waits, it blocks all other Python threads, such as the
        # heartbeat of the lease.
        with ThreadPoolExecutor(READERS) as threads:
            return pa.concat_tables([schema.empty_table(), *threads.map(read, taken)])

    def feed(self, span: TableSpan) -> pa.Table:
        table = self._table(span.until)
        schema = delta_schema(table)
        return with_feed_columns(self._changes(span).read_all(), span, self._uri, schema)

    def check_feed(self, span: TableSpan) -> None:
        self._changes(span).close()

    def _changes(self, span: TableSpan) -> Any:
        assert span.after is not None
        return pa.RecordBatchReader.from_stream(self._table().load_cdf(span.after + 1, span.until))

    def is_of_connector(self, error: Exception) -> bool:
        return is_of_deltalake(error)

    def is_gone(self, error: Exception) -> bool:
        return isinstance(error, FileNotFoundError) or "not found" in str(error) or "No such file" in str(error)

    def _table(self, version: int | None = None) -> Any:
        from deltalake import DeltaTable as Table
        from deltalake.exceptions import TableNotFoundError

        try:
            return Table(address_of(self._uri), version=version, storage_options=self._options)
        except TableNotFoundError as error:
            raise SourceError(self._uri, "there is no Delta table. Check the path.") from error

    def _scanned(self, table: Any, schema: pa.Schema) -> pa.Table:
        # Use `scan`, which reads deletion vectors. Releases before 1.6 lack it, and cannot read such tables.
        if hasattr(table, "scan"):
            return pa.table(table.scan()).select(schema.names).cast(schema)
        return table.to_pyarrow_table().select(schema.names).cast(schema)

    def _bytes(self, file: str) -> bytes | None:
        """Return the content of a file of the table; None if there is no such file."""
        try:
            return self._place.read(file)
        except TargetError as error:
            raise SourceError(self._uri, f"{error} Check the rights there.") from error

    def _check_readable(self, table: Any, taken: Sequence[Mapping[str, Any]]) -> None:
        """Raise SourceError if pyarrow would read wrong rows from the files."""
        features = set(table.protocol().reader_features or ())
        settings = table.metadata().configuration
        found = sorted(features - READABLE)
        if str(settings.get("delta.columnMapping.mode", "none")).lower() != "none":
            found.append("columnMapping")
        if any(action.get("deletionVector") for action in taken):
            found.append("deletionVectors")
        if any("://" in str(action["path"]) for action in taken):
            found.append("files outside its folder, as a shallow clone has them")
        if found:
            raise SourceError(
                self._uri, f"appended rows of a table with {', '.join(found)} are read by Spark only. Give spark=."
            )


def _rows_of_file(
    data: bytes, schema: pa.Schema, partition_columns: Sequence[str], values: Mapping[str, str | None]
) -> pa.Table:
    """Return the rows of a file with all columns of the table: partition columns too, and NULL where it lacks one."""
    # Read INT96, in which Spark may write times, in microseconds: nanoseconds end in the year 2262.
    rows = pq.read_table(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
    columns = []
    for field in schema:
        if field.name in partition_columns:
            columns.append(pa.repeat(_value(values.get(field.name), field.type), rows.num_rows))
        elif field.name in rows.column_names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition column from its text in the log."""
    # Treat an empty text as NULL, too: the protocol allows both.
    if text is None or text == "":
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        naive = pa.scalar(text.removesuffix("Z"), pa.string()).cast(pa.timestamp(kind.unit))
        return pc.assume_timezone(naive, kind.tz)
    return pa.scalar(text, pa.string()).cast(kind)
