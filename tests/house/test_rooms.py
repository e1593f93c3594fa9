"""The rooms: who may import whom, and where boto3, pyspark, awsglue, S3 and DynamoDB may be named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"
HELPERS = SCRIPTS / "helpers"

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "_lazy": set(),
    "_moved": set(),
    "display": {"errors"},
    "glue_api": {"errors"},
    "protocol": {"display"},
    "rows": {"protocol.values", "protocol.names"},
    "databases": {"rows"},
    "listing": {"display"},
    "reading": {"listing"},
    "files": {"reading", "protocol.chunks"},
    "sinks": {"listing", "protocol.names"},
    "relational": {"protocol"},
    "metrics": {"protocol"},
    "decisions": {"protocol"},
    "watermarks": {"decisions", "rows"},
    "batch": {"watermarks", "files", "sinks", "metrics", "relational"},
    "job": {"batch"},
    "backfill": {"job"},
    "file_bookmark": {"files"},
    "glue": {"job", "databases", "glue_api"},
    "job_runs": {"watermarks", "reading", "glue_api"},
}
"""What each door and room may import: rooms, or single modules of rooms, and whatever those rooms may import."""
STILL_TO_CUT = {
    ("batch.batch", "glue_api"),
    ("decisions.administration", "rows"),
    ("protocol.history", "rows"),
    ("protocol.lookups", "rows"),
}
"""Arrows that run back up today."""

ABOVE = {"cli", "demo", "jobs", "report"}
"""Programs: they may import everything, and nothing in `helpers` imports them."""

BOTO3_USERS = {
    "protocol.store", "glue_api.errors", "glue_api.pages", "glue_api.runs", "listing.events", "listing.s3",
    "listing.bucket_pages", "listing.inventory", "reading.fetch", "files.segment_files", "sinks.pandas_files",
    "glue.catalog",
}  # fmt: skip
S3_CALLERS = {
    "listing.s3", "listing.bucket_pages", "listing.inventory", "reading.fetch", "files.segment_files",
    "sinks.pandas_files",
}  # fmt: skip

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


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def label(path: Path) -> str:
    """Return a file's name as a module below `helpers`, or its path where it is elsewhere."""
    if path.is_relative_to(HELPERS):
        return path.relative_to(HELPERS).with_suffix("").as_posix().replace("/", ".")
    return path.relative_to(SCRIPTS).as_posix()


def may_import(room: str) -> set[str]:
    """Return every room, and module of a room, that a room may import."""
    allowed = set(MAY_IMPORT[room])
    for part in MAY_IMPORT[room]:
        allowed |= may_import(part) if part in MAY_IMPORT else {"errors", "display"}
    return allowed


def helpers_imported(path: Path) -> set[str]:
    """Return what a file imports of `helpers`, as modules; type checking included."""
    start = "scripts.helpers."
    names = {name.removeprefix(start) for name, _ in imports_of(parse(path)) if name.startswith(start)}
    return {name if (HELPERS / f"{name.replace('.', '/')}.py").exists() else name.rpartition(".")[0] for name in names}


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
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imports_of(node, "function" if place == "module" else place)
        else:
            yield from imports_of(node, place)


def packages_of(path: Path, *places: str) -> set[str]:
    """Return the top-level packages that a file imports at the given places."""
    return {name.partition(".")[0] for name, place in imports_of(parse(path)) if place in places}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def own_imports(path: Path, package: str) -> set[str]:
    """Return the modules of `scripts.<package>` that a file imports, type checking included."""
    start = f"scripts.{package}."
    return {name.removeprefix(start).partition(".")[0] for name, _ in imports_of(parse(path)) if name.startswith(start)}


def calls_of(tree: ast.AST, operations: set[str]) -> set[str]:
    """Return the AWS operations that a file names, as a method of something or as a text."""
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return operations & (methods | texts)


def clients_of(tree: ast.AST) -> set[str]:
    """Return the services that a file makes boto3 clients or resources for."""
    made = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("client", "resource")
        ):
            made |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return {service for service in made if isinstance(service, str)}


all_helpers = pytest.mark.parametrize("path", files_below(HELPERS), ids=label)
helpers_and_jobs = pytest.mark.parametrize("path", files_below(HELPERS) + files_below(SCRIPTS / "jobs"), ids=label)


def test_every_door_and_room_is_in_the_table_when_files_are_listed() -> None:
    found = {label(path).partition(".")[0] for path in files_below(HELPERS)} - {"__init__"}

    assert found == set(MAY_IMPORT)


def test_table_has_no_circle_when_followed() -> None:
    assert [room for room in MAY_IMPORT if room in may_import(room)] == []


