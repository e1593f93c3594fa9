"""However rows are nested, joining the tables restores the rows, and each id has one parent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.relational.ids import IdBlock
from scripts.helpers.relational.relations import Relations

EXAMPLES = 6
"""Few, because each example runs one Spark job per table, which Spark plans anew."""
NAMES = ["a", "b c", "x.y", "q`q", "ä"]
ATOMS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-9, 9),
    "string": st.sampled_from(["", "a", "b"]),
    "double": st.sampled_from([0.0, -0.0, 1.5]),
}

KINDS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(sorted(ATOMS)),
    lambda inner: (
        st.tuples(st.just("array"), inner)
        | st.tuples(st.just("map"), inner)
        | st.tuples(st.just("struct"), st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=2))
    ),
    max_leaves=3,
)
SCHEMAS = st.dictionaries(st.sampled_from(NAMES), KINDS, min_size=1, max_size=3).map(lambda fields: ("struct", fields))


def ddl(kind: Any) -> str:
    """Return a type in Spark's notation."""
    if isinstance(kind, str):
        return kind
    outer, inner = kind
    if outer == "struct":
        return f"struct<{', '.join(f'{quoted(name)}:{ddl(of)}' for name, of in inner.items())}>"
    return f"array<{ddl(inner)}>" if outer == "array" else f"map<string, {ddl(inner)}>"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy that draws a value of a type, or NULL."""
    if isinstance(kind, str):
        return st.none() | ATOMS[kind]
    outer, inner = kind
    if outer == "struct":
        return st.none() | fields_of(inner)
    if outer == "array":
        return st.none() | st.lists(values(inner), max_size=3)
    return st.none() | st.dictionaries(st.sampled_from(["k", "l", "m"]), values(inner), max_size=2)


def fields_of(inner: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*map(values, inner.values()))


@st.composite
def batches(draw: Any) -> tuple[Any, list[Any]]:
    schema = draw(SCHEMAS)
    rows = draw(st.lists(fields_of(schema[1]), min_size=5, max_size=12))
    return schema, rows + draw(st.lists(st.sampled_from(rows), max_size=5))


def plain(kind: Any, value: Any) -> Any:
    """Return a value as tables store it: a NULL struct becomes a struct of NULLs, a map becomes its entries."""
    if isinstance(kind, str):
        return value
    outer, inner = kind
    if outer == "struct":
        parts = value or [None] * len(inner)
        return {name: plain(of, part) for (name, of), part in zip(inner.items(), parts, strict=True)}
    if value is None:
        return None
    if outer == "array":
        return [plain(inner, element) for element in value]
    return [(key, plain(inner, value[key])) for key in sorted(value)]


class Joined:
    """The tables of one batch, joined back into rows."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self.root = [row.asDict() for row in tables["root"].collect()]
        self.children: dict[str, dict[int, list[dict[str, Any]]]] = {}
        self.parents: dict[str, list[int]] = defaultdict(list)
        for name, table in tables.items():
            if name != "root":
                self.children[name] = defaultdict(list)
                for row in sorted(table.collect(), key=lambda found: (found["id"], found["index"])):
                    self.children[name][row["id"]].append(row.asDict())

    def value(self, kind: Any, name: str, row: dict[str, Any]) -> Any:
        if isinstance(kind, str):
            return row[name]
        outer, inner = kind
        if outer == "struct":
            return {part: self.value(of, f"{name}.{part}" if name else part, row) for part, of in inner.items()}
        if row[name] is None:
            return None
        self.parents[f"root_{name}"].append(row[name])
        elements = self.children[f"root_{name}"].get(row[name], [])
        assert [element["index"] for element in elements] == list(range(len(elements)))
        if outer == "array":
            return [self.value(inner, f"{name}.val", element) for element in elements]
        return [(element[f"{name}.key"], self.value(inner, f"{name}.val", element)) for element in elements]


@pytest.fixture(scope="module")
def interpreting(spark: Any) -> Iterator[Any]:
    """Return a Spark session that does not compile plans, because compiling takes longer than running on a few rows."""
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield spark
    spark.conf.set("spark.sql.codegen.wholeStage", before)


@settings(max_examples=EXAMPLES, deadline=None)
@given(batch=batches())
def test_joined_tables_are_the_rows_when_they_are_nested_in_any_way(
    interpreting: Any, batch: tuple[Any, list[Any]]
) -> None:
    schema, rows = batch
    columns = ", ".join(f"{quoted(name)} {ddl(kind)}" for name, kind in schema[1].items())
    relations = Relations(interpreting.createDataFrame(rows, columns), "root", IdBlock.unsaved("people"))

    try:
        joined = Joined(relations.tables())
    finally:
        relations.release()

    found = [joined.value(schema, "", row) for row in joined.root]
    assert sorted(map(repr, found)) == sorted(repr(plain(schema, row)) for row in rows)
    for name, children in joined.children.items():
        assert len(set(joined.parents[name])) == len(joined.parents[name])
        assert children.keys() <= set(joined.parents[name])
