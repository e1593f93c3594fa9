"""The rooms: who may import whom, and where boto3, pyspark, awsglue, S3 and DynamoDB may be named.

Each test is one rule. It reads every file that the rule covers and lists all violations, as ``file -> what``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.imports import (
    DYNAMODB_CALLS,
    S3_CALLS,
    attributes_of,
    calls_of,
    clients_of,
    files_below,
    imports_of,
    names_imported,
    packages_of,
    parse,
)
from tests.support.places import REPOSITORY

SCRIPTS, TESTS = REPOSITORY / "scripts", REPOSITORY / "tests"
HELPERS = SCRIPTS / "helpers"
START = "scripts.helpers."

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "display": {"errors"},
    "glue_api": {"display"},
    "spark": {"errors"},
    "protocol": {"display"},
    "rows": {"spark", "protocol.values", "protocol.names", "protocol.fields", "protocol.packed_json"},
    "sql": {"rows"},
    "databases": {"sql"},
    "listing": {"display", "rows.sql"},
    "schemas": {"protocol.fields", "protocol.packed_json"},
    "reading": {"listing", "schemas", "spark", "rows.dialect", "rows.sql"},
    "files": {"reading", "protocol.chunks", "protocol.fields", "protocol.names", "protocol.values"},
    "sinks": {
        "listing",
        "sql",
        "schemas",
        "reading.dialects",
        "protocol.names",
        "protocol.outputs",
        "protocol.values",
    },
    "tables": {"rows", "sinks.connectors", "sinks.places", "protocol.names"},
    "relational": {"protocol"},
    "metrics": {"states"},
    "decisions": {"states"},
    "states": {
        "protocol",
        "rows.coverage",
        "rows.options",
        "rows.states",
        "files.states",
        "tables.spans",
        "relational.ids",
        "schemas.kept",
    },
    "watermarks": {"decisions", "metrics", "rows", "states"},
    "batch": {"watermarks", "files", "sinks", "tables", "metrics", "relational", "schemas"},
    "job": {"batch", "glue_api"},
    "backfill": {"job"},
    "file_bookmark": {"files"},
    "glue": {"job", "databases", "glue_api"},
    "job_runs": {"watermarks", "reading", "glue_api"},
}
"""What each door and room may import: rooms or single modules of rooms, and everything that those may import."""
IN_A_CIRCLE = {"scripts.helpers.files.spark": {"scripts.helpers.files.bookmark"}}
"""Imports that close a circle of files. The imports in the other direction are in a method or for type checkers."""
BESIDE = {"__init__", "_lazy"}
"""Modules through which rooms export names; they are not rooms."""

BOTO3_USERS = {
    "protocol/dynamodb.py", "glue_api/errors.py", "glue_api/pages.py", "glue_api/runs.py", "listing/events.py",
    "listing/s3.py", "listing/bucket_pages.py", "listing/inventory.py", "listing/listing.py", "reading/fetch.py",
    "listing/clearing.py", "files/segment_files.py",
    "sinks/places.py", "glue/catalog.py", "databases/login.py",
    "job_runs/shapes.py", "display/redaction.py",
}  # fmt: skip
MAKERS = {"display/redaction.py", "cli/surroundings.py"}
"""Modules that import boto3 itself: one creates clients and installs the log filter, one chooses their profile."""
S3_CALLERS = {
    "listing/s3.py", "listing/bucket_pages.py", "listing/inventory.py", "listing/listing.py", "reading/fetch.py",
    "listing/clearing.py", "files/segment_files.py",
    "sinks/places.py",
}  # fmt: skip
OF_THE_JVM = {
    "sparkContext", "_sc", "_jvm", "_jsc", "_jconf", "_jdf", "_jo", "_jsparkSession", "_jwrite", "_jreader", "rdd",
}  # fmt: skip
"""Attributes of sessions and DataFrames that need Spark's JVM in this process."""
NAMESAKES = {
    "listing/metadata_tables.py": {"scan"},
    "sinks/iceberg.py": {"scan"}, "tables/delta.py": {"scan"}, "tables/iceberg.py": {"scan"},
    "sinks/targets.py": {"scan"}, "glue/catalog.py": {"create_table", "update_table"},
}  # fmt: skip
"""Methods of pyiceberg and deltalake tables, and of Glue, that have the same name as an operation of DynamoDB."""

HELPER_FILES = files_below(HELPERS)
JOB_FILES = files_below(SCRIPTS / "jobs")
FACES = [path for path in HELPER_FILES if path.name == "__init__.py" and path.parent != HELPERS]
ROOMS = sorted(path.parent.name for path in FACES)


def label(path: Path) -> str:
    """Return a file's path relative to `helpers`, or to `scripts` if it is not in `helpers`."""
    return path.relative_to(HELPERS if path.is_relative_to(HELPERS) else SCRIPTS).as_posix()


def room_of(path: Path) -> str:
    """Return the name of the room that a file is in, or of the door if the file is one."""
    return label(path).partition("/")[0].removesuffix(".py")


