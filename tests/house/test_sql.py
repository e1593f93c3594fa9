"""SQL is built only from literals, quoted names and checked values. A test fails if any other text could become SQL.

mypy refuses a `str` where a function of this package takes `SQL`. It neither checks calls of other packages nor
distinguishes a literal from another `str`. These tests do both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.support.imports import files_below, parse
from tests.support.places import REPOSITORY

FILES = files_below(REPOSITORY / "scripts")
HOME = "scripts/helpers/rows/sql.py"

RUNNERS = {
    "sql", "selectExpr", "expr", "where", "filter", "execute", "executemany", "executeQuery", "executeUpdate",
    "prepareStatement", "addBatch",
}  # fmt: skip
"""Methods of Spark, JDBC and Python's drivers that run SQL."""
RUN_OPTIONS = {"dbtable", "query", "predicates", "sessionInitStatement"}
"""Names of arguments whose values are run as SQL."""
MAKERS = {
    "scripts/helpers/rows/dialect.py:Dialect.quote",
    "scripts/helpers/rows/dialect.py:Dialect.type_name",
    "scripts/helpers/rows/dialect.py:Dialect.number",
    "scripts/helpers/sql/others.py:SQLServer.bytes_as_text",
    "scripts/helpers/sql/mysql.py:MySQL.sequence",
}
"""Functions that turn a text into SQL after they have quoted or checked it."""
BY_HAND = {
    "scripts/helpers/sql/postgresql.py:PostgreSQL.prepared",
    "scripts/helpers/sql/query_text.py:QueryText.__init__",
    "scripts/helpers/databases/table.py:_checked_where",
    "scripts/helpers/glue/catalog.py:Catalog.partitions",
}
"""Functions that take SQL from the author of a script (`query=`, `where=` and `push_down_predicate`), or write it for
a driver."""
IN_CATALOGUE = {
    "scripts/helpers/sinks/database.py:Statements.refused",
    "scripts/helpers/sinks/delta.py:conditions_in",
}
"""Functions that read the constraints of a target, as its owner declared them."""

Place = tuple[str, ast.AST]
"""The function or method that a node is in, and the node."""


def places_of(tree: ast.AST, name: str = "", is_in_function: bool = False) -> Iterator[Place]:
    """Yield each node of a tree, with the outermost function or method that it is in. Annotations are left out."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST):
                continue
            within, is_within = name, is_in_function
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not is_in_function:
                within, is_within = f"{name}.{node.name}".lstrip("."), isinstance(node, ast.FunctionDef)
            yield within, node
            yield from places_of(node, within, is_within)


def is_put_together(node: ast.AST) -> bool:
    """Return whether an expression puts a text together, or may do so."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Add, ast.Mod))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "join", "replace")
    if isinstance(node, ast.IfExp):
        return is_put_together(node.body) or is_put_together(node.orelse)
    if isinstance(node, (ast.List, ast.Tuple)):
        return any(map(is_put_together, node.elts))
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return is_put_together(node.elt)
    if isinstance(node, (ast.Starred, ast.NamedExpr)):
        return is_put_together(node.value)
    return isinstance(node, ast.JoinedStr)


