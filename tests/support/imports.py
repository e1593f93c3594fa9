"""Finders over source code: what a file imports and where, which AWS operations it names, which clients it creates."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DYNAMODB_CALLS = {
    "get_item", "put_item", "update_item", "delete_item", "batch_get_item", "batch_write_item", "transact_get_items",
    "transact_write_items", "scan", "describe_table", "update_table", "delete_table", "update_time_to_live",
    "describe_time_to_live", "update_continuous_backups", "describe_continuous_backups", "execute_statement",
}  # fmt: skip
S3_CALLS = {
    "list_objects_v2", "list_object_versions", "head_object", "get_object", "put_object", "copy_object",
    "delete_object", "delete_objects", "head_bucket", "create_bucket", "upload_file",
    "upload_fileobj", "download_file", "list_buckets",
}  # fmt: skip

MAKERS = ("client", "resource", "aws_client")
"""Functions that make clients."""


@cache
def parse(path: Path) -> ast.Module:
    """Return a file's tree, parsed once; callers must not change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def imports_of(tree: ast.AST, place: str = "module") -> Iterator[tuple[str, str]]:
    """Yield each imported name with its place: at module level, in a function, or for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, place) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((f"{node.module}.{alias.name}", place) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports_of(ast.Module(node.body, []), "typing")
            yield from imports_of(ast.Module(node.orelse, []), place)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports_of(node, "function" if place == "module" else place)
        elif not isinstance(node, ast.expr):  # Expressions hold no imports, and most nodes of a tree are expressions.
            yield from imports_of(node, place)


@cache
def _imports_of_file(path: Path) -> tuple[tuple[str, str], ...]:
    return tuple(imports_of(parse(path)))


def names_imported(path: Path, *places: str) -> list[str]:
    """Return every name that a file imports, with its module; by default at any place."""
    return [name for name, place in _imports_of_file(path) if not places or place in places]


def packages_of(path: Path, *places: str) -> set[str]:
    """Return the top-level packages that a file imports at the given places."""
    return {name.partition(".")[0] for name in names_imported(path, *places)}


def calls_of(tree: ast.AST, operations: set[str]) -> set[str]:
    """Return the AWS operations that a file names, as an attribute or as a text."""
    return operations & attributes_of(tree)


@cache
def attributes_of(tree: ast.AST) -> frozenset[str]:
    """Return the attributes that a file reads, and all of its texts, because `getattr` takes a text."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found)


def clients_of(tree: ast.AST) -> set[str]:
    """Return the services for which a file creates boto3 clients or resources."""
    made = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in MAKERS:
            made |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return {service for service in made if isinstance(service, str)}
