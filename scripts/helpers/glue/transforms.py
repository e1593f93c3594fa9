"""Glue's transforms as classes with `apply`: the methods of `DynamicFrame` by their other names."""

from __future__ import annotations

from typing import Any

from scripts.helpers.glue.frames import DynamicFrame, DynamicFrameCollection


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
