"""How a batch of files is read with Spark: the same arguments whatever kind of batch it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession, T
from scripts.helpers.schemas.policy import OnSchemaChange

if TYPE_CHECKING:
    from scripts.helpers.reading.by_schema import Asked
    from scripts.helpers.reading.small_files import OnChanged


class Readable:
    """Files that Spark's readers read."""

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

        It reads the latest version of each. For thousands of small text or JSON objects `read_small`
        is several times as fast.

        In a job the columns that were read are kept with the watermark, and the next batch is read with them. A value
        of CSV or JSON that its column's type cannot hold stops the Spark job with a MisfitError: see `rescue`.

        Parameters
        ----------
        schema
            StructType or DDL text, in place of what was kept.
        on_schema_change
            What becomes of columns that are not what was kept, or with this argument what `schema` says. ``add`` reads
            new columns and wider types, and keeps them; ``warn`` leaves new columns out, with a WARNING; ``raise``
            raises; ``take`` takes the files as they are, and keeps that. None is ``add`` for CSV and JSON, and
            ``take`` for formats with types of their own. See `docs/files.md` for what is done about which change.
        rescue
            True, or the name of a column: values that do not fit, and columns that are left out, go there as JSON.
        **options
            Reader options. Columns of CSV with ``header`` are found by their names, by position with ``enforceSchema``.
            With ``mode`` Spark decides what becomes of values that do not fit.

        Raises
        ------
        SchemaChangedError
            The policy does not let a change pass. Nothing was read.
        MisfitError
            A record of JSON cannot be parsed. Spark's jobs raise it inside its own errors; `job.write` as it is.
        InvalidValueError
            Options that do not go together.
        """
        asked = self._asked(format, on_schema_change, rescue, schema=schema, path_column=path_column, options=options)
        return self._read(spark, asked)

    def _asked(self, *given: Any, **others: Any) -> Asked:
        from scripts.helpers.reading.by_schema import Asked

        return Asked.of(*given, **others)

    def _read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        raise NotImplementedError


class ReadableWhenSmall(Readable):
    """Files that are read one request each as well."""

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

        In a job leave `on_changed` as it is, and use that of `new_files`: what is left out here would be
        committed as taken, if its old bytes are back before the commit.

        Schemas are kept, and values that do not fit stop the Spark job or are rescued, as in `read`, whose errors
        there are here, too. To infer types, or to look for columns that are not in `schema`, each object is fetched
        twice; with `schema` and without `on_schema_change` JSON is fetched once. For CSV with ``header`` the driver
        fetches the start of each file, unless ``enforceSchema`` is given. Columns of folders that neither `schema` nor
        an earlier batch gives a type are texts.
        """
        asked = self._asked(format, on_schema_change, rescue, schema=schema, path_column=path_column, options=options)
        return self._read_small(spark, asked, on_changed)

    def _read_small(self, spark: SparkSession, asked: Asked, on_changed: OnChanged) -> DataFrame:
        raise NotImplementedError
