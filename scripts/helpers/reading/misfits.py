"""Find values of CSV, JSON and XML that do not fit their column's type, in the records that the reader marks.

Spark turns such a value into NULL, and can keep the text of its record in a column. Only these kept records are parsed
again, as texts, to find out which values were lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.helpers._lazy import Column, F, T
from scripts.helpers.errors import ADVICE, MisfitError
from scripts.helpers.reading.fetched_lines import NAMED_WRONG, marked
from scripts.helpers.reading.records import REASON, RECORD, csv_texts, record_options, value_of, with_long_as_text
from scripts.helpers.schemas.kinds import Columns, Kind, is_nested, kind_text
from scripts.helpers.schemas.spark_frames import json_of_values, quoted


@dataclass(frozen=True)
class Misfits:
    """Finds lost values: Spark read them as NULL, and the column `RECORD` has the text of their record.

    Parameters
    ----------
    source
        The name of the source, for error texts.
    format
        ``csv``, ``json`` or ``xml``.
    columns
        The columns in the files with the types they are read as, in file order and without folder columns.
    options
        Reader options.
    has_reasons
        Whether `records.parsed` read the records, so that bad ones have a `REASON`.
    """

    source: str
    format: str
    columns: Columns
    options: Mapping[str, Any]
    has_reasons: bool = False

    def checked(self, name: str) -> Column:
        """Return a column that fails the Spark job (MisfitError) where text was read as NULL or the record is bad."""
        value = quoted(name)
        kind = self.columns.get(name)
        if kind is None:
            return value
        fails = F.when(self._is_bad(), self._raised_record()).otherwise(value)
        if self._may_lose(kind):
            fails = F.when(self._is_lost(name, kind), self._raised(name, kind_text(kind))).otherwise(fails)
        # Check `RECORD` first: it is NULL in nearly all rows, and only rows with a text in it are parsed again.
        return F.when(F.col(RECORD).isNull(), value).otherwise(fails).alias(name)

    def rescued(self, beside: Sequence[str]) -> Column:
        """Return lost values as JSON, such as ``{"price": "12abc"}``, or the whole record as ``_corrupt_record``.

        Parameters
        ----------
        beside
            Names of columns that the JSON always includes.
        """
        record = F.col(RECORD)
        left_out = [quoted(name).alias(name) for name in beside]
        whole = json_of_values([*left_out, record.alias("_corrupt_record")])
        lost = []
        for name, kind in self.columns.items():
            if self._may_lose(kind) and name not in beside:
                lost.append(F.when(self._is_lost(name, kind), self._text(name)).alias(name))
        values = whole
        if lost:
            # If the record is bad as a whole, or none of its values is known to be lost, return its whole text.
            is_any_lost = ~self._is_bad() & json_of_values(lost).isNotNull()
            values = F.when(is_any_lost, json_of_values([*left_out, *lost])).otherwise(whole)
        return F.when(record.isNull(), json_of_values(left_out)).otherwise(values)

    def _may_lose(self, kind: Kind) -> bool:
        """Return whether a type's values can be lost (become NULL). Text in CSV cannot; repeated XML elements can."""
        return kind != "string" or self.format != "csv"

    def _is_lost(self, name: str, kind: Kind) -> Column:
        """Return whether a value may be lost: the record has it, but it became NULL, or is nested and a part may be."""
        has_text = self._text(name).isNotNull()
        return has_text if is_nested(kind) else quoted(name).isNull() & has_text

    def _is_bad(self) -> Column:
        """Return whether a record cannot be parsed at all, or has more or fewer values than columns."""
        if self.has_reasons:
            return F.col(REASON).isNotNull()
        return self._texts()[RECORD].isNotNull()

    def _text(self, name: str) -> Column:
        if self.format != "csv":
            return value_of(self._texts(), name)
        return self._texts()[f"c{list(self.columns).index(name)}"]

    def _texts(self) -> Column:
        """Return the values of the record in `RECORD` as texts."""
        record = F.col(RECORD)
        options = record_options(self.options)
        if self.format != "csv":
            # Pass None for no options: Spark Connect sends an empty map without types, which Spark refuses.
            return F.from_json(with_long_as_text(record), "map<string,string>", options or None)
        return csv_texts(record, len(self.columns), options)

    def _raised_record(self) -> Column:
        if not self.has_reasons:
            return self._raised(None, self.format)
        names = ", ".join(self.columns)
        by_reason = F.when(F.lit(False), self._raised(None, self.format))
        for reason in (MisfitError.ENCODING, MisfitError.CASE):
            by_reason = by_reason.when(F.col(REASON) == reason, self._raised(None, names, reason))
        return by_reason.otherwise(self._raised(None, self.format))

    def _raised(self, column: str | None, kind: str, reason: str = MisfitError.UNPARSED) -> Column:
        return F.raise_error(F.lit(marked(MisfitError(self.source, column, kind, reason))))


