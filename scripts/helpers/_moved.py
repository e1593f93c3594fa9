"""Modules that were moved into rooms: their old names work for one minor version, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

MOVED = {
    "dataframe_rows": "rows.spark_frames",
    "date_partitions": "rows.date_partitions",
    "embedded_metrics": "metrics.embedded",
    "file_delta": "files.delta",
    "file_explain": "files.explanation",
    "file_rules": "files.rules",
    "freshness": "metrics.freshness",
    "glue.import_report": "glue.importing",
    "glue_errors": "glue_api.errors",
    "ids": "protocol.names",
    "jdbc_rows": "databases.table",
    "job_list": "protocol.jobs",
    "job_report": "metrics.report",
    "looked_up": "protocol.history",
    "missing_keys": "rows.missing",
    "modes": "batch.modes",
    "pandas_rows": "rows.pandas_frames",
    "postgres_snapshot": "databases.snapshot",
    "records": "protocol.head",
    "row_options": "rows.options",
    "run": "protocol.run",
    "s3_events": "listing.events",
    "s3_inventory": "listing.inventory",
    "slices": "rows.slicing",
    "spark_bookmark": "files.spark",
    "telemetry": "metrics.telemetry",
}
"""Old module to new one, both below `scripts.helpers`: those that an API page of a version before named."""
MOVED_APART = {"looked_up": {"Spans": "rows.progress"}}
"""Names of old modules that are not in the new one but in another."""

_PACKAGE = __name__.rpartition(".")[0]


class _Redirect(Loader):
    """Fills a module of an old name with what is in the new one."""

    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        warnings.warn(
            f"{module.__name__} has moved: import from {self.new}. The old name goes with the next minor version.",
            DeprecationWarning,
            stacklevel=2,
        )
        found = import_module(self.new)
        module.__dict__.update({name: value for name, value in vars(found).items() if not name.startswith("__")})
        module.__doc__ = found.__doc__
        for name, home in MOVED_APART.get(module.__name__.rpartition(".")[2], {}).items():
            module.__dict__[name] = getattr(import_module(f"{_PACKAGE}.{home}"), name)


class _MovedFinder(MetaPathFinder):
    """Finds moved modules by their old names. It is asked last, so a module that is there wins."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(f"{_PACKAGE}.")
        new = None if package else MOVED.get(name)
        return spec_from_loader(fullname, _Redirect(f"{_PACKAGE}.{new}")) if new else None


def install() -> None:
    """Let moved modules be found; once, however often it is called."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedFinder())
