"""Which table and column each field of a nested row ends up in, named as Glue's Relationalize names them. Pure.

A struct becomes columns `a.b`. An array `a` becomes a table `root_a` with columns `id`, `index` and `a.val`, or
`a.val.b` where its elements are structs; an array inside it the table `root_a.val.b`. The names are those of AWS's
`join_and_relationalize` example. Maps are ours to decide: a table like that of an array, with `m.key` and `m.val`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.helpers.errors import NameCollisionError

ID, INDEX = "id", "index"
"""Of each child table: the id that the parent row holds, and the position in its array, from 0."""


Fields = tuple[str, ...]
"""Names of fields, each inside the one before."""


@dataclass(frozen=True)
class RelatedColumn:
    """One column of a table, and the fields that lead to it from the table's element."""

    name: str
    steps: Fields
    table: str | None = None
    """The child table of an array or map; the column then holds the ids of it."""


@dataclass(frozen=True)
class RelatedTable:
    """One table: that of the rows, or one of an array or map.

    Attributes
    ----------
    steps
        The fields that lead from the parent's element to the array.
    path
        The fields that lead here from the row.
    """

    name: str
    parent: RelatedTable | None = field(default=None, repr=False)
    steps: Fields = ()
    path: Fields = ()
    columns: list[RelatedColumn] = field(default_factory=list)

    @property
    def has_children(self) -> bool:
        """Tell whether a column holds ids."""
        return any(column.table for column in self.columns)


def tables_of(schema: Mapping[str, Any], root: str, *, case_sensitive: bool = False) -> list[RelatedTable]:
    """Return the tables of a schema, each after its parent.

    Parameters
    ----------
    schema
        As Spark writes it in JSON: ``df.schema.jsonValue()``.
    root
        Name of the first table, and start of the others' names.
    case_sensitive
        Whether names that differ by case only are two names.

    Raises
    ------
    NameCollisionError
        Two fields would be one column, or two arrays one table.
    """
    tables: list[RelatedTable] = []
    _add(tables, RelatedTable(root), [("", (), schema)], root)
    # Spark and Glue's catalog read `a` and `A` as one name by default: one of the two columns could never be asked for.
    as_one = str if case_sensitive else str.lower
    _check_names("table", "", [(table.name, table.path) for table in tables], as_one)
    for table in tables:
        columns = [(column.name, table.path + column.steps) for column in table.columns]
        _check_names("column", f" of table {table.name!r}", columns, as_one)
    return tables


def _add(tables: list[RelatedTable], table: RelatedTable, parts: list[tuple[str, Fields, Any]], root: str) -> None:
    tables.append(table)
    for part in parts:
        for name, steps, kind in _leaves(*part):
            inner = _parts(name, kind)
            if inner is None:
                table.columns.append(RelatedColumn(name, steps))
                continue
            # Named after the root and not after the parent, whose name `name` begins with already.
            child = RelatedTable(f"{root}_{name}", table, steps, table.path + steps)
            table.columns.append(RelatedColumn(name, steps, child.name))
            _add(tables, child, inner, root)


def _leaves(name: str, steps: Fields, kind: Any) -> Iterator[tuple[str, Fields, Any]]:
    """Walk through structs, however deep, to what is none."""
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        for part in kind["fields"]:
            # `steps` too: a field whose name is empty is still a level, and its dot keeps two columns apart.
            inner = f"{name}.{part['name']}" if name or steps else part["name"]
            yield from _leaves(inner, (*steps, part["name"]), part["type"])
    else:
        yield name, steps, kind


def _parts(name: str, kind: Any) -> list[tuple[str, Fields, Any]] | None:
    """Return what the elements of an array or the entries of a map consist of; None for anything else."""
    outer = kind["type"] if isinstance(kind, Mapping) else None
    if outer == "array":
        return [(f"{name}.val", (), kind["elementType"])]
    if outer == "map":
        return [(f"{name}.key", ("key",), kind["keyType"]), (f"{name}.val", ("val",), kind["valueType"])]
    return None


def _check_names(what: str, where: str, named: list[tuple[str, Fields]], as_one: Callable[[str], str]) -> None:
    # A field may be called `b.val` and stand beside an array `b`: joined by dots, two paths can be one name.
    seen: dict[str, Fields] = {}
    for name, path in named:
        if as_one(name) in seen:
            raise NameCollisionError(f"{what} {name!r}{where}", seen[as_one(name)], path)
        seen[as_one(name)] = path