def check_related(source: str, kept: Iterable[str], found: Mapping[str, Iterable[str]]) -> None:
    """Raise MisfitError if a CSV file shares no column with the others, so that its header is probably a row.

    Parameters
    ----------
    kept
        The columns that earlier batches had.
    found
        The columns of the files, by key. Two files without a common column are related if a third links them.
    """
    left = {key: {name.lower() for name in names} for key, names in found.items()}
    left = {key: names for key, names in left.items() if names}
    known = {name.lower() for name in kept}
    others = f"earlier batches, {', '.join(kept)}" if known else f"key {next(iter(left), '')!r}"
    known = known or next(iter(left.values()), set())
    while near := [key for key, names in left.items() if names & known]:
        known = known.union(*map(left.pop, near))
    if left:
        # Do not show the column names of the file, because they may be values of a row.
        detail = (
            f"the header of key {next(iter(left))!r} shares no column with {others}. Add the header to the file that "
            f"lacks it. If files have other columns, or no header: {ADVICE.get().part}"
        )
        raise MisfitError(source, None, "header", detail=detail)


def differing(source: str, name: str, key: str, kind: Kind, before: Kind) -> MisfitError:
    """Return the error for a column whose type in a file is incompatible with its type in earlier files."""
    now = kind_text(kind)
    detail = f"column {name!r} is {now} in key {key!r}, and {kind_text(before)} in files before it."
    return MisfitError(source, name, now, detail=f"{detail} {ADVICE.get().part}")


def narrowed(source: str, name: str, key: str, kind: Kind, asked: Kind) -> MisfitError:
    """Return the error for a number column whose type in the schema is narrower than its type in the file `key`."""
    detail = (
        f"column {name!r} is {kind_text(kind)} in key {key!r}, and schema has it as {kind_text(asked)}, which does not "
        "hold all its values. Give it a wider type there, or set the file aside with on_unreadable='set_aside'."
    )
    return MisfitError(source, name, kind_text(asked), detail=detail)


def unpacked_line(source: str, line: Column) -> Column:
    """Return a line of text; fail the Spark job at a line that begins like a gzip file, which is not text."""
    detail = f"a file is not text: {NAMED_WRONG}. Rename it, or set it aside with on_unreadable='set_aside'."
    fails = F.raise_error(F.lit(marked(MisfitError(source, None, "text", detail=detail))))
    # A gzip file begins with 1f 8b 08. Skip the second character, because 8b depends on the encoding.
    return F.when(line.startswith("\x1f") & (line.substr(3, 1) == "\b"), fails).otherwise(line)


def folder_misfit(source: str, name: str, kind: str) -> MisfitError:
    """Return the error for a folder value that is not of its column's type."""
    detail = f"a folder's value of column {name!r} is not of type {kind}. Give the column another type in schema=."
    return MisfitError(source, name, kind, detail=detail)


def folder_column(source: str, text: Column, name: str, kind: T.DataType) -> Column:
    """Return a ``name=value`` folder's value, cast. One that does not fit fails the job, as in Spark's readers."""
    # Use try_cast if Spark has it: Spark 4 casts in ANSI mode, and would raise its own error for such a value.
    cast = getattr(type(text), "try_cast", type(text).cast)
    value: Column = cast(text, kind)
    fails = F.raise_error(F.lit(marked(folder_misfit(source, name, kind.simpleString()))))
    return F.when(text.isNotNull() & value.isNull(), fails).otherwise(value).alias(name)