def is_literal(node: ast.AST) -> bool:
    """Return whether an expression is a string literal, or a choice between two."""
    if isinstance(node, ast.IfExp):
        return is_literal(node.body) and is_literal(node.orelse)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def texts_run(tree: ast.AST) -> Iterator[str]:
    """Yield each argument that is run as SQL and is put together, in the call or in a variable of the same function."""
    variables: dict[tuple[str, str], list[ast.AST]] = {}
    for place, node in places_of(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                variables.setdefault((place, name), []).append(node.value)
    for place, node in places_of(tree):
        if not isinstance(node, ast.Call):
            continue
        given = [option.value for option in node.keywords if option.arg in RUN_OPTIONS]
        if isinstance(node.func, ast.Attribute) and node.func.attr in RUNNERS:
            given += [*node.args, *(option.value for option in node.keywords)]
        for argument in given:
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            values = variables.get((place, inner.id), []) if isinstance(inner, ast.Name) else [inner]
            if any(map(is_put_together, values)):
                yield ast.unparse(argument)


def unchecked_templates(tree: ast.AST) -> Iterator[str]:
    """Yield each call of `sql` and `joined` whose first argument is not a literal."""
    for _, node in places_of(tree):
        is_made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("sql", "joined")
        if isinstance(node, ast.Call) and is_made and not (node.args and is_literal(node.args[0])):
            yield ast.unparse(node)


def users_of(tree: ast.AST, wanted: str) -> Iterator[str]:
    """Yield each function that uses a name as more than a type: it calls it or passes it on."""
    asked = [
        argument
        for _, node in places_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        for argument in node.args
    ]
    for place, node in places_of(tree):
        is_named = isinstance(node, ast.Name) and node.id == wanted and node not in asked
        if is_named or (isinstance(node, ast.Attribute) and node.attr == wanted):
            yield place


def found_by(find: Callable[[ast.AST], Iterator[str]]) -> list[str]:
    """Return everything that `find` finds in the files, as ``file:what``."""
    shown = [(path.relative_to(REPOSITORY).as_posix(), path) for path in FILES]
    return sorted({f"{name}:{found}" for name, path in shown if name != HOME for found in find(parse(path))})


def test_no_text_is_put_together_when_it_is_run_as_sql() -> None:
    assert found_by(texts_run) == []


def test_template_is_a_literal_when_sql_is_made_of_it() -> None:
    assert found_by(unchecked_templates) == []


def test_text_becomes_sql_only_in_the_functions_that_check_it() -> None:
    assert found_by(lambda tree: users_of(tree, "SQL")) == sorted(MAKERS)


def test_text_of_a_person_becomes_sql_only_where_a_script_gives_it() -> None:
    assert found_by(lambda tree: users_of(tree, "written_by_hand")) == sorted(BY_HAND)


# --- tests of the finders --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "spark.sql(f'DROP TABLE {name}')", "df.where('id = ' + low)", "df.filter('id = %s' % low)",
        "cursor.execute('SELECT {}'.format(name))", "df.selectExpr(', '.join(names))", "df.selectExpr(*[f'{a}'])",
        "functions.expr(f'{a}' if a else 'b')", "reader.options(url=url, dbtable=f'({query}) t')",
        "def run():\n    text = f'DELETE FROM {table}'\n    cursor.execute(text)", "df.where(condition=f'{a} = 1')",
        "df.selectExpr(*(f'{a}' for a in names))",
    ],
)  # fmt: skip
def test_text_that_is_run_is_found_when_it_is_put_together(code: str) -> None:
    assert list(texts_run(ast.parse(code))) != []


@pytest.mark.parametrize(
    "code",
    ["spark.sql('SELECT 1')", "df.where(window.predicate(SPARK))", "df.selectExpr(*map(SPARK.quote, names))",
     "logger.info(f'{a}')", "def one():\n    text = f'{a}'\ndef other(text):\n    cursor.execute(text)"],
)  # fmt: skip
def test_text_that_is_run_is_not_found_when_it_is_not_put_together(code: str) -> None:
    assert list(texts_run(ast.parse(code))) == []


@pytest.mark.parametrize(
    "code", ["sql(f'{a}')", "sql(text)", "joined(sign, parts)", "sql('a' if b else text)", "sql()"]
)
def test_template_is_found_when_it_is_no_literal(code: str) -> None:
    assert list(unchecked_templates(ast.parse(code))) == [ast.unparse(ast.parse(code))]
    assert list(unchecked_templates(ast.parse("sql('a' if b else 'c'), joined(', ', parts)"))) == []


def test_use_of_a_type_is_found_when_it_is_more_than_an_annotation() -> None:
    code = """
class Dialect:
    def quote(self, name: SQL) -> list[SQL]:
        found: SQL = name
        assert isinstance(found, SQL)
        def inner():
            return map(SQL, name)
        return SQL(name)

def other():
    return cast(SQL, "a"), rows.SQL("b")
"""

    assert list(users_of(ast.parse(code), "SQL")) == ["Dialect.quote", "Dialect.quote", "other", "other"]


def test_text_of_a_catalogue_becomes_sql_only_where_constraints_are_looked_at() -> None:
    assert found_by(lambda tree: users_of(tree, "of_catalogue")) == sorted(IN_CATALOGUE)
