"""What merges into Delta and Iceberg tables share: what is refused, and what a batch makes of the rows of its keys.

Each publication looks at the rows of the batch's keys, and at the deletes of these keys that are remembered in a table
beside the target, and works out what changes: see `TableMerge.source`. How that is written, and how a change between
look and write is found out, is each format's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scripts.helpers.errors import MergeNullError, MergeTieError, TargetTableError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, internal, joined, sql
from scripts.helpers.sinks.merge_engines import ARROW_ENGINE, ROW, SPARK_ENGINE, MergeEngine, aliases_of
from scripts.helpers.sinks.merging import DELETED, Merge

quote = SPARK.quote
"""Quotes a name as both Spark and DataFusion read it."""
PLACE = internal("place")


@dataclass(frozen=True)
class Step:
    """What one MERGE does with a row `t` of the table and a row `s` of the source.

    Attributes
    ----------
    on
        When the two are of one row.
    delete_when, update_when
        What of two that match goes, or gets the source's values of the columns `sets`. None: nothing.
    insert_when
        Which rows of the source that match none are inserted, with their values of the columns `inserts`.
    """

    on: SQL
    insert_when: SQL
    inserts: Sequence[str]
    update_when: SQL | None = None
    sets: Sequence[str] = ()
    delete_when: SQL | None = None


class Tables(Protocol):
    """Where a merge looks: tables by name or URI."""

    def has(self, table: str) -> bool:
        """Tell whether there is such a table."""

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""

    def read(self, table: str, events: Any, merge: Merge) -> Any:
        """Return the rows of a table, at least those that have the key of one of the events."""


class Frames:
    """What a batch makes of rows of one engine, in SQL. Events have a column `DELETED`, other rows have not."""

    def __init__(self, engine: MergeEngine) -> None:
        self._engine = engine
        self.together = engine.together

    def nulls(self, events: Any, names: Sequence[str]) -> dict[str, int]:
        """Count events without a value in columns, by column."""
        column = aliases_of(names)
        counts = joined(", ", (sql("COUNT(CASE WHEN {} IS NULL THEN 1 END)", alias) for alias in column.values()))
        text = sql("SELECT {} FROM {{events}}", counts)
        return dict(zip(column, self._engine.one(text, events=self._engine.relation(events, column)), strict=True))

    def has_deletes(self, events: Any) -> bool:
        """Return whether an event is a delete."""
        text = sql("SELECT COUNT(*) FROM (SELECT 1 FROM {{events}} WHERE {} LIMIT 1) AS found", DELETED)
        (count,) = self._engine.one(text, events=self._engine.relation(events, {DELETED: DELETED}))
        return bool(count)

    def distinct(self, events: Any, merge: Merge) -> Any:
        """Return one event for each key, the newest, or in a history for each moment; of a delete and a row the delete.

        Of events that are checked it does not matter which one of a moment it is.
        """
        column = aliases_of([*merge.keys, *merge.sequence_by, DELETED])
        together = merge.keys if merge.history is None else [*merge.keys, *merge.sequence_by]
        text = sql(
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}, {} DESC) AS {place} "
            "FROM {{events}}) AS found WHERE {place} = 1",
            _list(column, together), _newest_first(column, merge), DELETED, place=PLACE,
        )  # fmt: skip
        found = self._engine.sql(text, events=self._engine.relation(events, column))
        return self._engine.rows(found, events, {}, merge.sequence_by[0])

    def ties(self, events: Any, merge: Merge) -> int:
        """Count events that share key and sequence with a different one; without a history only the newest of a key.

        Two deletes are equal whatever else they hold.
        """
        named = [*merge.keys, *merge.sequence_by]
        column = aliases_of([*named, DELETED])
        candidates = sql("{{events}} AS found")
        if merge.history is None:
            candidates = sql(
                "(SELECT *, RANK() OVER (PARTITION BY {} ORDER BY {}) AS {place} FROM {{events}}) AS found "
                "WHERE {place} = 1", _list(column, merge.keys), _newest_first(column, merge), place=PLACE,
            )  # fmt: skip
        text = sql(
            "SELECT COALESCE(SUM({count} - 1), 0) FROM (SELECT {named}, COUNT(*) AS {count} FROM (SELECT DISTINCT "
            "{named}, {deleted}, CASE WHEN {deleted} THEN NULL ELSE {row} END AS {row} FROM {candidates}) AS found "
            "GROUP BY {named}) AS found",
            named=_list(column, named), count=internal("count"), deleted=DELETED, row=ROW, candidates=candidates,
        )  # fmt: skip
        return int(self._engine.one(text, events=self._engine.relation(events, column, named))[0])

    def versions(self, events: Any, there: Any, gone: Any, merge: Merge) -> Any:
        """Return every version of the keys with both its ends; those that are in the table are marked `DELETED`.

        What was there before the first merge, and is valid from no moment, stays as it is.

        Parameters
        ----------
        events
            Those of the batch, once each. Its deletes are among those of `gone`.
        there
            The versions of these keys that the table has.
        gone
            Key and sequence of all deletes of these keys that are remembered.
        """
        assert merge.history is not None
        (sequence,), start, end = merge.sequence_by, merge.history.valid_from, merge.history.valid_to
        moment, until = internal("moment"), internal("until")
        column = aliases_of(merge.keys)
        text = sql(
            "WITH known AS (SELECT {keys}, {moment} FROM {{there}} WHERE {moment} IS NOT NULL), "
            "arrived AS (SELECT s.* FROM {{events}} AS s WHERE NOT s.{deleted} AND NOT EXISTS "
            "(SELECT 1 FROM known AS t WHERE {match} AND t.{moment} = s.{moment})), "
            "ends AS (SELECT {keys}, {moment}, LEAD({moment}) OVER (PARTITION BY {keys} ORDER BY {moment}) AS {until} "
            "FROM (SELECT {keys}, {moment} FROM known UNION SELECT {keys}, {moment} FROM {{gone}} "
            "UNION SELECT {keys}, {moment} FROM arrived) AS moments) "
            "SELECT {of_t}, t.{moment}, t.{until}, s.{deleted}, s.{row} FROM (SELECT {keys}, {moment}, {deleted}, "
            "{row} FROM arrived UNION ALL SELECT {keys}, {moment}, TRUE, NULL FROM known) AS s "
            "JOIN ends AS t ON {match} AND t.{moment} = s.{moment}",
            keys=_list(column, merge.keys), of_t=joined(", ", (sql("t.{}", column[name]) for name in merge.keys)),
            match=merge.matches(column.__getitem__), moment=moment, until=until, deleted=DELETED, row=ROW,
        )  # fmt: skip
        relation, ends = self._engine.relation, {sequence: moment, start: moment, end: until}
        found = self._engine.sql(
            text, events=relation(events, {**column, sequence: moment, DELETED: DELETED}),
            there=relation(there, {**column, start: moment}), gone=relation(gone, {**column, sequence: moment}),
        )  # fmt: skip
        return self._engine.rows(found, events, {**column, **ends, DELETED: DELETED}, sequence)

    def of_keys(self, rows: Any, events: Any, merge: Merge) -> Any:
        """Return the rows that have the key of one of the events."""
        column = aliases_of(merge.keys)
        text = sql(
            "SELECT * FROM {{rows}} AS t WHERE EXISTS (SELECT 1 FROM {{events}} AS s WHERE {})",
            merge.matches(column.__getitem__),
        )
        relation = self._engine.relation
        found = self._engine.sql(text, rows=relation(rows, column), events=relation(events, column))
        return self._engine.rows(found, rows, {}, merge.keys[0])


def _list(column: Mapping[str, SQL], names: Sequence[str]) -> SQL:
    return joined(", ", (column[name] for name in names))


def _newest_first(column: Mapping[str, SQL], merge: Merge) -> SQL:
    # Rows that were there before the first merge may have no sequence, and are the oldest.
    return joined(", ", (sql("{} DESC NULLS LAST", column[name]) for name in merge.sequence_by))


SPARK_FRAMES = Frames(SPARK_ENGINE)
ARROW_FRAMES = Frames(ARROW_ENGINE)


class TableMerge:
    """What batches make of one table.

    `memory` is the table beside it that remembers deletes.
    """

    def __init__(self, target: str, memory: str, rules: Merge, tables: Tables, frames: Frames) -> None:
        self.target, self.memory, self.rules = target, memory, rules
        self._tables, self._frames = tables, frames

    @property
    def named(self) -> list[str]:
        """The columns that deletes are remembered by."""
        return [*self.rules.keys, *self.rules.sequence_by]

    def check(self, events: Any) -> None:
        """Raise what nothing orders: among the events, or beside what the table has.

        Raises
        ------
        MergeNullError, MergeTieError
            See `Merge`.
        TargetTableError
            Deletes are remembered by other columns.
        """
        tables, frames = self._tables, self._frames
        remembered = tables.columns(self.memory) if tables.has(self.memory) else []
        if remembered and set(remembered) != set(self.named):
            raise TargetTableError(
                self.target,
                f"its deletes are remembered by {', '.join(sorted(remembered))}, in {self.memory}. Merge by these, "
                "or delete that table: then a row from before a delete brings its key back.",
            )
        for name, count in frames.nulls(events, self.named).items():
            if count:
                raise MergeNullError(name, count)
        self._check_ties(events, "of the batch")
        for table, deleted in ((self.target, False), (self.memory, True)):
            if tables.has(table):
                self._check_ties(frames.together(events, self._read(table, events), deleted=deleted), "in the target")

    def _check_ties(self, events: Any, where: str) -> None:
        count = self._frames.ties(events, self.rules)
        if count:
            raise MergeTieError(self.target, self.rules.keys, self.rules.sequence_by, count, where)

    def _read(self, table: str, events: Any) -> Any:
        return self._frames.of_keys(self._tables.read(table, events, self.rules), events, self.rules)

    def source(self, distinct: Any) -> Any:
        """Return what the events of a batch come to beside what is there: see `step`, and `Frames.versions`."""
        frames, gone = self._frames, self._read(self.memory, distinct)
        if self.rules.history is not None:
            return frames.versions(distinct, self._read(self.target, distinct), gone, self.rules)
        # A delete that is remembered is an event like those that arrive: the newest of all of them counts.
        return frames.distinct(frames.together(distinct, gone, deleted=True), self.rules)

    def remembering(self, quote: Callable[[str], SQL] = quote) -> Step:
        """Return how events are merged into the memory of deletes, with the names of columns quoted in some way."""
        rules, on, named = self.rules, self.rules.matches(quote), self.named
        if rules.history is not None:
            # A history needs every delete: each ends the version before it.
            return Step(sql("{} AND {}", on, rules.ties(quote)), IS_DELETE, named)
        return Step(on, IS_DELETE, named, sql("{} AND {}", IS_DELETE, rules.newer(quote)), named)

    def step(self, columns: Sequence[str], quote: Callable[[str], SQL] = quote) -> Step:
        """Return how a source is merged into the target, whose columns are those of the events and of a history."""
        rules, on = self.rules, self.rules.matches(quote)
        columns = [*(name for name in columns if name != DELETED), *rules.ends(columns)]
        if rules.history is None:
            update, delete = (sql("{} AND {}", what, rules.newer(quote)) for what in (IS_ROW, IS_DELETE))
            return Step(on, IS_ROW, columns, update, columns, delete)
        on = sql("{0} AND t.{1} = s.{1}", on, quote(rules.history.valid_from))
        changed = sql("t.{0} IS DISTINCT FROM s.{0}", quote(rules.history.valid_to))
        return Step(on, IS_ROW, columns, changed, [rules.history.valid_to])


IS_DELETE = sql("s.{}", DELETED)
IS_ROW = sql("NOT {}", IS_DELETE)


def from_source(names: Iterable[str]) -> dict[str, str]:
    """Return the values of a source's columns, as a MERGE sets them."""
    return {quote(name): sql("s.{}", quote(name)) for name in names}
