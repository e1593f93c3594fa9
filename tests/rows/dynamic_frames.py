"""A stand-in for Glue's DynamicFrame where Glue's libraries are not there."""

from __future__ import annotations

from typing import Any


class DynamicFrame:
    """Glue's frame as far as sources use it: it has no columns and no `where` of its own."""

    def __init__(self, df: Any) -> None:
        self._df = df

    def toDF(self) -> Any:  # noqa: N802
        return self._df
