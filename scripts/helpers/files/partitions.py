"""Read the values of partition folders, with types and order, and choose the partitions of a batch.

Pure. Only the functions that work on rows import pyarrow.
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
"""The values of one partition, one per column; None for NULL."""


@dataclass(frozen=True)
class PartitionColumns:
    """The columns that name a partition, outermost first, and their types.

    A partition has all files whose folders have its values, even if the path has other ``name=value`` folders as well.
    Two folders with the same value, such as ``month=1`` and ``month=01`` of an int, are one partition.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]

    @classmethod
    def of(cls, columns: str | Sequence[str], types: Mapping[str, str] | None = None) -> PartitionColumns:
        """Return the columns that a user names.

        Parameters
        ----------
        columns
            One name or several. A folder matches a name in upper or lower case, as in Spark.
        types
            Type of each column that is not text, by name: ``int``, ``bigint``, or ``date`` (2026-11-24 or 20261124).

        Raises
        ------
        InvalidValueError
            A name is empty or given twice; a type is unknown, or is given for a column that is not named.
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
        """Return a folder's values: 2026 for ``"year=2026/"``. SourceError if a column is missing or occurs twice."""
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
        """Return a caller's value or values for the first columns as a tuple. InvalidValueError for a wrong type."""
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

        Texts are compared by their characters. If that is not the order of the numbers in them, as for ``9`` and
        ``10``, the intended order is unclear, and an InvalidValueError suggests `types`.
        """
        found = list(values)
        for position, (name, kind) in enumerate(zip(self.names, self.types, strict=True)):
            if kind == "string":
                _check_order(name, {str(one[position]) for one in found if one[position] is not None})
        return sorted(found, key=sort_key)

    def named(self, values: Values) -> dict[str, Value]:
        """Return the values of a partition by column, such as ``{"year": 2026, "month": 11}``."""
        return dict(zip(self.names, values, strict=True))


class Chosen(NamedTuple):
    """The content of a batch: its files, gone objects, and whether partitions are left for the next batch."""

    taken: pa.Table
    gone: pa.Table
    has_more: bool
    waiting: int
    """Number of partitions with files that cannot be taken yet; with ``latest``, only those above the taken one."""


@dataclass(frozen=True)
class PartitionRule:
    """The rules by which a batch chooses partitions.

    Attributes
    ----------
    source
        The name of the source, for error messages.
    whole
        Whether to read all files of a changed partition, not only the new ones.
    nulls
        What to do with a partition whose value is NULL: ``raise`` an error, ``take`` it, or ``skip`` it with a WARNING.
    start_from
        The smallest partition to take. The first run stores the files of smaller partitions as ignored.
    max_partitions
        Most partitions of one batch; the smallest are taken first.
    latest
        Whether to take only the largest of all partitions.
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
        """Raise InvalidValueError for a value that is not allowed."""
        check_choice("nulls", self.nulls, get_args(Nulls))
        if self.whole not in (True, False):
            raise InvalidValueError(f"whole is {self.whole!r}. Use True or False.")
        most = self.max_partitions
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidValueError(f"max_partitions is {most!r}. Use a whole number from 1.")

    def to_plan(self) -> PlannedPartitions:
        """Return the options that a replay of the plan must repeat: the column names, `whole` and `latest`."""
        return PlannedPartitions(self.columns.names, self.whole, self.latest)

    def unlimited(self) -> PartitionRule:
        """Return the same rule without `max_partitions` and `start_from`."""
        return replace(self, max_partitions=None, start_from=None)

    # --- which partition ------------------------------------------------------------------------

    def values(self, folder: str) -> Values:
        """Return the partition of a folder; SourceError if the folder is in no partition."""
        if folder not in self._folders:
            self._folders[folder] = self.columns.values(self.source, folder)
        return self._folders[folder]

    def numbers(self, keys: Any, *, known: bool = False) -> pa.Array:
        """Return for each key the number of its partition. `partitions` returns the partitions with given numbers.

        Parameters
        ----------
        known
            Whether keys are from a ledger: then keys in no partition, or in a NULL one with nulls='skip', get NULL.
        """
        from scripts.helpers.files.rules import folders_of

        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        # Parse each folder once, however many files it has.
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
        """Return the partitions with the given numbers, which `numbers` assigns."""
        by_number = list(self._numbers)
        return [by_number[number] for number in numbers]

    # --- which files ----------------------------------------------------------------------------

    def admitted(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the listed files that a batch may take, and how many files `nulls` skips.

        Raises
        ------
        SourceError
            A file is in no partition; or a value of its partition is NULL, and `nulls` is ``raise``.
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
        """Return for each file whether its partition is before `start_from`."""
        assert self.start_from is not None
        start = self.start_from
        numbers = self.numbers(new.column("key"))
        # This raises an error if the order is unclear, as with the texts 9 and 10: then `start_from` is unclear too.
        self.columns.ordered([*self._numbers, (*start, *[None] * (len(self.columns.names) - len(start)))])
        early = [sort_key(values[: len(start)]) < sort_key(start) for values in self._numbers]
        return pa.array(early, pa.bool_()).take(numbers)

    def ready(self, folders: Any, marked: Iterable[str]) -> pa.Array:
        """Return for each folder whether it, or a folder above it up to that of its partition, has a ready marker."""
        if isinstance(folders, pa.ChunkedArray):
            folders = folders.combine_chunks()
        # Ignore a marker above the partitions: Spark writes it after each job, which may not complete any partition.
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
            All new files, including the ones that have to wait.
        gone
            Known objects that do not exist any more.
        """
        of_admitted, of_gone = self.numbers(admitted.column("key")), self.numbers(gone.column("key"), known=True)
        changed = set(of_admitted.unique().to_pylist())
        waiting: set[int] = set()
        if self.whole:
            changed |= set(of_gone.unique().to_pylist()) - {None}
            # Leave a partition for a later batch if one of its files has to wait: now it would be read only in part.
            later = pc.invert(pc.is_in(new.column("key"), value_set=admitted.column("key").combine_chunks()))
            waiting = set(self.numbers(new.filter(later).column("key")).unique().to_pylist())
            changed -= waiting
        limit = 1 if self.latest else self.max_partitions
        has_more = limit is not None and len(changed) > limit
        numbers = changed
        if has_more or self.latest:
            # Sort waiting partitions too: if values have no clear order (texts 9 and 10), raise before any is taken.
            ordered = self.columns.ordered(self.partitions(changed | waiting))
            able = [values for values in ordered if self._numbers[values] in changed]
            kept = able[:limit]
            if self.latest:
                # A NULL partition is not the latest: SQL's max() ignores NULL too.
                kept = [values for values in able if None not in values][-1:]
                if kept:
                    waiting = {self._numbers[values] for values in ordered[ordered.index(kept[0]) + 1 :]}
            numbers = {self._numbers[values] for values in kept}
        of_batch = pa.array(sorted(numbers), pa.int64())
        taken = admitted.filter(pc.is_in(of_admitted, value_set=of_batch))
        if self.whole:
            # Do not record the gone files of a waiting partition yet, so that a later batch sees that it has changed.
            gone = gone.filter(pc.or_(pc.is_null(of_gone), pc.is_in(of_gone, value_set=of_batch)))
        return Chosen(taken, gone, has_more and not self.latest, len(waiting))

    def rest(self, known: pa.Table, rows: pa.Table, is_chosen: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
        """Return the known files that are in partitions changed by a batch but not in the batch itself.

        Parameters
        ----------
        known
            The rows of a ledger for objects that exist.
        rows
            The rows that the batch adds to the ledger.
        is_chosen
            Function that filters rows by the bookmark's options, such as `include`.
        """
        changed = self.numbers(rows.column("key"), known=True).unique().drop_null()
        others = known.filter(pc.invert(pc.is_in(known.column("key"), value_set=rows.column("key").combine_chunks())))
        others = others.filter(pc.is_in(self.numbers(others.column("key"), known=True), value_set=changed))
        remedy = "Restore the job's item from a backup, or rename the object if there is one of that name."
        check_keys(self.source, others.column("key"), "its ledger", remedy)
        parts = [is_chosen(batch) for batch in others.to_batches()]
        return pa.Table.from_batches(parts, others.schema)


def sort_key(values: Values) -> tuple[tuple[bool, Any], ...]:
    """Return a partition's sort key, which puts NULL before all values, and compares texts by their bytes."""
    found = []
    for value in values:
        shown = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        found.append((value is not None, 0 if value is None else shown))
    return tuple(found)


def is_file_start(start_from: Any) -> bool:
    """Return whether a start is a `FileOptions.start_from` (None, a time or "now"), and not a partition."""
    return start_from is None or isinstance(start_from, datetime) or start_from == "now"


def _check_order(name: str, texts: Collection[str]) -> None:
    """Raise InvalidValueError for texts whose order by characters differs from the order of the numbers in them."""
    by_bytes = sorted(texts, key=lambda text: text.encode("utf-8", "surrogatepass"))
    by_numbers = sorted(by_bytes, key=_natural)
    for first, second in zip(by_bytes, by_numbers, strict=True):
        if first != second:
            raise InvalidValueError(
                f"Partition column {name!r} has the texts {second!r} and {first!r}: by their characters {first!r} is "
                f"first, as numbers {second!r}. Say what they are, such as types={{{name!r}: 'int'}}."
            )


def _natural(text: str) -> tuple[Any, ...]:
    # The parts of "a10b" are "a", "10", "b". So texts are compared with texts, and numbers with numbers.
    parts = re.split(r"([0-9]+)", text)
    return tuple(int(part) if position % 2 else part for position, part in enumerate(parts))
