"""Glue's transforms: classes with `apply`, which call the methods of `DynamicFrame`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from scripts.helpers._lazy import F, T
from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.choices import typed_analysis
from scripts.helpers.glue.fields import changed, leaves
from scripts.helpers.glue.frames import DynamicFrame, DynamicFrameCollection, Named
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.spark.inferred import inferred_schema


class GlueTransform:
    """A transform of Glue: a class whose `apply` calls a method of its first argument, a frame or a collection."""

    method, first = "", "frame"
    order: ClassVar[Sequence[str]] = ()
    """The arguments after the first, by Glue's names, in Glue's order; empty if the method has the same order."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """The method's argument for each argument that Glue names differently: ``{"name": "root_table_name"}``."""

    @classmethod
    def apply(cls, *args: Any, **options: Any) -> Any:
        """Call the method of the frame or of the collection."""
        of, *further = args or (options.pop(cls.first),)
        options |= zip(cls.order, further, strict=False)
        named = {cls.renamed.get(name, name): given for name, given in options.items()}
        return getattr(of, cls.method)(*further[len(cls.order) :], **named)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call `apply`."""
        return self.apply(*args, **options)


class ApplyMapping(GlueTransform):
    """``ApplyMapping.apply(frame=…, mappings=…)`` calls `DynamicFrame.apply_mapping`."""

    method = "apply_mapping"


class SelectFields(GlueTransform):
    """``SelectFields.apply(frame=…, paths=…)`` calls `DynamicFrame.select_fields`."""

    method = "select_fields"


class DropFields(GlueTransform):
    """``DropFields.apply(frame=…, paths=…)`` calls `DynamicFrame.drop_fields`."""

    method = "drop_fields"


class SplitFields(GlueTransform):
    """``SplitFields.apply(frame=…, paths=…, name1=…, name2=…)`` calls `DynamicFrame.split_fields`."""

    method = "split_fields"


class SplitRows(GlueTransform):
    """``SplitRows.apply(frame=…, comparison_dict=…, name1=…, name2=…)`` calls `DynamicFrame.split_rows`."""

    method = "split_rows"


class RenameField(GlueTransform):
    """``RenameField.apply(frame=…, old_name=…, new_name=…)`` calls `DynamicFrame.rename_field`."""

    method = "rename_field"
    renamed: ClassVar = {"old_name": "oldName", "new_name": "newName"}


class ResolveChoice(GlueTransform):
    """``ResolveChoice.apply(frame=…, specs=…)`` calls `DynamicFrame.resolveChoice`."""

    method = "resolveChoice"


class SelectFromCollection(GlueTransform):
    """``SelectFromCollection.apply(dfc=…, key=…)`` calls `DynamicFrameCollection.select`."""

    method, first = "select", "dfc"


class MapToCollection(GlueTransform):
    """``MapToCollection.apply(dfc=…, callable=…)`` calls `DynamicFrameCollection.map`."""

    method, first = "map", "dfc"


class FlatMap(GlueTransform):
    """``FlatMap.apply(dfc=…, BaseTransform=…, frame_name=…)`` applies a transform to each frame of a collection."""

    @classmethod
    def apply(
        cls, dfc: DynamicFrameCollection, BaseTransform: Any, frame_name: str, transformation_ctx: str = "", **base: Any
    ) -> DynamicFrameCollection:
        """Apply a transform to each frame. `frame_name` is the argument of the transform that receives the frame."""

        def apply_one(frame: DynamicFrame, context: str) -> Any:
            return BaseTransform.apply(**base, **{frame_name: frame, "transformation_ctx": context})

        return dfc.flatmap(apply_one, transformation_ctx)


class Filter(GlueTransform):
    """``Filter.apply(frame=…, f=…)`` calls `DynamicFrame.filter`."""

    method = "filter"


class Map(GlueTransform):
    """``Map.apply(frame=…, f=…)`` calls `DynamicFrame.map`."""

    method = "map"


class Union(GlueTransform):
    """``Union.apply(frame1, frame2)`` calls `DynamicFrame.union`."""

    method, first = "union", "frame1"
    renamed: ClassVar = {"frame2": "other_frame"}


class Repartition(GlueTransform):
    """``Repartition.apply(frame=…, num_partitions=…)`` calls `DynamicFrame.repartition`."""

    method = "repartition"


class Coalesce(GlueTransform):
    """``Coalesce.apply(frame=…, num_partitions=…)`` calls `DynamicFrame.coalesce`."""

    method = "coalesce"


class Join(GlueTransform):
    """``Join.apply(frame1, frame2, keys1, keys2)`` calls `DynamicFrame.join`."""

    method, first, order = "join", "frame1", ("frame2", "keys1", "keys2")
    renamed: ClassVar = {"keys1": "paths1", "keys2": "paths2"}


class DropNullFields(GlueTransform):
    """``DropNullFields.apply(frame=…)`` drops the fields without values."""

    @classmethod
    @typed_analysis("frame")
    def apply(cls, frame: DynamicFrame, *args: Any, **options: Any) -> DynamicFrame:
        """Drop fields of the NULL type, and text fields that are NULL in all rows. This reads the rows.

        Spark's reader makes a JSON field without values a text field. If there are no rows, all text fields are kept.
        """
        df = frame.toDF()
        gone = [steps for steps, kind in leaves(df.schema) if isinstance(kind, T.NullType)]
        texts = [steps for steps, kind in leaves(df.schema) if isinstance(kind, T.StringType)]
        if texts:
            rows = F.struct(*(SPARK.quote(name) for name in dict.fromkeys(steps[0] for steps in texts)))
            # Find empty fields through JSON, which omits NULL fields at any depth.
            found = dict(leaves(inferred_schema(df.select(F.to_json(rows)), "json", {})))
            gone += [steps for steps in texts if found and steps not in found]
        for steps in gone:
            df = changed(df, steps, lambda field: [])
        return frame.fromDF(df, frame.glue_ctx, frame.name)


class Spigot(GlueTransform):
    """``Spigot.apply(frame=…, path=…, options=…)`` calls `DynamicFrame.spigot`."""

    method = "spigot"


class Unbox(GlueTransform):
    """``Unbox.apply(frame=…, path=…, format="json")`` calls `DynamicFrame.unbox`."""

    method = "unbox"


class UnnestFrame(GlueTransform):
    """``UnnestFrame.apply(frame=…)`` calls `DynamicFrame.unnest`."""

    method = "unnest"


class ErrorsAsDynamicFrame(GlueTransform):
    """``ErrorsAsDynamicFrame.apply(frame=…)`` calls `DynamicFrame.errorsAsDynamicFrame`."""

    method = "errorsAsDynamicFrame"


class Relationalize(GlueTransform):
    """``Relationalize.apply(frame=…, name=…, transformation_ctx=…)`` calls `DynamicFrame.relationalize`."""

    method, order = "relationalize", ("staging_path", "name", "options", "transformation_ctx")
    renamed: ClassVar = {"name": "root_table_name"}


class NotHere(Named):
    """A name of Glue's library that does not exist here: it can be imported, and using it raises NotOffGlueError."""

    def __init__(self, name: str) -> None:
        self.called = name

    def __instancecheck__(self, value: Any) -> bool:
        """Return False to `isinstance`, because outside Glue no value can have this type of Glue's library."""
        return False

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        """Raise NotOffGlueError."""
        raise NotOffGlueError(self.called, self.instead)

    def __getitem__(self, key: str) -> NoReturn:
        """Raise NotOffGlueError."""
        raise NotOffGlueError(f"{self.called}[{key!r}]", self.instead)
