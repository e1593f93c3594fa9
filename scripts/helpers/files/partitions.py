"""Partitions as folders: the values that a folder stands for, their types and order, and which of them a batch takes.

Pure. What works on rows imports pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Literal, NamedTuple, get_args

from scripts.helpers._lazy import pa, pc
from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.files.states import PlannedPartitions
from scripts.helpers.listing.folders import Value, folder_kind, folder_values, typed_value
from scripts.helpers.listing.paths import check_keys

Nulls = Literal["raise", "take", "skip"]
Values = tuple[Value, ...]
"""The values of one partition, one for each column; None for NULL."""


@dataclass(frozen=True)
class PartitionColumns:
    """The columns that name a partition, outermost first, and their types.

    Other ``name=value`` folders may lie above, between and below them: a partition holds all files whose folders give
    its values. Two folders of one value, such as ``month=1`` and ``month=01`` of an int, are one partition.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]

    @classmethod
    def of(cls, columns: str | Sequence[str], types: Mapping[str, str] | None = None) -> PartitionColumns:
        """Read what a user gives.

        Parameters
        ----------
        columns
            One name or several. Like Spark, folders are matched without case.
        types
            Of columns that are no texts: ``int``, ``bigint``, or ``date`` for 2026-11-24 and 20261124.

        Raises
        ------
        InvalidValueError
            Names that are empty or there twice, or types that are unknown or of other columns.
        """
        names = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else (columns,)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidValueError(f"columns is {columns!r}. Name one partition column, or a list of them.")
        lower = [name.lower() for name in names]
        if len(set(lower)) < len(lower):
            raise InvalidValueError(f"columns is {columns!r}, with a name twice. Name each partition column once.")
        given = {name.lower(): kind for name, kind in (types or {}).items()}
        unknown = sorted(set(given) - set(lower))
        if unknown:
            raise InvalidValueError(f"types names {unknown[0]!r}, which is not among columns. Correct one of them.")
        return cls(names, tuple(folder_kind(name, given.get(name.lower(), "string")) for name in names))

    def values(self, source: str, folder: str) -> Values:
        """Return what a folder below the source, with its slash, stands for; SourceError if that cannot be told."""
        found: dict[str, list[str | None]] = {}
        for name, text in folder_values(folder):
            found.setdefault(name.lower(), []).append(text)
        values = []
        for name, kind in zip(self.names, self.types, strict=True):
            texts = found.get(name.lower(), [])
            if len(texts) != 1:
                shown = f"folder {folder!r}" if folder else "the top, which holds files,"
                how = "has no folder" if not texts else f"has {len(texts)} folders"
                raise SourceError(
                    source,
                    f"{shown} {how} {name}=… that Spark reads, so its partition is unknown: above a folder without "
                    "'=' it reads none. Name the partition columns as the folders have them, or leave such files out "
                    "with exclude=.",
                )
            values.append(typed_value(source, name, kind, texts[0]))
        return tuple(values)

    def from_caller(self, value: Any, what: str) -> Values:
        """Return values of the first columns that a caller gives, one or a list. InvalidValueError: they do not fit."""
        given = tuple(value) if isinstance(value, tuple | list) else (value,)
        if not 1 <= len(given) <= len(self.names):
            raise InvalidValueError(f"{what} has {len(given)} values for {len(self.names)} columns. Give one each.")
        found = []
        for name, kind, one in zip(self.names, self.types, given, strict=False):
            fits = type(one) is date if kind == "date" else type(one) is int and kind != "string"
            refused = InvalidValueError(f"{what} is {one!r}, and {name} is a {kind}. Give a value of that type.")
            if type(one) is not str and not fits:
                raise refused
            try:
                found.append(typed_value(what, name, kind, str(one)))
            except SourceError as error:
                raise refused from error
        return tuple(found)

    def ordered(self, values: Iterable[Values]) -> list[Values]:
        """Return partitions from the smallest to the largest, NULL before all values.

        Texts compare by their characters. Where that is not the order of the numbers in them, as with ``9`` and
        ``10``, nobody could tell which order is meant: an InvalidValueError names `types`.
        """
        found = list(values)
        for position, (name, kind) in enumerate(zip(self.names, self.types, strict=True)):
            if kind == "string":
                _check_order(name, {str(one[position]) for one in found if one[position] is not None})
        return sorted(found, key=sort_key)

    def named(self, values: Values) -> dict[str, Value]:
        """Return the values by the names of their columns."""
        return dict(zip(self.names, values, strict=True))


class Chosen(NamedTuple):
    """What a batch takes: files of its partitions, objects of them that are gone, and whether partitions are left."""

    taken: pa.Table
    gone: pa.Table
    has_more: bool
    waiting: int
    """Partitions that are left, since some of their files have to wait; of ``latest`` those that are larger."""


