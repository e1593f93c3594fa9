"""Glue's transforms as classes with `apply`: the methods of `DynamicFrame` by their other names."""

from __future__ import annotations

from typing import Any, NoReturn

from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.fields import expression
from scripts.helpers.glue.frames import INSTEAD, DynamicFrame, DynamicFrameCollection


class _Transform:
    """A transform of Glue's as a class with `apply`, which calls a method of its first argument."""

    method, first = "", "frame"

    @classmethod
    def apply(cls, *args: Any, **options: Any) -> Any:
        """Do what the method of the frame, or of the collection, does."""
        of, *further = args or (options.pop(cls.first),)
        return getattr(of, cls.method)(*further, **options)


class ApplyMapping(_Transform):
    """``ApplyMapping.apply(frame=…, mappings=…)``."""

    method = "apply_mapping"


class SelectFields(_Transform):
    """``SelectFields.apply(frame=…, paths=…)``."""

    method = "select_fields"


class DropFields(_Transform):
    """``DropFields.apply(frame=…, paths=…)``."""

    method = "drop_fields"


class SplitFields:
    """``SplitFields.apply(frame=…, paths=…, name1=…, name2=…)``."""

    @classmethod
    def apply(
        cls, frame: DynamicFrame, paths: Any, name1: str | None = None, name2: str | None = None, **_: Any
    ) -> DynamicFrameCollection:
        """Part the columns."""
        return frame.split_fields(paths, name1 or f"{frame.name}1", name2 or f"{frame.name}2")


class SplitRows:
    """``SplitRows.apply(frame=…, comparison_dict=…, name1=…, name2=…)``."""

    @classmethod
    def apply(
        cls, frame: DynamicFrame, comparison_dict: Any, name1: str = "frame1", name2: str = "frame2", **_: Any
    ) -> DynamicFrameCollection:
        """Part the rows."""
        return frame.split_rows(comparison_dict, name1, name2)


class RenameField:
    """``RenameField.apply(frame=…, old_name=…, new_name=…)``."""

    @classmethod
    def apply(cls, frame: DynamicFrame, old_name: str, new_name: str, **options: Any) -> DynamicFrame:
        """Rename a column."""
        return frame.rename_field(old_name, new_name)


class ResolveChoice(_Transform):
    """``ResolveChoice.apply(frame=…, specs=…)``."""

    method = "resolveChoice"


class SelectFromCollection(_Transform):
    """``SelectFromCollection.apply(dfc=…, key=…)``."""

    method, first = "select", "dfc"


class MapToCollection(_Transform):
    """``MapToCollection.apply(dfc=…, callable=…)``."""

    method, first = "map", "dfc"


class FlatMap:
    """``FlatMap.apply(dfc=…, BaseTransform=…, frame_name=…)``."""

    @classmethod
    def apply(
        cls, dfc: DynamicFrameCollection, BaseTransform: Any, frame_name: str, transformation_ctx: str = "", **base: Any
    ) -> DynamicFrameCollection:
        """Apply a transform to each frame, which is its argument `frame_name`."""

        def apply_one(frame: DynamicFrame, context: str) -> Any:
            return BaseTransform.apply(**base, **{frame_name: frame, "transformation_ctx": context})

        return dfc.flatmap(apply_one, transformation_ctx)


class Filter(_Transform):
    """``Filter.apply(frame=…, f=…)``."""

    method = "filter"


class Map(_Transform):
    """``Map.apply(frame=…, f=…)``."""

    method = "map"


class Union:
    """``Union.apply(frame1, frame2)``."""

    @classmethod
    def apply(cls, frame1: DynamicFrame, frame2: DynamicFrame, *args: Any, **options: Any) -> DynamicFrame:
        """Return the rows of both frames."""
        return frame1.union(frame2)


class Repartition(_Transform):
    """``Repartition.apply(frame=…, num_partitions=…)``."""

    method = "repartition"


class Coalesce(_Transform):
    """``Coalesce.apply(frame=…, num_partitions=…)``."""

    method = "coalesce"


class Join:
    """``Join.apply(frame1, frame2, keys1, keys2)``."""

    @classmethod
    def apply(
        cls, frame1: DynamicFrame, frame2: DynamicFrame, keys1: Any, keys2: Any, *args: Any, **options: Any
    ) -> DynamicFrame:
        """Pair the rows of two frames whose keys are equal."""
        return frame1.join(keys1, keys2, frame2)


class DropNullFields:
    """``DropNullFields.apply(frame=…)``."""

    @classmethod
    def apply(cls, frame: DynamicFrame, *args: Any, **options: Any) -> DynamicFrame:
        """Leave out the columns whose type is that of NULL. Spark finds a type for others, also if all are NULL."""
        fields = frame.schema().jsonValue()["fields"]
        return frame.drop_fields([expression([field["name"]]) for field in fields if field["type"] == "void"])


class Spigot(_Transform):
    """``Spigot.apply(frame=…, path=…, options=…)``."""

    method = "spigot"


class Unbox(_Transform):
    """``Unbox.apply(frame=…, path=…, format="json")``."""

    method = "unbox"


class UnnestFrame(_Transform):
    """``UnnestFrame.apply(frame=…)``."""

    method = "unnest"


class ErrorsAsDynamicFrame:
    """``ErrorsAsDynamicFrame.apply(frame=…)``."""

    @classmethod
    def apply(cls, frame: DynamicFrame, *args: Any, **options: Any) -> Any:
        """Return an empty frame: errors of rows are errors of the job."""
        return frame.errorsAsDynamicFrame()


class Relationalize:
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
