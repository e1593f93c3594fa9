"""How a batch of a merge gets into an Iceberg table: by one commit of what the keys of the batch come to.

::

    stage     all events of the batch, as they came; those that nothing orders are refused
    publish   1. look at the target: its snapshot is what the commit replaces
              2. deletes into <namespace>.glue_watermarks_deleted_<table>, an Iceberg table of keys and sequences
              3. look at the deletes that are remembered
              4. one commit to the target with the rows and the record of the batch, refused if `main` has moved since 1

Every publication adds a snapshot, also one that changes no row, so those of all jobs follow each other. One that came
before has remembered its deletes before step 1, and step 3 sees them; one that comes after has looked at these rows.
Whoever dies after step 2 leaves a memory of deletes that a successor carries out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.table_merge import ARROW_FRAMES, TableMerge, is_newer, rows_of, values_of

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY = "glue_watermarks_deleted_"

Row = dict[str, Any]


def memory_of(target: str) -> str:
    """Return the name of the table that remembers the deletes of another one.

    >>> memory_of("lake.raw.repairs")
    'lake.raw.glue_watermarks_deleted_repairs'
    """
    start, _, name = target.rpartition(".")
    return f"{start}.{MEMORY}{name}"


# --- pyiceberg --------------------------------------------------------------------------------------


class ArrowMerge:
    """The merge of batches into one Iceberg table by `pyiceberg`.

    Parameters
    ----------
    target
        ``catalog.namespace.table``.
    catalog
        One that tries a commit once.
    """

    def __init__(self, target: str, rules: Merge, catalog: Any) -> None:
        self._target, self._rules, self._catalog = target, rules, catalog
        self._tables = _ArrowTables(catalog)
        self._common = TableMerge(target, memory_of(target), rules, self._tables, ARROW_FRAMES)

    def check(self, events: pa.Table) -> None:
        """Raise what nothing orders; see `TableMerge.check`."""
        self._common.check(_as_there(events, self._tables.table(self._target)))

    def publish(self, table: Any, events: pa.Table, properties: Mapping[str, str], summary: Mapping[str, str]) -> None:
        """Merge staged events into a table of `pyiceberg` as it was looked at.

        Parameters
        ----------
        properties
            What records the batch, as properties of the table.
        summary
            What tells the batch, as properties of its snapshots.
        """
        self._tables.pin(self._target, table)
        distinct = ARROW_FRAMES.distinct(_as_there(events, table), self._rules)
        self._remember(distinct)
        before = self._tables.read(self._target, distinct, self._rules)
        after = self._after(before.to_pylist(), self._common.source(distinct).to_pylist())
        with table.transaction() as transaction:
            if not self._write(transaction, table, before, after, summary):
                transaction.append(table.schema().as_arrow().empty_table(), dict(summary))
            if properties:
                transaction.set_properties(dict(properties))

    def _remember(self, distinct: pa.Table) -> None:
        """Remember the deletes among events: the last of each key, or for a history all."""
        import pyarrow as pa

        memory, named = self._common.memory, self._common.named
        schema = pa.schema([pa.field(one.name, one.type) for one in map(distinct.schema.field, named)])
        table = self._tables.made(memory, schema)
        deletes = distinct.select([*named, DELETED]).filter(distinct[DELETED])
        before = self._tables.read(memory, deletes, self._rules)
        every = ARROW_FRAMES.together(deletes, before, deleted=True)
        wanted = ARROW_FRAMES.distinct(every, self._rules)
        with table.transaction() as transaction:
            self._write(transaction, table, before, rows_of(wanted, named), {})
        self._tables.forget(memory)

    def _after(self, before: Sequence[Row], source: Sequence[Row]) -> list[Row]:
        """Return what the rows of the batch's keys come to; the source is that of `TableMerge.source`."""
        rules, keys = self._rules, self._rules.keys
        if rules.history is not None:
            start, end = rules.history.valid_from, rules.history.valid_to
            ends = {(values_of(row, keys), row[start]): row[end] for row in source if row[DELETED]}
            kept = [row | {end: ends.get((values_of(row, keys), row[start]), row[end])} for row in before]
            return [*kept, *(row for row in source if not row[DELETED])]
        newest = {values_of(row, keys): row for row in source}
        kept = [row for row in before if not is_newer(newest[values_of(row, keys)], row, rules)]
        settled = {values_of(row, keys) for row in kept}
        return [*kept, *(row for key, row in newest.items() if not row[DELETED] and key not in settled)]

    def _write(
        self, transaction: Any, table: Any, before: pa.Table, after: Sequence[Row], summary: Mapping[str, str]
    ) -> bool:
        """Write rows in place of those of their keys; tell whether anything changes."""
        import pyarrow as pa

        schema, keys = table.schema().as_arrow(), self._rules.keys
        old, new = _by_key(before.to_pylist(), keys), _by_key(_in_columns(after, schema.names), keys)
        changed = [key for key in {**old, **new} if _texts(old.get(key, ())) != _texts(new.get(key, ()))]
        if not changed:
            return False
        written = pa.Table.from_pylist([row for key in changed for row in new.get(key, ())], schema=schema)
        replaced = [key for key in changed if key in old]
        if not replaced:
            transaction.append(written, dict(summary))
            return True
        those = _those(keys, replaced)
        # The condition is about each column of the key by itself, so it may be true for others: they stay.
        found, gone = table.scan(row_filter=those).to_arrow(), set(replaced)
        others = found.filter(pa.array([values_of(row, keys) not in gone for row in rows_of(found, keys)], pa.bool_()))
        rows = pa.concat_tables([written, others.select(schema.names).cast(schema)])
        transaction.overwrite(rows, those, dict(summary))
        return True