@dataclass(frozen=True)
class PartitionRule:
    """How a batch chooses by partitions.

    Attributes
    ----------
    source
        For messages.
    whole
        A changed partition is read whole, and never a part of it.
    nulls
        The partition whose value is NULL: ``raise`` an error, ``take`` it, or ``skip`` it with a WARNING.
    start_from
        The first run takes partitions from this one on; what lies in smaller ones then is remembered, not taken.
    max_partitions
        Most of one batch, smallest first.
    latest
        Only the largest partition of all.
    """

    source: str
    columns: PartitionColumns
    whole: bool = False
    nulls: str = "raise"
    start_from: Values | None = None
    max_partitions: int | None = None
    latest: bool = False
    _folders: dict[str, Values] = field(default_factory=dict, init=False, repr=False, compare=False)
    _numbers: dict[Values, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense; InvalidValueError."""
        check_choice("nulls", self.nulls, get_args(Nulls))
        if self.whole not in (True, False):
            raise InvalidValueError(f"whole is {self.whole!r}. Use True or False.")
        most = self.max_partitions
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidValueError(f"max_partitions is {most!r}. Use a whole number from 1.")

    def to_plan(self) -> PlannedPartitions:
        """Return what a replay must ask for again: how files are grouped, and what is read of a group."""
        return PlannedPartitions(self.columns.names, self.whole, self.latest)

    def unlimited(self) -> PartitionRule:
        """Return the rule without what bounds a batch."""
        return replace(self, max_partitions=None, start_from=None)

    # --- which partition ------------------------------------------------------------------------

    def values(self, folder: str) -> Values:
        """Return the partition of a folder; SourceError if it is none."""
        if folder not in self._folders:
            self._folders[folder] = self.columns.values(self.source, folder)
        return self._folders[folder]

    def numbers(self, keys: Any, *, known: bool = False) -> pa.Array:
        """Return a number for each key that stands for its partition; see `partitions`.

        Parameters
        ----------
        known
            The keys are of a ledger. Those that are in no partition, or in one that `nulls` excludes, have NULL.
        """
        from scripts.helpers.files.rules import folders_of

        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        # Each folder is looked at once, however many files it has.
        folders = pc.dictionary_encode(folders_of(keys))
        found = [self._number(folder, known) for folder in folders.dictionary.to_pylist()]
        return pa.array(found, pa.int64()).take(folders.indices)

    def _number(self, folder: str, known: bool) -> int | None:
        try:
            values = self.values(folder)
        except SourceError:
            if not known:
                raise
            return None
        if known and self.nulls == "skip" and None in values:
            return None
        return self._numbers.setdefault(values, len(self._numbers))

    def partitions(self, numbers: Collection[int]) -> list[Values]:
        """Return the partitions that numbers stand for."""
        by_number = list(self._numbers)
        return [by_number[number] for number in numbers]

    # --- which files ----------------------------------------------------------------------------

    def admitted(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the listed files that a batch may take, and how many `nulls` leaves out.

        Raises
        ------
        SourceError
            A file is in no partition, or in one of NULL where `nulls` says ``raise``.
        """
        numbers = self.numbers(rows.column("key"))
        of_null = [number for values, number in self._numbers.items() if None in values]
        mask = pc.is_in(numbers, value_set=pa.array(of_null, pa.int64()))
        count = mask.true_count
        if not count or self.nulls == "take":
            return rows, 0
        if self.nulls == "raise":
            files = "1 file lies" if count == 1 else f"{count:,} files lie"
            raise SourceError(
                self.source,
                f"{files} in a partition of NULL ({'/'.join(self.columns.names)}), such as "
                f"{rows.column('key').filter(mask)[0].as_py()!r}. Fix the program that wrote it; "
                "nulls='take' takes it as a partition of its own, nulls='skip' leaves it out.",
            )
        return rows.filter(pc.invert(mask)), count

    def before_start(self, new: pa.Table) -> pa.Array:
        """Tell of each file whether its partition is before `start_from`."""
        assert self.start_from is not None
        start = self.start_from
        numbers = self.numbers(new.column("key"))
        # Also to refuse texts in whose order nobody can say what is before.
        self.columns.ordered([*self._numbers, (*start, *[None] * (len(self.columns.names) - len(start)))])
        early = [sort_key(values[: len(start)]) < sort_key(start) for values in self._numbers]
        return pa.array(early, pa.bool_()).take(numbers)

    def ready(self, folders: Any, marked: Iterable[str]) -> pa.Array:
        """Tell of each folder whether it, or one above it within its partition, is among the marked ones."""
        if isinstance(folders, pa.ChunkedArray):
            folders = folders.combine_chunks()
        # Spark marks the top of a table, where it has written some partitions: that says of none that it is complete.
        marks = tuple(folder for folder in marked if self._is_partition(folder))
        encoded = pc.dictionary_encode(folders)
        found = [folder.startswith(marks) for folder in encoded.dictionary.to_pylist()]
        return pa.array(found, pa.bool_()).take(encoded.indices)

    def _is_partition(self, folder: str) -> bool:
        try:
            self.values(folder)
        except SourceError:
            return False
        return True

    def chosen(self, admitted: pa.Table, new: pa.Table, gone: pa.Table) -> Chosen:
        """Choose the partitions of a batch.

        Parameters
        ----------
        admitted
            New files that may be taken now.
        new
            These, and those that have to wait.
        gone
            Known objects that are not there any more.
        """
        of_admitted, of_gone = self.numbers(admitted.column("key")), self.numbers(gone.column("key"), known=True)
        changed = set(of_admitted.unique().to_pylist())
        waiting: set[int] = set()
        if self.whole:
            changed |= set(of_gone.unique().to_pylist()) - {None}
            # A partition with a file that has to wait would be read in part.
            later = pc.invert(pc.is_in(new.column("key"), value_set=admitted.column("key").combine_chunks()))
            waiting = set(self.numbers(new.filter(later).column("key")).unique().to_pylist())
            changed -= waiting
        limit = 1 if self.latest else self.max_partitions
        has_more = limit is not None and len(changed) > limit
        numbers = changed
        if has_more or self.latest:
            # Before any is left out: nobody may find out by its order that an earlier batch took the wrong one.
            ordered = self.columns.ordered(self.partitions(changed | waiting))
            able = [values for values in ordered if self._numbers[values] in changed]
            kept = able[:limit]
            if self.latest:
                # As max() passes over NULL in SQL.
                kept = [values for values in able if None not in values][-1:]
                if kept:
                    waiting = {self._numbers[values] for values in ordered[ordered.index(kept[0]) + 1 :]}
            numbers = {self._numbers[values] for values in kept}
        of_batch = pa.array(sorted(numbers), pa.int64())
        taken = admitted.filter(pc.is_in(of_admitted, value_set=of_batch))
        if self.whole:
            # What is gone of a partition that waits shows that it has changed: it must not be remembered yet.
            gone = gone.filter(pc.or_(pc.is_null(of_gone), pc.is_in(of_gone, value_set=of_batch)))
        return Chosen(taken, gone, has_more and not self.latest, len(waiting))

    def rest(self, known: pa.Table, rows: pa.Table, is_chosen: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
        """Return the known files, of those that a batch does not have itself, that lie in partitions it changes.

        Parameters
        ----------
        known
            What a ledger has of objects that are there.
        rows
            What the batch adds to it.
        is_chosen
            Leaves out what the options of the bookmark do not admit.
        """
        changed = self.numbers(rows.column("key"), known=True).unique().drop_null()
        others = known.filter(pc.invert(pc.is_in(known.column("key"), value_set=rows.column("key").combine_chunks())))
        others = others.filter(pc.is_in(self.numbers(others.column("key"), known=True), value_set=changed))
        remedy = "Restore the job's item from a backup, or rename the object if there is one of that name."
        check_keys(self.source, others.column("key"), "its ledger", remedy)
        parts = [is_chosen(batch) for batch in others.to_batches()]
        return pa.Table.from_batches(parts, others.schema)


def sort_key(values: Values) -> tuple[tuple[bool, Any], ...]:
    """Return what partitions are sorted by: NULL first, texts by their bytes."""
    found = []
    for value in values:
        shown = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        found.append((value is not None, 0 if value is None else shown))
    return tuple(found)


def is_file_start(start_from: Any) -> bool:
    """Tell whether a start is one of files, `FileOptions.start_from`, and no partition."""
    return start_from is None or isinstance(start_from, datetime) or start_from == "now"


def _check_order(name: str, texts: Collection[str]) -> None:
    """Refuse texts whose order by characters is not that of the numbers in them."""
    by_bytes = sorted(texts, key=lambda text: text.encode("utf-8", "surrogatepass"))
    by_numbers = sorted(by_bytes, key=_natural)
    for first, second in zip(by_bytes, by_numbers, strict=True):
        if first != second:
            raise InvalidValueError(
                f"Partition column {name!r} has the texts {second!r} and {first!r}: by their characters {first!r} is "
                f"first, as numbers {second!r}. Say what they are, such as types={{{name!r}: 'int'}}."
            )


def _natural(text: str) -> tuple[Any, ...]:
    # Texts and numbers alternate, so that each is compared with its like.
    parts = re.split(r"([0-9]+)", text)
    return tuple(int(part) if position % 2 else part for position, part in enumerate(parts))
