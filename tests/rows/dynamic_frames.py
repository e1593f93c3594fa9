"""A stand-in for Glue's DynamicFrame, for machines without Glue's libraries."""

from __future__ import annotations

from typing import Any


class DynamicFrame:
    """The part of Glue's frame that sources use: it has no columns and no `where` of its own."""

    def __init__(self, df: Any) -> None:
        self._df = df

    def toDF(self) -> Any:  # noqa: N802
        return self._df
