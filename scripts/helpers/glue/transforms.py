"""Glue's transforms as classes with `apply`: the methods of `DynamicFrame` by their other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.fields import changed, steps_to_nulls
from scripts.helpers.glue.frames import INSTEAD, DynamicFrame, DynamicFrameCollection


class GlueTransform:
    """A transform of Glue's as a class with `apply`, which calls a method of its first argument."""

    method, first = "", "frame"
    renamed: ClassVar[Mapping[str, str]] = {}
    """Arguments to which the method gives another name."""

    @classmethod
    def apply(cls, *args: Any, **options: Any) -> Any:
        """Do what the method of the frame, or of the collection, does."""
        of, *further = args or (options.pop(cls.first),)
        named = {cls.renamed.get(name, name): given for name, given in options.items()}
        return getattr(of, cls.method)(*further, **named)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Do what `apply` does."""
        return self.apply(*args, **options)


class ApplyMapping(GlueTransform):
    """``ApplyMapping.apply(frame=…, mappings=…)``."""

    method = "apply_mapping"


class SelectFields(GlueTransform):
    """``SelectFields.apply(frame=…, paths=…)``."""

    method = "select_fields"


class DropFields(GlueTransform):
    """``DropFields.apply(frame=…, paths=…)``."""

    method = "drop_fields"


class SplitFields(GlueTransform):
    """``SplitFields.apply(frame=…, paths=…, name1=…, name2=…)``."""

    method = "split_fields"


class SplitRows(GlueTransform):
    """``SplitRows.apply(frame=…, comparison_dict=…, name1=…, name2=…)``."""

    method = "split_rows"


class RenameField(GlueTransform):
    """``RenameField.apply(frame=…, old_name=…, new_name=…)``."""

    method = "rename_field"
    renamed: ClassVar = {"old_name": "oldName", "new_name": "newName"}


class ResolveChoice(GlueTransform):
    """``ResolveChoice.apply(frame=…, specs=…)``."""

    method = "resolveChoice"


class SelectFromCollection(GlueTransform):
    """``SelectFromCollection.apply(dfc=…, key=…)``."""

    method, first = "select", "dfc"


class MapToCollection(GlueTransform):
    """``MapToCollection.apply(dfc=…, callable=…)``."""

    method, first = "map", "dfc"


class FlatMap(GlueTransform):
    """``FlatMap.apply(dfc=…, BaseTransform=…, frame_name=…)``."""

    @classmethod
    def apply(
        cls, dfc: DynamicFrameCollection, BaseTransform: Any, frame_name: str, transformation_ctx: str = "", **base: Any
    ) -> DynamicFrameCollection:
        """Apply a transform to each frame, which is its argument `frame_name`."""

        def apply_one(frame: DynamicFrame, context: str) -> Any:
            return BaseTransform.apply(**base, **{frame_name: frame, "transformation_ctx": context})

        return dfc.flatmap(apply_one, transformation_ctx)


class Filter(GlueTransform):
    """``Filter.apply(frame=…, f=…)``."""

    method = "filter"


class Map(GlueTransform):
    """``Map.apply(frame=…, f=…)``."""

    method = "map"


class Union(GlueTransform):
    """``Union.apply(frame1, frame2)``."""

    method, first = "union", "frame1"
    renamed: ClassVar = {"frame2": "other_frame"}


class Repartition(GlueTransform):
    """``Repartition.apply(frame=…, num_partitions=…)``."""

    method = "repartition"


class Coalesce(GlueTransform):
    """``Coalesce.apply(frame=…, num_partitions=…)``."""

    method = "coalesce"


class Join(GlueTransform):
    """``Join.apply(frame1, frame2, keys1, keys2)``."""

    @classmethod
    def apply(
        cls, frame1: DynamicFrame, frame2: DynamicFrame, keys1: Any, keys2: Any, *args: Any, **options: Any
    ) -> DynamicFrame:
        """Pair the rows of two frames whose keys are equal."""
        return frame1.join(keys1, keys2, frame2)


class DropNullFields(GlueTransform):
    """``DropNullFields.apply(frame=…)``."""

    @classmethod
    def apply(cls, frame: DynamicFrame, *args: Any, **options: Any) -> DynamicFrame:
        """Leave out the fields whose type is that of NULL. Spark finds a type for others, also if all are NULL."""
        df = frame.toDF()
        for steps in steps_to_nulls(df.schema):
            df = changed(df, steps, lambda field: [])
        return frame.fromDF(df, frame.glue_ctx, frame.name)


class Spigot(GlueTransform):
    """``Spigot.apply(frame=…, path=…, options=…)``."""

    method = "spigot"


class Unbox(GlueTransform):
    """``Unbox.apply(frame=…, path=…, format="json")``."""

    method = "unbox"


class UnnestFrame(GlueTransform):
    """``UnnestFrame.apply(frame=…)``."""

    method = "unnest"


class ErrorsAsDynamicFrame(GlueTransform):
    """``ErrorsAsDynamicFrame.apply(frame=…)``."""

    method = "errorsAsDynamicFrame"


class Relationalize(GlueTransform):
    """``Relationalize.apply(frame=…, name=…, transformation_ctx=…)``."""

    @classmethod
    def apply(
        cls,
        frame: DynamicFrame,
        staging_path: str | None = None,
        name: str = "roottable",
        options: dict[str, Any] | None = None,
        transformation_ctx: str = "",
        **_: Any,
    ) -> DynamicFrameCollection:
        """Flatten nested rows into related frames."""
        return frame.relationalize(name, staging_path, options, transformation_ctx)


class NotHere:
    """A transform of Glue's that is not here: it may be imported, and to use it is a NotOffGlueError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        """Name what is not here."""
        raise NotOffGlueError(self._name, INSTEAD)

    def __getattr__(self, name: str) -> NoReturn:
        """Name what is not here."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotOffGlueError(f"{self._name}.{name}", INSTEAD)

    def __getitem__(self, key: str) -> NoReturn:
        """Name what is not here."""
        raise NotOffGlueError(f"{self._name}[{key!r}]", INSTEAD)
