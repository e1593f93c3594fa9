"""Glue's transforms as classes with `apply`: the methods of `DynamicFrame` by their other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.frames import INSTEAD, DynamicFrame, DynamicFrameCollection, expression


class _Transform:
    """A transform of Glue's as a class with `apply`."""

    method = ""

    @classmethod
    def apply(cls, frame: DynamicFrame, *args: Any, **options: Any) -> DynamicFrame:
        """Do what the method of the frame does."""
        found: DynamicFrame = getattr(frame, cls.method)(*args, **options)
        return found


class ApplyMapping(_Transform):
    """``ApplyMapping.apply(frame=…, mappings=…)``."""

    method = "apply_mapping"


class SelectFields(_Transform):
    """``SelectFields.apply(frame=…, paths=…)``."""

    method = "select_fields"


class DropFields(_Transform):
    """``DropFields.apply(frame=…, paths=…)``."""

    method = "drop_fields"


class RenameField:
    """``RenameField.apply(frame=…, old_name=…, new_name=…)``."""

    @classmethod
    def apply(cls, frame: DynamicFrame, old_name: str, new_name: str, **options: Any) -> DynamicFrame:
        """Rename a column."""
        return frame.rename_field(old_name, new_name)


class ResolveChoice(_Transform):
    """``ResolveChoice.apply(frame=…, specs=…)``."""

    method = "resolveChoice"


class SelectFromCollection:
    """``SelectFromCollection.apply(dfc=…, key=…)``."""

    @classmethod
    def apply(cls, dfc: DynamicFrameCollection, key: str, transformation_ctx: str = "", **_: Any) -> DynamicFrame:
        """Return one frame."""
        return dfc.select(key, transformation_ctx)


class Filter:
    """``Filter.apply(frame=…, f=…)``."""

    @classmethod
    def apply(cls, frame: DynamicFrame, f: Callable[[Any], Any], *args: Any, **options: Any) -> DynamicFrame:
        """Keep rows."""
        return frame.filter(f)


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
