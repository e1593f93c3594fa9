# ruff: noqa: N802
"""Frames and their transforms."""

from pyspark.sql import functions


class DynamicFrame:
    def __init__(self, df, glue_ctx, name=""):
        self.df, self.glue_ctx, self.name = df, glue_ctx, name

    @classmethod
    def fromDF(cls, dataframe, glue_ctx, name):
        return cls(dataframe, glue_ctx, name)

    def toDF(self, options=None):
        return self.df

    def count(self):
        return self.df.count()

    def apply_mapping(self, mappings, **_):
        types = {"long": "bigint"}
        columns = [
            functions.expr(f"try_cast(`{source}` AS {types.get(kind, kind)})").alias(target)
            for source, _, target, kind in mappings
            if source in self.df.columns
        ]
        return DynamicFrame(self.df.select(columns), self.glue_ctx, self.name)
