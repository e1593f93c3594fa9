"""Data never becomes code: nothing unpickles or evaluates it, or has Spark build a type from unchecked JSON."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import files_below, imports_of, parse
from tests.support.places import REPOSITORY

HELPERS = REPOSITORY / "scripts" / "helpers"
UNPACKERS = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
"""Modules that execute the data they read, or turn it into code."""
RUNNERS = {"eval", "exec", "compile", "__import__"}
"""Built-in functions that turn text into code."""
MAKERS = {"fromJson", "_parse_datatype_json_string", "_parse_datatype_json_value"}
"""PySpark functions that build a type from JSON. They import, and may unpickle, the class that the JSON names."""
ALLOWED = {
    (HELPERS / "schemas" / "spark_frames.py", "T.StructType.fromJson in struct_of"),
    # Not PySpark's function but one in Spark's JVM: it parses an action that Delta wrote to its log.
    (HELPERS / "tables" / "delta.py", "java.org.apache.spark.sql.delta.actions.Action.fromJson in appended"),
}
"""The one function that checks the JSON first, and a function with the same name."""


def unfit(tree: ast.AST, inside: str = "module") -> Iterator[str]:
    """Yield each expression or import that turns data into code; an expression with the function that it is in."""
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else inside
        if isinstance(node, ast.Attribute) and node.attr in MAKERS:
            yield f"{ast.unparse(node)} in {name}"
        elif isinstance(node, ast.Name) and node.id in RUNNERS | MAKERS:
            yield f"{node.id} in {name}"
        elif isinstance(node, ast.Constant) and node.value in MAKERS:  # As in getattr(x, "fromJson").
            yield f"{node.value!r} in {name}"
        yield from unfit(node, name)
    if isinstance(tree, ast.Module):
        for imported, _ in imports_of(tree):
            parts = imported.split(".")
            if UNPACKERS & set(parts) or parts[-1] in MAKERS:
                yield imported


def test_no_module_makes_code_of_data_when_scripts_are_read() -> None:
    found = {(path, what) for path in files_below(REPOSITORY / "scripts") for what in unfit(parse(path))}

    assert found - ALLOWED == set()
    assert {path for path, _ in ALLOWED} == {path for path, _ in found}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from pyspark import cloudpickle", ["pyspark.cloudpickle"]),
        ("def f():\n    from marshal import loads", ["marshal.loads"]),
        ("exec(compile(text, '', 'exec'))", ["exec in module", "compile in module"]),
        ("def f(text):\n    return eval(text)", ["eval in f"]),
        ("run = eval", ["eval in module"]),
        ("def f():\n    return StructType.fromJson({})", ["StructType.fromJson in f"]),
        ("getattr(StructType, 'fromJson')({})", ["'fromJson' in module"]),
        ("from pyspark.sql.types import _parse_datatype_json_value", [
            "pyspark.sql.types._parse_datatype_json_value"]),
        ("re.compile('a')\nmodel.eval()\nself.exec()", []),
    ],
)  # fmt: skip
def test_code_made_of_data_is_found_with_its_function_when_written(source: str, found: list[str]) -> None:
    assert list(unfit(ast.parse(source))) == found


def test_allowed_file_exists_when_the_list_is_read() -> None:
    assert [path for path, _ in ALLOWED if not Path(path).exists()] == []
