"""Values of CSV, JSON and XML that their column's type cannot hold: found in what Spark's own reader marks.

Spark makes such a value NULL, and can keep the text of its record in a column. Only the records that it keeps are
parsed once more, as texts, to tell which values were lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.helpers._lazy import Column, F, T
from scripts.helpers.errors import ADVICE, MisfitError
from scripts.helpers.reading.fetched_lines import NAMED_WRONG, marked
from scripts.helpers.reading.records import REASON, RECORD, csv_texts, of_records, value_of
from scripts.helpers.schemas.kinds import Columns, Kind, is_nested, kind_text
from scripts.helpers.schemas.spark_frames import json_of_values, quoted


@dataclass(frozen=True)
class Misfits:
    """What was lost of the records that Spark's reader kept in `RECORD`.

    Parameters
    ----------
    source
        For error texts.
    format
        ``csv``, ``json`` or ``xml``.
    columns
        The columns in the files, in their order and without those of folders, as they are read.
    options
        Reader options.
    has_reasons
        `records.parsed` read the records, so that bad ones have a `REASON`.
    """

    source: str
    format: str
    columns: Columns
    options: Mapping[str, Any]
    has_reasons: bool = False

    def checked(self, name: str) -> Column:
        """Return a column that makes the Spark job fail at a value that was lost; see `MisfitError`."""
        value = quoted(name)
        kind = self.columns.get(name)
        if kind is None:
            return value
        fails = F.when(self._is_bad(), self._raised_record()).otherwise(value)
        if self._may_lose(kind):
            fails = F.when(self._is_lost(name, kind), self._raised(name, kind_text(kind))).otherwise(fails)
        # Asked first, as nearly no record is kept: the text of all others is not parsed again.
        return F.when(F.col(RECORD).isNull(), value).otherwise(fails).alias(name)

    def rescued(self, beside: Sequence[str]) -> Column:
        """Return what was lost as JSON: texts by column, or the record as it is under ``_corrupt_record``.

        Parameters
        ----------
        beside
            Names of columns that go there in any case.
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
            # A record may be kept for a reason that no value shows. Then it is rescued as it is.
            is_any_lost = ~self._is_bad() & json_of_values(lost).isNotNull()
            values = F.when(is_any_lost, json_of_values([*left_out, *lost])).otherwise(whole)
        return F.when(record.isNull(), json_of_values(left_out)).otherwise(values)

    def _may_lose(self, kind: Kind) -> bool:
        """Tell whether a column may have a value that its type cannot hold: one of texts, if elements come again."""
        return kind != "string" or self.format == "xml"

    def _is_lost(self, name: str, kind: Kind) -> Column:
        """Tell a value that is NULL and has a text. Of a struct a part may be lost, so it counts as a whole."""
        has_text = self._text(name).isNotNull()
        return has_text if is_nested(kind) else quoted(name).isNull() & has_text

    def _is_bad(self) -> Column:
        """Tell a record that cannot be parsed at all, or has more or fewer values than columns."""
        if self.has_reasons:
            return F.col(REASON).isNotNull()
        return self._texts()[RECORD].isNotNull()

    def _text(self, name: str) -> Column:
        if self.format != "csv":
            return value_of(self._texts(), name)
        return self._texts()[f"c{list(self.columns).index(name)}"]

    def _texts(self) -> Column:
        """Return the values of a kept record as texts."""
        record = F.col(RECORD)
        options = of_records(self.options)
        if self.format != "csv":
            # None for no option: Spark Connect makes a map without types of an empty one, which Spark refuses.
            return F.from_json(record, "map<string,string>", options or None)
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
    """Raise MisfitError for a file of CSV that shares no column with the others: a row is taken for its header.

    Parameters
    ----------
    kept
        The columns that earlier batches had.
    found
        The columns of the files, by key. A file that shares a column with another one may share none with a third.
    """
    left = {key: {name.lower() for name in names} for key, names in found.items()}
    left = {key: names for key, names in left.items() if names}
    known = {name.lower() for name in kept}
    others = f"earlier batches, {', '.join(kept)}" if known else f"key {next(iter(left), '')!r}"
    known = known or next(iter(left.values()), set())
    while near := [key for key, names in left.items() if names & known]:
        known = known.union(*map(left.pop, near))
    if left:
        # Without the names of the file, which may be values of a row.
        detail = (
            f"the header of key {next(iter(left))!r} shares no column with {others}. Add the header to the file that "
            f"lacks it. If files have other columns, or no header: {ADVICE.get().part}"
        )
        raise MisfitError(source, None, "header", detail=detail)


def differing(source: str, name: str, key: str, kind: Kind, before: Kind) -> MisfitError:
    """Return the error of a column whose type in a file does not go with that of the files before it."""
    now = kind_text(kind)
    detail = f"column {name!r} is {now} in key {key!r}, and {kind_text(before)} in files before it."
    return MisfitError(source, name, now, detail=f"{detail} {ADVICE.get().part}")


def unpacked_line(source: str, line: Column) -> Column:
    """Return a line of text; at one that begins as a gzip file does, the Spark job fails, as that is not text."""
    detail = f"a file is not text: {NAMED_WRONG}. Rename it, or set it aside with on_unreadable='set_aside'."
    fails = F.raise_error(F.lit(marked(MisfitError(source, None, "text", detail=detail))))
    # The sign between these two depends on the encoding.
    return F.when(line.startswith("\x1f") & (line.substr(3, 1) == "\b"), fails).otherwise(line)


def folder_misfit(source: str, name: str, kind: str) -> MisfitError:
    """Return the error of a folder's value that is not of its column's type."""
    detail = f"a folder's value of column {name!r} is not of type {kind}. Give the column another type in schema=."
    return MisfitError(source, name, kind, detail=detail)


def folder_column(source: str, text: Column, name: str, kind: T.DataType) -> Column:
    """Return a folder's value in the type that was asked for. One that does not fit stops Spark, as in its readers."""
    # Spark 4 casts as ANSI does: a value that does not fit would be an error of Spark's own. Spark 3 has no try_cast.
    cast = getattr(type(text), "try_cast", type(text).cast)
    value: Column = cast(text, kind)
    fails = F.raise_error(F.lit(marked(folder_misfit(source, name, kind.simpleString()))))
    return F.when(text.isNotNull() & value.isNull(), fails).otherwise(value).alias(name)
