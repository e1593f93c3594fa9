"""The sampler of mutants: what it changes, and which tests it runs."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.changes import mutants_of
from tests.mutants.covering import covering_tests
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.if_changed("mutants")


def changes_of(source: str) -> list[str]:
    """Return the source with each change."""
    given = source.encode()
    return [mutant.applied(given).decode() for mutant in mutants_of("a.py", given)]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a == b", ["(a != b)"]),
        ("a < b", ["(a >= b)", "(a <= b)"]),
        ("a in b", ["(a not in b)"]),
        ("a and b", ["(a or b)"]),
        ("é and not b", ["(é or (not b))", "é and (b)"]),
        ("x = 3", ["x = (4)", "x = (2)"]),
        ("x = True", ["x = (False)"]),
        ("x = a['key']", ["x = (a['key_'])"]),
        ("x = f(a, b, c=d)", ["x = (f(b, a, c=d))"]),
        ("x = max(a, b)", []),
        ("x = zip(a, strict=True)", []),
        ("def f():\n    return False", ["def f():\n    return (True)"]),
        ("f(a)", ["pass"]),
        ("a.b = c", ["pass"]),
        ("def f() -> Literal[1]:\n    return a", ["def f() -> Literal[1]:\n    return None"]),
        ("def f(a: dict[str, 1] = ()) -> None:\n    'Return 1.'\n    return None", []),
        ("if TYPE_CHECKING:\n    a = 1", []),
        ("x = f'{a + 1}'", []),
    ],
)
def test_each_fault_is_made_once_when_code_has_the_place_for_it(source: str, changed: list[str]) -> None:
    found = changes_of(source)

    assert [ast.dump(ast.parse(code)) for code in found] == [ast.dump(ast.parse(code)) for code in changed]


def test_mutant_names_its_function_when_it_is_in_a_method() -> None:
    (mutant,) = mutants_of("a.py", b"class A:\n    def f(self):\n        return self.a\n")

    assert (mutant.line, mutant.function, mutant.code) == (3, "A.f", "return self.a")


def test_tests_of_the_room_come_first_when_a_module_has_some() -> None:
    found = covering_tests(REPOSITORY, "scripts/helpers/listing/ranges.py")

    assert found[0].startswith("tests/listing/test_ranges")
    assert "tests/reading/test_fetched_lines.py" not in found


def test_tests_of_importing_rooms_come_after_those_of_the_room() -> None:
    found = covering_tests(REPOSITORY, "scripts/helpers/listing/s3.py")

    assert found.index("tests/listing/test_paths.py") < found.index("tests/reading/test_fetch_refused.py")
    assert not any(path.startswith("tests/rows/") for path in found)


def test_tests_of_the_same_name_come_first_when_others_are_cheaper() -> None:
    assert covering_tests(REPOSITORY, "scripts/helpers/files/ledger.py")[0] == "tests/files/test_ledger.py"


def test_searches_come_after_quick_tests_when_a_room_has_both() -> None:
    found = covering_tests(REPOSITORY, "scripts/helpers/protocol/head.py")

    assert found.index("tests/watermarks/test_retention.py") < found.index("tests/protocol/test_state_machine.py")


def test_tests_of_helpers_rooms_come_before_those_of_programs() -> None:
    found = covering_tests(REPOSITORY, "scripts/helpers/job.py")

    assert found.index("tests/batch/test_unsaved_run.py") < found.index("tests/cli/test_page.py")


def test_tests_of_the_users_are_run_when_a_room_has_none_of_its_own() -> None:
    assert any(path.startswith("tests/cli/") for path in covering_tests(REPOSITORY, "scripts/helpers/display/units.py"))
