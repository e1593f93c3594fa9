"""The methods that read a batch of files with Spark. They have the same arguments for every kind of batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession, T
from scripts.helpers.schemas.policy import OnSchemaChange

if TYPE_CHECKING:
    from scripts.helpers.reading.by_schema import Asked
    from scripts.helpers.reading.small_files import OnChanged


class Readable:
    """Files that Spark's readers can read."""

    def read(
        self,
        spark: SparkSession,
        format: str,
        *,
        schema: T.StructType | str | None = None,
        path_column: str | None = None,
        on_schema_change: OnSchemaChange | None = None,
        rescue: bool | str = False,
        **options: Any,
    ) -> DataFrame:
        """Read exactly these files with Spark's own reader; see `reading.read_files`.

        It reads the latest version of each file. For thousands of small text or JSON objects `read_small`
        is several times as fast.

        In a job, the columns that were read are stored with the watermark, and the next batch is read with them. A CSV
        or JSON value that does not fit the type of its column stops the Spark job with a MisfitError: see `rescue`.

        Parameters
        ----------
        schema
            StructType or DDL text, which replaces the stored columns.
        on_schema_change
            What to do if columns differ from the stored ones, or from `schema` if it is given. ``add`` reads and stores
            new columns and wider types; ``warn`` leaves new columns out, with a WARNING; ``raise`` raises an error;
            ``take`` reads the columns of the files as they are, and stores them. None is ``add`` for CSV and JSON, and
            ``take`` for formats with types of their own. `docs/files.md` lists the effect on each kind of change.
        rescue
            True, or the name of a column that gets values that do not fit, and columns that are left out, as JSON.
        **options
            Reader options. CSV columns with ``header`` are matched by name, or by position with ``enforceSchema``.
            With ``mode`` Spark decides what to do with values that do not fit.

        Raises
        ------
        SchemaChangedError
            The policy does not allow a change of columns. Nothing was read.
        MisfitError
            A JSON record cannot be parsed. Spark jobs raise it inside Spark's errors, `job.write` raises it directly.
        InvalidValueError
            Options cannot be combined.
        """
        asked = self._asked(format, on_schema_change, rescue, schema=schema, path_column=path_column, options=options)
        return self._read(spark, asked)

    def _asked(self, *given: Any, **others: Any) -> Asked:
        from scripts.helpers.reading.by_schema import Asked

        return Asked.of(*given, **others)

    def _read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        raise NotImplementedError


class ReadableWhenSmall(Readable):
    """Files that Spark's readers can read, or that executors can fetch with one request per file."""

    def read_small(
        self,
        spark: SparkSession,
        format: str,
        schema: T.StructType | str | None = None,
        *,
        path_column: str | None = None,
        on_changed: OnChanged = "raise",
        on_schema_change: OnSchemaChange | None = None,
        rescue: bool | str = False,
        **options: Any,
    ) -> DataFrame:
        """Read many small objects, fetched by the executors; see `small_files.SmallFiles`.

        In a job, set `on_changed` in `new_files` and keep the default here. With ``skip`` here, an overwritten file is
        skipped. Its rows are lost if its old content is restored before the commit, which counts it as taken.

        As in `read`, schemas are stored, values that do not fit stop the Spark job or are rescued, and the same errors
        are raised. To infer types, or to find columns that are not in `schema`, each object is fetched twice. With
        `schema` and without `on_schema_change`, JSON is fetched once. For CSV with ``header`` the driver fetches the
        start of each file, unless ``enforceSchema`` is given. Columns of folders are texts if neither `schema` nor an
        earlier batch has their types.
        """
        asked = self._asked(format, on_schema_change, rescue, schema=schema, path_column=path_column, options=options)
        return self._read_small(spark, asked, on_changed)

    def _read_small(self, spark: SparkSession, asked: Asked, on_changed: OnChanged) -> DataFrame:
        raise NotImplementedError