def shown(files: Iterable[Path], find: Callable[[Path], Iterable[str]]) -> list[str]:
    """Return everything that `find` finds in the files, as ``file -> what``."""
    return [f"{label(path)} -> {found}" for path in files for found in sorted(set(find(path)))]


@cache
def may_import(room: str) -> frozenset[str]:
    """Return all rooms, and modules of rooms, that a room may import."""
    allowed = frozenset(MAY_IMPORT[room])
    for part in MAY_IMPORT[room]:
        allowed |= may_import(part) if part in MAY_IMPORT else {"errors", "display"}
    return allowed


def helpers_imported(path: Path) -> list[str]:
    """Return the modules of `helpers` that a file imports, as `room.module`, including imports for type checkers."""
    names = [name.removeprefix(START) for name in names_imported(path) if name.startswith(START)]
    return [name if (HELPERS / f"{name.replace('.', '/')}.py").exists() else name.rpartition(".")[0] for name in names]


def not_allowed(path: Path) -> set[str]:
    """Return the rooms that a file imports although the table does not allow it."""
    room = room_of(path)
    allowed = {room, "_lazy"} | (may_import(room) if room in MAY_IMPORT else {"errors"})
    used = {module: module.partition(".")[0] for module in helpers_imported(path)}
    return {of for module, of in used.items() if not {module, of} & allowed}


def programs_imported(path: Path) -> set[str]:
    """Return the programs that a file imports. Programs may import all rooms, but no room may import a program."""
    second = {name.split(".")[1] for name in names_imported(path) if name.startswith("scripts.")}
    return second & {"cli", "demo", "jobs", "report"}


def private_names_imported(path: Path) -> set[str]:
    """Return the names with a leading underscore that a file imports from another room or program."""
    own = "scripts." + (START.removeprefix("scripts.") if path.is_relative_to(HELPERS) else "") + room_of(path)
    names = {name for name in names_imported(path) if name.startswith("scripts.") and not name.startswith(own + ".")}
    return {name for name in names if re.search(r"\._(?!lazy\b|_)", name)}


def test_every_door_and_room_is_in_the_table_when_files_are_listed() -> None:
    assert {room_of(path) for path in HELPER_FILES} == set(MAY_IMPORT) | BESIDE


def test_table_has_no_circle_when_followed() -> None:
    assert [room for room in MAY_IMPORT if room in may_import(room)] == []


def test_files_of_rooms_have_no_circle_when_their_imports_are_followed() -> None:
    """Imports for type checkers count. Those of faces do not, because a face exports the names of its room."""
    modules = {f"scripts.helpers.{label(path)[:-3].replace('/', '.')}": path for path in HELPER_FILES}

    def imported(path: Path) -> set[str]:
        return {name if name in modules else name.rpartition(".")[0] for name in names_imported(path)}

    graph = {module: imported(path) - IN_A_CIRCLE.get(module, set()) for module, path in modules.items()}
    TopologicalSorter({module: found for module, found in graph.items() if "__init__" not in module}).prepare()


def test_room_imports_only_what_the_table_allows_when_read() -> None:
    assert shown(HELPER_FILES, not_allowed) == []


def test_helper_imports_no_program_when_read() -> None:
    assert shown(HELPER_FILES, programs_imported) == []


def test_job_does_not_import_the_demo_when_read() -> None:
    assert shown(JOB_FILES, lambda path: programs_imported(path) & {"demo"}) == []


def test_private_name_stays_in_its_room_when_files_are_read() -> None:
    assert shown(files_below(SCRIPTS), private_names_imported) == []


def test_room_says_what_it_must_not_depend_on_when_its_face_is_read() -> None:
    assert [path for path in FACES if "must not depend on" not in (ast.get_docstring(parse(path)) or "").lower()] == []


def test_test_uses_private_names_only_of_its_own_room_when_read() -> None:
    """Uses are attributes, imports, and texts such as those of `monkeypatch.setattr`."""
    defined = re.compile(r"(?:self\.|cls\.|def |^ *)(_[a-z]\w*[a-z])(?=\(| *[:=,])", re.MULTILINE)
    ways = r"(?<!self)(?<!cls)(?<!super\(\))\.", r"\bimport .*(?<!\w)", r"setattr\(.*[\"']"
    reached = re.compile(rf"(?:{'|'.join(ways)})(_[a-z]\w*[a-z])\b")
    private: dict[str, set[str]] = defaultdict(set)
    for path in files_below(SCRIPTS):
        private[room_of(path)] |= set(defined.findall(path.read_text(encoding="utf-8")))
    everywhere = set().union(*private.values())

    def reaching(path: Path) -> set[str]:
        own = private[path.relative_to(TESTS).parts[0]] | BESIDE | {"_replace"}  # Every NamedTuple has _replace.
        return set(reached.findall(path.read_text(encoding="utf-8"))) & everywhere - own

    found = {path.relative_to(TESTS).as_posix(): reaching(path) for path in files_below(TESTS)}
    assert {path: names for path, names in found.items() if names} == {}


