"""What counts as a new file: invalid options, globs, Spark's rule for hidden files, and the order of batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.display.options import options_of
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.files.rules import FileOptions, folders_of, hidden, oldest_first
from scripts.helpers.listing.objects import LISTED
from scripts.helpers.listing.paths import is_hidden
from tests.support.buckets import NOON
from tests.support.reasons import because

BAD = [
    ("max_files", 0, "Use a whole number from 1."),
    ("max_files", 1.5, "Use a whole number from 1."),
    ("max_files", True, "Use a whole number from 1."),
    ("max_bytes", -1, "Use a whole number from 1."),
    ("max_bytes", "1GB", "Use a whole number from 1."),
    ("workers", 0, "Use a whole number from 1."),
    ("min_size", -1, "Use a whole number from 0."),
    ("min_size", "1", "Use a whole number from 0."),
    ("delay", timedelta(seconds=-1), "Use a timedelta that is not negative."),
    ("delay", 5, "Use a timedelta that is not negative."),
    ("allowed_lateness", "1 day", "Use a timedelta that is not negative."),
    ("allowed_lateness", timedelta(days=2), "Omit it, or pass layout."),
    ("include", "*.csv", "Use a list of globs."),
    ("exclude", "*.csv", "Use a list of globs."),
    ("ready_marker", "", "Name an object, such as _SUCCESS."),
    ("ready_marker", "a/_SUCCESS", "Name an object, such as _SUCCESS."),
    ("layout", "day=%Y-%m-%d", "Use folders with a year and a slash at the end: day=%Y-%m-%d/."),
    ("layout", "month=%m/", "Use folders with a year and a slash at the end: day=%Y-%m-%d/."),
]


@pytest.mark.parametrize(("name", "value", "remedy"), BAD, ids=[f"{name}={value!r}" for name, value, _ in BAD])
def test_option_is_refused_with_its_remedy_when_it_makes_no_sense(name: str, value: Any, remedy: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        FileOptions(**{name: value})

    assert str(caught.value) == f"{name} is {value!r}. {remedy}"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("on_modified", "Use 'raise', 'skip' or 'take'."),
        ("compare", "Use 'etag' or 'mtime'."),
        ("on_archived", "Use 'raise', 'skip' or 'take'."),
        ("versioned", "Use True or False."),
        ("request_payer", "Use True or False."),
    ],
)
def test_choice_is_refused_with_the_others_when_there_is_none_of_that_name(name: str, remedy: str) -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        options_of(FileOptions, {name: "restore"})

    assert str(caught.value) == f"Option {name!r}: 'restore' is unknown. {remedy}"


@pytest.mark.parametrize("layout", ["%Y/%m/%d/%H/%M/", "%Y/%S/", "%Y/%c/", "%Y/%/"])
def test_layout_is_refused_when_it_is_finer_than_an_hour(layout: str) -> None:
    with pytest.raises(
        InvalidValueError, match=r"layout is .* in it is not a date or hour\. End it before that folder\."
    ):
        FileOptions(layout=layout)


@pytest.mark.parametrize("name", ["include", "exclude"])
@pytest.mark.parametrize(
    ("glob", "text"),
    [("a{b", r"The glob 'a\{b' has an open brace\. Close it"), ("[z-a]", r"The glob '\[z-a\]' is not valid\. Check")],
)
def test_glob_is_refused_when_its_brackets_are_wrong(name: str, glob: str, text: str) -> None:
    options: dict[str, Any] = {name: [glob]}

    with pytest.raises(InvalidValueError, match=text):
        FileOptions(**options)


@pytest.mark.parametrize(
    "layout", ["%Y/", "import_year=%Y/import_month=%m/import_day=%d/", "%Y/%-m/%-d/%I%p/", "%Y%%/"]
)
def test_layout_is_accepted_when_a_date_and_an_hour_decide_it(layout: str) -> None:
    assert FileOptions(layout=layout).layout == layout


# --- globs -------------------------------------------------------------------------------------------------------

GLOBS = [
    ("*.csv", ["a.csv", ".csv", "a\nb.csv"], ["a.csvx", "sub/a.csv", "a.CSV", "acsv"]),
    ("**.csv", ["a.csv", "sub/deep/a.csv"], ["a.csv.gz"]),
    ("sub/**", ["sub/a", "sub/deep/a"], ["sub", "other/sub/a"]),
    ("**/*.csv", ["sub/a.csv", "sub/deep/a.csv"], ["a.csv"]),
    ("year=20??/*", ["year=2013/a"], ["year=213/a", "year=20/3/a", "year=2013/m/a"]),
    ("*.{csv,json}", ["a.csv", "a.json"], ["a.orc", "a.{csv,json}"]),
    ("{a,{b,c}}.x", ["a.x", "b.x", "c.x"], ["d.x"]),
    ("[a-c].x", ["a.x", "c.x"], ["d.x", "-.x"]),
    ("[!a-c].x", ["d.x"], ["a.x"]),
    (r"\*.x", ["*.x"], ["a.x"]),
    ("a+b(1)|$^.x", ["a+b(1)|$^.x"], ["aab1.x"]),
    ("a,b}", ["a,b}"], ["a"]),
    ("🎉?.x", ["🎉é.x"], ["🎉.x"]),
    ("", [""], ["a"]),
]


@pytest.mark.parametrize(("glob", "fitting", "others"), GLOBS, ids=[glob for glob, _, _ in GLOBS])
def test_glob_fits_whole_keys_as_in_glue_when_it_has_signs(glob: str, fitting: list[str], others: list[str]) -> None:
    keys = [*fitting, *others]

    included = FileOptions(include=[glob]).chosen(listed(keys)).column("key").to_pylist()
    left = FileOptions(exclude=[glob]).chosen(listed(keys)).column("key").to_pylist()

    assert included == [key for key in fitting if not is_hidden(key)]
    assert left == [key for key in others if not is_hidden(key)]


def test_file_is_left_out_when_it_is_both_included_and_excluded() -> None:
    options = FileOptions(include=["*.csv", "sub/**"], exclude=["sub/old*", "b.*"])

    chosen = options.chosen(listed(["a.csv", "b.csv", "c.json", "sub/new.json", "sub/old.csv"]))

    assert chosen.column("key").to_pylist() == ["a.csv", "sub/new.json"]


@pytest.mark.parametrize(
    ("options", "key", "size", "reason"),
    [
        ({}, "a.csv", 0, None),
        ({}, "sub/_x", 1, "Spark hides it"),
        ({"min_size": 2}, "a.csv", 1, "its 1 bytes are fewer than min_size=2"),
        ({"include": ["*.json"]}, "a.csv", 1, "no glob of include=['*.json'] fits"),
        ({"exclude": ["*.csv"]}, "a.csv", 1, "a glob of exclude=['*.csv'] fits"),
        ({"include": ["*.csv"], "exclude": ["b*"], "min_size": 1}, "a.csv", 1, None),
    ],
)
def test_reason_says_which_rule_leaves_a_key_out_when_one_does(
    options: dict[str, Any], key: str, size: int, reason: str | None
) -> None:
    chosen = FileOptions(**options)

    found = chosen.reason_against(key, size)

    assert (found or "").startswith(reason or "")
    assert (found is None) == (reason is None) == (chosen.chosen(listed([key], size)).num_rows == 1)


# --- hidden files ------------------------------------------------------------------------------------------------

PARTS = st.sampled_from(
    ["_x", ".x", "_a=b", "_metadata", "_common_metadata_x", "a", "", "x._COPYING_", "d_$folder$", "é"]
)


@given(st.lists(st.lists(PARTS, min_size=1, max_size=4).map("/".join) | st.text(max_size=6), max_size=10))
def test_hidden_keys_are_those_of_sparks_rule_when_names_are_odd(keys: list[str]) -> None:
    keys = [key for key in keys if key.isascii() or key.encode("utf-8", "ignore").decode() == key]

    found = hidden(pa.array(keys, pa.string())).to_pylist()

    assert found == [is_hidden(key) for key in keys]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=10))
def test_folder_is_all_up_to_the_last_slash_when_names_are_odd(keys: list[str]) -> None:
    assert folders_of(pa.array(keys, pa.string())).to_pylist() == [key[: key.rfind("/") + 1] for key in keys]


# --- batches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_files", "max_bytes", "taken", "more"),
    [
        (None, None, "abcd", False),
        (1, None, "d", True),
        (2, None, "cd", True),
        (4, None, "abcd", False),
        (9, 9_999, "abcd", False),
        (None, 1, "d", True),
        (None, 10, "d", True),
        (None, 29, "d", True),
        (None, 30, "cd", True),
        (None, 100, "abcd", False),
        (2, 60, "cd", True),
        (3, 30, "cd", True),
    ],
)
def test_batch_is_the_oldest_that_fits_when_there_are_limits(
    max_files: int | None, max_bytes: int | None, taken: str, more: bool
) -> None:
    sizes = {"a": 40, "b": 30, "c": 20, "d": 10}
    rows = [row(key, size, 100 - size) for key, size in sizes.items()]

    found, has_more = oldest_first(pa.Table.from_pylist(rows, LISTED), max_files, max_bytes)

    assert sorted(found.column("key").to_pylist()) == sorted(taken)
    assert has_more is more


@pytest.mark.parametrize(("max_files", "max_bytes"), [(3, None), (None, 3)])
def test_batch_is_the_oldest_when_all_keys_are_more_than_an_array_holds(
    max_files: int | None, max_bytes: int | None
) -> None:
    """The chunks share their memory, so that 2 GiB of keys take 64 MiB."""
    count, chunks = 64, 33
    keys = pa.array([f"{number:02}" + "k" * 2**20 for number in range(count)])
    parts = [
        pa.table(
            {
                "key": keys, "etag": ["e"] * count, "version_id": pa.nulls(count), "size": [1] * count,
                "modified": [NOON - timedelta(seconds=chunk * count + number) for number in range(count)],
                "storage_class": pa.nulls(count),
            }
        ).cast(LISTED)
        for chunk in range(chunks)
    ]  # fmt: skip

    found, has_more = oldest_first(pa.concat_tables(parts), max_files, max_bytes)

    assert count * chunks * 2**20 >= 2**31
    assert [key[:2] for key in found.column("key").to_pylist()] == ["63", "62", "61"]
    assert has_more


def test_keys_decide_by_their_bytes_when_times_are_equal() -> None:
    rows = [row(key, 1, 0) for key in ("🎉", "\ue000", "b", "a")]

    found, _ = oldest_first(pa.Table.from_pylist(rows, LISTED), 3, None)

    assert found.column("key").to_pylist() == ["a", "b", "\ue000"]


@pytest.mark.parametrize("limits", [(1, None), (None, 1), (1, 1)])
def test_batch_is_empty_when_nothing_is_new_and_there_are_limits(limits: tuple[Any, Any]) -> None:
    found, has_more = oldest_first(LISTED.empty_table(), *limits)

    assert (found.num_rows, has_more) == (0, False)


def row(key: str, size: int = 1, age: int = 0) -> dict[str, Any]:
    return {"key": key, "etag": "e", "size": size, "modified": NOON - timedelta(seconds=age)}


def listed(keys: list[str], size: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(key, size) for key in keys], LISTED)