@all_helpers
def test_room_imports_only_what_the_table_allows_when_read(path: Path) -> None:
    module = label(path)
    room = module.partition(".")[0]
    allowed = {room, "_lazy"} | (may_import(room) if room in MAY_IMPORT else {"_moved"})

    used = {name for name in helpers_imported(path) if not {name.partition(".")[0], name} & allowed}
    assert {(module, name.partition(".")[0]) for name in used} <= STILL_TO_CUT


@all_helpers
def test_helper_imports_no_program_when_read(path: Path) -> None:
    assert {package for package in ABOVE if own_imports(path, package)} == set()


@pytest.mark.parametrize("path", files_below(SCRIPTS / "jobs"), ids=label)
def test_job_does_not_import_the_demo_when_read(path: Path) -> None:
    assert own_imports(path, "demo") == set()


@all_helpers
def test_room_says_what_it_may_not_know_when_it_is_a_package(path: Path) -> None:
    if path.name == "__init__.py" and path.parent != HELPERS:
        assert "May not know:" in (ast.get_docstring(parse(path)) or "")


@all_helpers
def test_pure_module_imports_no_client_and_no_spark_when_read(path: Path) -> None:
    first_lines = (ast.get_docstring(parse(path)) or "").split("\n\n")[0]
    if first_lines.endswith(" Pure."):
        used = packages_of(path, "module", "function", "typing")

        assert not used & {"boto3", "botocore", "pyspark", "awsglue", "mypy_boto3_dynamodb", "mypy_boto3_s3"}


@all_helpers
def test_helper_imports_boto3_where_a_service_is_called_only_when_read(path: Path) -> None:
    used = packages_of(path, "module", "function") & {"boto3", "botocore"}

    assert not used or label(path) in BOTO3_USERS


@helpers_and_jobs
def test_dynamodb_is_called_from_store_only_when_read(path: Path) -> None:
    tree = parse(path)

    found = calls_of(tree, DYNAMODB_CALLS) | (clients_of(tree) & {"dynamodb"})
    assert not found or label(path) == "protocol.store"


@helpers_and_jobs
def test_s3_is_called_where_objects_are_listed_or_fetched_only_when_read(path: Path) -> None:
    tree = parse(path)

    found = calls_of(tree, S3_CALLS) | (clients_of(tree) & {"s3"})
    assert not found or label(path) in S3_CALLERS


@all_helpers
def test_pyspark_is_imported_where_a_dataframe_is_made_only_when_read(path: Path) -> None:
    assert "pyspark" not in packages_of(path, "module")


def test_awsglue_is_imported_in_one_file_at_most_when_scripts_are_read() -> None:
    users = [
        label(path) for path in files_below(SCRIPTS) if "awsglue" in packages_of(path, "module", "function", "typing")
    ]

    assert len(users) <= 1


@all_helpers
def test_nothing_happens_at_import_when_a_helper_is_read(path: Path) -> None:
    body = parse(path).body

    calls = [ast.unparse(node) for node in body if isinstance(node, (ast.Expr, ast.For, ast.While, ast.With))]
    # The one call lets modules that were moved be found by their old names.
    assert [call for call in calls if not call.startswith(("'", '"')) and call != "_moved.install()"] == []


# --- the finders themselves ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pyspark.sql", [("pyspark.sql", "module")]),
        ("try:\n    from pyspark import sql\nexcept ImportError:\n    pass", [("pyspark.sql", "module")]),
        ("class A:\n    import pyspark", [("pyspark", "module")]),
        ("def f():\n    if 1:\n        import pyspark", [("pyspark", "function")]),
        (
            "if TYPE_CHECKING:\n    import pyspark\nelse:\n    import boto3",
            [("pyspark", "typing"), ("boto3", "module")],
        ),
        ("if typing.TYPE_CHECKING:\n    from pyspark import sql", [("pyspark.sql", "typing")]),
    ],
)
def test_import_is_found_with_its_place_when_nested(source: str, found: list[tuple[str, str]]) -> None:
    assert list(imports_of(ast.parse(source))) == found


@pytest.mark.parametrize("source", ["client.put_item()", "getattr(client, 'put_item')()", "f = a.b.put_item"])
def test_aws_call_is_found_when_written_as_method_or_text(source: str) -> None:
    assert calls_of(ast.parse(source), DYNAMODB_CALLS) == {"put_item"}


@pytest.mark.parametrize("source", ["boto3.client('s3')", "session.resource('s3', config=c)"])
def test_client_is_found_when_made(source: str) -> None:
    assert clients_of(ast.parse(source)) == {"s3"}