def test_class_has_a_unique_name_when_scripts_are_read() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in files_below(SCRIPTS):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(label(path))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_function_has_a_unique_name_when_it_is_imported_by_name() -> None:
    """Functions that are called through their modules, such as `shapes.check`, may share a name."""
    imported = {name for path in files_below(SCRIPTS) for name in names_imported(path)}
    places: dict[str, list[str]] = defaultdict(list)
    for path in HELPER_FILES:
        module = START + label(path).removesuffix(".py").replace("/", ".")
        for node in parse(path).body:
            if isinstance(node, ast.FunctionDef) and f"{module}.{node.name}" in imported:
                places[node.name].append(label(path))

    assert places
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_room_is_in_the_map_when_contributors_read_it() -> None:
    text = (REPOSITORY / "docs" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Where things are\n")[2].partition("\n## ")[0]

    assert sorted(set(re.findall(r"`scripts/helpers/(\w+)/`", section))) == ROOMS


def test_pure_module_imports_no_client_and_no_spark_when_read() -> None:
    unfit = {"boto3", "botocore", "pyspark", "awsglue", "mypy_boto3_dynamodb", "mypy_boto3_s3"}
    docstrings = {path: ast.get_docstring(parse(path)) or "" for path in HELPER_FILES}
    pure = [path for path, docstring in docstrings.items() if docstring.split("\n\n")[0].endswith(" Pure.")]

    assert pure
    assert shown(pure, lambda path: packages_of(path) & unfit) == []


def test_boto3_is_imported_only_where_a_service_is_called_when_helpers_are_read() -> None:
    files = [path for path in HELPER_FILES if label(path) not in BOTO3_USERS]

    assert shown(files, lambda path: packages_of(path, "module", "function") & {"boto3", "botocore"}) == []


def test_boto3_itself_is_imported_only_where_clients_are_made_when_scripts_are_read() -> None:
    files = [path for path in files_below(SCRIPTS) if label(path) not in MAKERS]

    assert shown(files, lambda path: {"boto3"} & set(names_imported(path, "module", "function"))) == []


def test_dynamodb_is_called_from_only_one_module_when_helpers_and_jobs_are_read() -> None:
    files = [path for path in HELPER_FILES + JOB_FILES if label(path) != "protocol/dynamodb.py"]

    def calls(path: Path) -> set[str]:
        found = calls_of(parse(path), DYNAMODB_CALLS - NAMESAKES.get(label(path), set()))
        return found | clients_of(parse(path)) & {"dynamodb"}

    assert shown(files, calls) == []


def test_s3_is_called_only_where_objects_are_listed_or_fetched_when_helpers_and_jobs_are_read() -> None:
    files = [path for path in HELPER_FILES + JOB_FILES if label(path) not in S3_CALLERS]

    assert shown(files, lambda path: calls_of(parse(path), S3_CALLS) | clients_of(parse(path)) & {"s3"}) == []


def test_file_that_may_call_a_service_exists_when_the_lists_are_read() -> None:
    assert {label(path) for path in HELPER_FILES} >= BOTO3_USERS | S3_CALLERS


def test_pyspark_is_not_imported_at_module_level_when_helpers_are_read() -> None:
    assert shown(HELPER_FILES, lambda path: packages_of(path, "module") & {"pyspark"}) == []


def test_jvm_is_reached_only_through_the_room_spark_when_scripts_are_read() -> None:
    """A Spark Connect session has none of these attributes, and raises a PySpark error for each."""
    files = [path for path in HELPER_FILES + JOB_FILES + files_below(SCRIPTS / "cli") if room_of(path) != "spark"]

    assert shown(files, lambda path: attributes_of(parse(path)) & OF_THE_JVM) == []


def test_awsglue_is_imported_in_one_file_at_most_when_scripts_are_read() -> None:
    assert len(shown(files_below(SCRIPTS), lambda path: packages_of(path) & {"awsglue"})) <= 1


def test_nothing_happens_at_import_when_helpers_are_read() -> None:
    def statements(path: Path) -> list[str]:
        acting = (ast.Expr, ast.For, ast.While, ast.With)
        found = [ast.unparse(node) for node in parse(path).body if isinstance(node, acting)]
        return [code for code in found if not code.startswith(("'", '"'))]

    assert shown(HELPER_FILES, statements) == []


# --- tests of the finders --------------------------------------------------------------------------


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


@pytest.mark.parametrize("source", ["spark._jvm.java", "getattr(df, '_jvm', None)", "hasattr(spark, '_jvm')"])
def test_attribute_is_found_when_read_or_asked_for_by_its_name(source: str) -> None:
    assert attributes_of(ast.parse(source)) & OF_THE_JVM == {"_jvm"}


@pytest.mark.parametrize("source", ["boto3.client('s3')", "session.resource('s3', config=c)", "aws_client('s3')"])
def test_client_is_found_when_made(source: str) -> None:
    assert clients_of(ast.parse(source)) == {"s3"}
