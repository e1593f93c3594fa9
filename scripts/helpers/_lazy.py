"""Import the public names of packages, and optional dependencies, only when they are first used (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["Column", "DataFrame", "F", "S3Client", "SparkSession", "T", "lazy", "pa", "pc", "pd", "pq"]


def lazy(
    room: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's `__getattr__`, `__dir__`, `__all__`. Under TYPE_CHECKING the package must import the names.

    Parameters
    ----------
    room
        The package's ``__name__``.
    names
        The names to export, by module: "sink" is a module in the package, ".job" is one next to the package.
    """
    homes = {name: module for module, listed in names.items() for name in listed}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(f".{homes[name]}", room), name)

    def __dir__() -> list[str]:  # noqa: N807
        return sorted(homes)

    return __getattr__, __dir__, __dir__()


class _LazyModule(ModuleType):
    """A stand-in that imports its module when one of its attributes is first read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the module's name: functions that Spark sends to its workers may refer to this stand-in."""
        return import_module, (self.__name__,)


if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812
else:
    # These are used in annotations only, which are never evaluated.
    S3Client = Column = DataFrame = SparkSession = Any
    pa, pc, pq = _LazyModule("pyarrow"), _LazyModule("pyarrow.compute"), _LazyModule("pyarrow.parquet")
    pd, F, T = _LazyModule("pandas"), _LazyModule("pyspark.sql.functions"), _LazyModule("pyspark.sql.types")
