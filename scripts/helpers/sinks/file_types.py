"""Whether rows have the types of the files that lie at a target already: readers take all files for one table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import TargetSchemaError
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.staged_rows import arrow_types, spark_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

logger = logging.getLogger(__name__)


def check_types(target: Place, name: str, df: Any) -> None:
    """Raise TargetSchemaError if a column has another type than in a file of the target. New columns are welcome.

    Parameters
    ----------
    name
        A Parquet file of the target.
    df
        The rows, a DataFrame of Spark or of pandas.
    """
    try:
        there = _types_there(target, name, spark_of(df))
    except Exception as error:
        # It may be gone: a job that compacts files may be at work there. Its readers say so, should it be broken.
        logger.warning("event=types_not_compared target=%s file=%s error=%s", target.uri(""), name, error)
        return
    changed = {
        column: (kind, there[column]) for column, kind in types_of(df).items() if there.get(column, kind) != kind
    }
    if changed:
        raise TargetSchemaError(target.uri(""), (), (), changed)


def types_of(df: Any) -> dict[str, str]:
    """Return the type of each column of a frame; of Spark that of each field within it, too, by its path."""
    if spark_of(df) is not None:
        return dict(_of_spark("", df.schema))
    import pyarrow as pa

    return _of_arrow(pa.Schema.from_pandas(df, preserve_index=False))


def _types_there(target: Place, name: str, spark: Any) -> dict[str, str]:
    if spark is not None:
        return dict(_of_spark("", spark.read.parquet(target.uri(name)).schema))
    import pyarrow.parquet as pq

    data = target.read(name)
    if data is None:
        raise FileNotFoundError(name)
    return _of_arrow(pq.read_schema(BytesIO(data)))


def _of_arrow(schema: pa.Schema) -> dict[str, str]:
    # A column without any value has no type of its own.
    return {column: kind for column, kind in arrow_types(schema).items() if kind != "null"}


def _of_spark(path: str, kind: DataType) -> Iterator[tuple[str, str]]:
    """Walk through a type of Spark. Whether a value may be NULL is left out: readers take both."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _of_spark(f"{path}.{field.name}" if path else field.name, field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _of_spark(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType):
        yield from _of_spark(f"{path}{{key}}", kind.keyType)
        yield from _of_spark(f"{path}{{value}}", kind.valueType)
    else:
        yield path, kind.simpleString()