class _ArrowTables:
    """Tables of `pyiceberg`, each as it was when it was looked at first."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self._found: dict[str, Any] = {}

    def table(self, name: str) -> Any:
        if name not in self._found:
            table = self._catalog.load_table(_identifier(name))
            table.catalog = self._catalog
            self._found[name] = table
        return self._found[name]

    def made(self, name: str, schema: pa.Schema) -> Any:
        if not self.has(name):
            # Another publisher may make it now.
            self._catalog.create_table_if_not_exists(_identifier(name), schema)
        return self.table(name)

    def pin(self, name: str, table: Any) -> None:
        self._found = {name: table}

    def forget(self, name: str) -> None:
        self._found.pop(name, None)

    def has(self, table: str) -> bool:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            self.table(table)
        except NoSuchTableError:
            return False
        return True

    def columns(self, table: str) -> list[str]:
        return [field.name for field in self.table(table).schema().fields]

    def read(self, table: str, events: pa.Table, merge: Merge) -> pa.Table:
        import pyarrow as pa

        wanted = {values_of(event, merge.keys) for event in rows_of(events, merge.keys)}
        there = self.table(table)
        if not wanted:
            return there.schema().as_arrow().empty_table()
        found = there.scan(row_filter=_those(merge.keys, wanted)).to_arrow()
        is_wanted = [values_of(row, merge.keys) in wanted for row in rows_of(found, merge.keys)]
        return found.filter(pa.array(is_wanted, pa.bool_()))


def _identifier(name: str) -> str:
    """Return a table's name within its catalog."""
    return name.partition(".")[2]


def _those(names: Sequence[str], keys: Iterable[tuple[Any, ...]]) -> Any:
    """Return a condition that is true for the rows of some keys; of keys by several columns maybe for more.

    An exact one would have a part for each key, and pyarrow would take minutes for some ten thousand.
    """
    from pyiceberg import expressions

    # Their types are made at run time: to mypy an expression takes the name of its own kind first.
    made: Any = expressions
    found = made.AlwaysTrue()
    for name, values in zip(names, zip(*keys, strict=True), strict=True):
        found = made.And(found, made.In(name, set(values)))
    return found


def _as_there(events: pa.Table, table: Any) -> pa.Table:
    """Return events with the types of the table's columns; deletes may be NULL where rows may not."""
    import pyarrow as pa

    schema = table.schema().as_arrow()
    types = {one.name: schema.field(one.name).type for one in events.schema if one.name != DELETED}
    return events.cast(pa.schema([pa.field(name, types.get(name, pa.bool_())) for name in events.column_names]))


def _in_columns(rows: Iterable[Row], columns: Sequence[str]) -> list[Row]:
    return [{name: row.get(name) for name in columns} for row in rows]


def _by_key(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(values_of(row, keys), []).append(row)
    return found


def _texts(rows: Iterable[Row]) -> list[str]:
    """Return rows as texts that compare: lists and structs have no order, and NaN is not equal to itself."""
    return sorted(repr(sorted(row.items())) for row in rows)
