"""The layers: who may import whom, and where boto3, pyspark and awsglue may be named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
HELPERS = SCRIPTS / "helpers"

GROUND = [
    {"errors"},
    {"glue_errors", "values", "ids", "identities", "spark_paths", "date_folders", "s3_client", "s3_errors"},
]
SHOWN = [{"units"}, {"tables"}]
"""How results show themselves; any helper may use it."""
TABLE = [
    *GROUND, *SHOWN, {"cursors"}, {"spill", "intervals", "modes"}, {"packed_intervals"}, {"coverage"},
    {"slices", "backfill_record", "records", "namespaces"}, {"items", "looked_up"}, {"requests", "job_metrics"},
    {"store", "heartbeat", "freshness", "job_report", "glue_runs", "pages"},
    {"retention", "job_list", "export_lines"}, {"run", "transfer"}, {"lookups", "doctor"},
    {"decisions", "last_success"}, {"adoption"}, {"administration"}, {"watermarks", "unsaved_run"}, {"end_of_run"},
]  # fmt: skip
SOURCES = [
    *GROUND, *SHOWN,
    {
        "spill", "listing_page", "listing_cuts", "file_rules", "file_diff", "file_segments", "inventory_files",
        "sorted_runs", "event_messages", "other_stores",
    },
    {"listing_ranges"}, {"bucket_pages"}, {"object_listing"},
    {"ledger_files", "object_fetch", "s3_inventory", "s3_events", "spark_reading"},
    {"file_ledger", "fetched_lines", "unchanged"}, {"file_memory", "small_files", "pandas_files", "pandas_writing"},
    {"file_delta", "file_sources", "file_plans", "file_explain", "file_range"}, {"file_choice"}, {"file_bookmark"},
    {"spark_bookmark"},
]  # fmt: skip
ROWS = [
    *GROUND, {"cursors"}, {"intervals"}, {"packed_intervals"}, {"coverage"},
    {"slices", "backfill_record", "sql_dialects"},
    {"row_window", "date_partitions", "sql_databases", "jdbc_errors", "jdbc_queries"},
    {"row_sources", "row_options", "row_counts", "sql_enterprise", "sql_sqlite"},
    {"row_plan", "dataframe_rows", "jdbc_rows", "pandas_rows"},
    {"row_range", "missing_keys", "postgres_snapshot", "slice_source"},
]  # fmt: skip
SINKS = [{"spark_writing"}]
RELATIONS = [*GROUND, {"relational_schema", "nested_order", "id_blocks"}, {"relationalize"}]
METRICS = [{"errors"}, {"job_report"}, {"embedded_metrics", "telemetry"}]
PURE = {
    "errors", "values", "ids", "identities", "spark_paths", "records", "items", "spill", "requests", "date_folders",
    "listing_page", "listing_cuts", "listing_ranges", "file_rules", "file_diff", "file_segments", "inventory_files",
    "sorted_runs", "event_messages", "cursors", "sql_dialects", "row_window", "date_partitions", "row_sources",
    "row_plan", "row_options", "coverage", "slices", "intervals", "packed_intervals", "backfill_record",
    "slice_source", "relational_schema", "id_blocks", "units", "tables", "looked_up", "sql_databases", "sql_enterprise",
    "sql_sqlite", "job_metrics",
    "export_lines", "freshness", "job_report", "embedded_metrics", "modes", "namespaces", "row_range",
}  # fmt: skip
FOLDERS = {"glue", "runs"}
"""Folders of helpers on top of all others: none of those knows them, nor do they know each other."""
S3_CALLERS = {"s3_client", "bucket_pages", "ledger_files", "object_fetch", "s3_inventory", "pandas_writing"}
BOTO3_USERS = {"store", "s3_events", "s3_errors", "glue_errors", "glue_runs", "pages", *S3_CALLERS}
BOTO3_USERS_IN_FOLDERS: set[str] = {"helpers/glue/catalog.py"}

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
    return path.relative_to(SCRIPTS).as_posix()


def may_import() -> dict[str, set[str]]:
    """Return what each helper may import of the other helpers."""
    allowed: dict[str, set[str]] = {}
    for tower in (TABLE, SOURCES, ROWS, SINKS, RELATIONS, METRICS):
        below: set[str] = set()
        for layer in tower:
            for module in layer:
                allowed[module] = set(below)
            below |= layer
    below = set(allowed)
    for module in ("batch", "file_batch", "job", "backfill"):
        allowed[module] = set(below)
        below.add(module)
    return allowed | {"job_runs": {*allowed["watermarks"], "watermarks", "runs"}}


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


def files_in_folders() -> list[Path]:
    return [path for folder in sorted(FOLDERS) for path in files_below(HELPERS / folder)]


helpers = pytest.mark.parametrize("path", sorted(HELPERS.glob("*.py")), ids=label)
all_helpers = pytest.mark.parametrize("path", files_below(HELPERS), ids=label)
helpers_and_jobs = pytest.mark.parametrize("path", files_below(HELPERS) + files_below(SCRIPTS / "jobs"), ids=label)


def test_every_helper_has_its_layer_when_files_are_listed() -> None:
    found = {path.stem for path in HELPERS.glob("*.py")} - {"__init__"}

    assert found == set(may_import())
    assert {path.name for path in HELPERS.iterdir() if (path / "__init__.py").exists()} <= FOLDERS


@helpers
def test_helper_imports_downwards_only_when_it_uses_another(path: Path) -> None:
    used = own_imports(path, "helpers")

    assert used <= may_import().get(path.stem, set())


@pytest.mark.parametrize("path", files_in_folders(), ids=label)
def test_folder_of_helpers_stands_alone_when_it_is_on_top(path: Path) -> None:
    used = own_imports(path, "helpers")

    assert used & FOLDERS <= {path.parent.name}
    assert not packages_of(path, "module", "function") & {"boto3", "botocore"} or label(path) in BOTO3_USERS_IN_FOLDERS


@all_helpers
def test_helper_imports_neither_jobs_nor_demo_when_read(path: Path) -> None:
    assert own_imports(path, "jobs") | own_imports(path, "demo") == set()


@pytest.mark.parametrize("path", files_below(SCRIPTS / "jobs"), ids=label)
def test_job_does_not_import_the_demo_when_read(path: Path) -> None:
    assert own_imports(path, "demo") == set()


@pytest.mark.parametrize("path", [HELPERS / f"{name}.py" for name in sorted(PURE)], ids=label)
def test_pure_module_imports_no_client_and_no_spark_when_read(path: Path) -> None:
    used = packages_of(path, "module", "function", "typing")

    assert not used & {"boto3", "botocore", "pyspark", "awsglue", "mypy_boto3_dynamodb", "mypy_boto3_s3"}


@helpers
def test_docstring_says_pure_when_the_module_is(path: Path) -> None:
    first_lines = (ast.get_docstring(parse(path)) or "").split("\n\n")[0]

    assert first_lines.endswith(" Pure.") == (path.stem in PURE)


@helpers
def test_helper_imports_boto3_where_a_service_is_called_only_when_read(path: Path) -> None:
    used = packages_of(path, "module", "function") & {"boto3", "botocore"}

    assert not used or path.stem in BOTO3_USERS


@helpers_and_jobs
def test_dynamodb_is_called_from_store_only_when_read(path: Path) -> None:
    tree = parse(path)

    found = calls_of(tree, DYNAMODB_CALLS) | (clients_of(tree) & {"dynamodb"})
    assert not found or path.stem == "store"


@helpers_and_jobs
def test_s3_is_called_where_objects_are_listed_or_fetched_only_when_read(path: Path) -> None:
    tree = parse(path)

    found = calls_of(tree, S3_CALLS) | (clients_of(tree) & {"s3"})
    assert not found or path.stem in S3_CALLERS


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
    assert [call for call in calls if not call.startswith(("'", '"'))] == []


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
