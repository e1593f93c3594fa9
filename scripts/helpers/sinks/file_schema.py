"""`FileSchema`: the columns that all files of a target share, whatever their format and their writer. Pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace

from scripts.helpers.errors import TargetSchemaError
from scripts.helpers.sinks.places import Place

logger = logging.getLogger(__name__)

COLUMNS = "_glue_watermarks_columns"
"""The file at a target that holds its schema, as JSON. Readers skip the file because of its name."""
VOID = "void"
"""The type of a column without a value in any row."""


@dataclass(frozen=True)
class FileSchema:
    """The schema of a target, or of rows to be written to it.

    Attributes
    ----------
    columns
        The type by path, in the order of the columns, such as ``{"id": "bigint", "tags": …, "tags[]": "string"}``.
        Types are named as in Spark's SQL, or as in pyarrow if Spark has no such type.
    partitions
        The types of the columns whose values become folders.
    options
        Options with which the files were written and must be read, such as ``sep``.
    format
        The format of the files.
    attempt
        The name of the folder in which the attempt that made this schema staged its files.
    instead_of
        Only in a staged schema, if the target had a schema but no files when it was staged: the `attempt` of the
        target's schema, which this one replaces. None: publishing merges this schema with the target's.
    """

    columns: Mapping[str, str]
    partitions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    format: str = field(default="", compare=False)
    attempt: str = field(default="", compare=False)
    instead_of: str | None = field(default=None, compare=False)

    @classmethod
    def read(cls, data: bytes | None) -> FileSchema | None:
        """Return the schema that `to_bytes` wrote; None for other bytes. Any field but `columns` may be missing."""
        try:
            found = json.loads(data or b"")
            made = cls(**{each.name: found[each.name] for each in fields(cls) if each.name in found})
            texts = [text for each in (made.columns, made.partitions, made.options) for text in each.values()]
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        return made if all(isinstance(text, str) for text in (*texts, made.format, made.attempt)) else None

    def to_bytes(self) -> bytes:
        """Return the schema as JSON."""
        return json.dumps(asdict(self)).encode()

    def misfit(self, target: str, rows: FileSchema) -> TargetSchemaError | None:
        """Return an error if rows do not fit the target; None if they do. Except for CSV, they may lack or add columns.

        A name that differs only in case does not fit. All CSV files must have the same columns in the same order,
        because Spark, Athena and others read all files by position, under the names in the first file.
        """
        there = {**self.columns, **self.partitions}
        spelled, changed = {name.lower(): name for name in there}, {}
        for name, kind in {**rows.columns, **rows.partitions}.items():
            other = spelled.get(name.lower(), name)
            if other != name:
                changed[name] = (f"named {name!r}", f"named {other!r}")
            elif kind != there.get(name, kind) and VOID not in (kind, there[name]):
                changed[name] = (kind, there[name])
        missing, unknown = [], []
        if rows.format == "csv":
            missing = [name for name in self.columns if name not in rows.columns]
            unknown = [name for name in rows.columns if name not in self.columns]
            if not (missing or unknown or changed):
                both = enumerate(zip(rows.columns, self.columns, strict=True), 1)
                changed = {f"column {place}": (own, other) for place, (own, other) in both if own != other}
        remedy = "Cast the rows, or name another folder."
        if rows.format != "csv":
            remedy += (
                f" If no file has the column any more, as its batch was taken back, delete {target}/{COLUMNS}: the "
                "next batch is compared with the files themselves."
            )
        return TargetSchemaError(target, missing, unknown, changed, remedy) if missing or unknown or changed else None

    def merged(self, rows: FileSchema) -> FileSchema:
        """Return this schema plus the columns that only `rows` has. Columns without a type get their type in `rows`."""
        known = {name.lower() for name in (*self.columns, *self.partitions)}

        def both(there: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
            new = {name: kind for name, kind in ours.items() if name.lower() not in known or there.get(name) == VOID}
            return {**there, **new}

        columns, partitions = both(self.columns, rows.columns), both(self.partitions, rows.partitions)
        return replace(rows, columns=columns, partitions=partitions, options=self.options)


def store_schema(target: Place, staged: bytes | None, version: int) -> None:
    """Store a committed batch's schema at its target, merged with a schema that another job has stored meanwhile."""
    ours = FileSchema.read(staged)
    if ours is None:
        return

    def stored(found: bytes | None) -> bytes | None:
        there = FileSchema.read(found)
        if there is None or there.attempt == ours.instead_of:
            return replace(ours, instead_of=None).to_bytes()
        misfit = there.misfit(target.uri(""), ours)
        if misfit is not None or there.options != ours.options:
            logger.warning(
                "event=schema_conflict target=%s version=%d: another job has published other columns or options since "
                "the batch was staged, and readers cannot read both: %s. Rewind one of the jobs with retract, and let "
                "it write to another folder", target.uri(""), version, misfit.found if misfit else "options differ",
            )  # fmt: skip
        # If another job has stored other columns of CSV, keep that job's columns: its later batches must fit them.
        kept = there if misfit is not None and ours.format == "csv" else there.merged(ours)
        return None if kept == there else replace(kept, instead_of=None).to_bytes()

    target.update(COLUMNS, stored)
