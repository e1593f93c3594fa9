"""`getResolvedOptions` returns and refuses the same as awsglue's, case by case."""

from __future__ import annotations

import argparse
import sys
import types
from typing import Any

import pytest

from scripts.helpers import glue
from scripts.helpers.errors import WatermarkError
from scripts.helpers.glue.arguments import getResolvedOptions
from scripts.helpers.glue_api.errors import GlueArgumentError
from scripts.helpers.glue_api.runs import on_glue

ALWAYS = {
    "job_bookmark_option", "job_bookmark_from", "job_bookmark_to", "JOB_ID", "JOB_RUN_ID", "SECURITY_CONFIGURATION",
    "encryption_type", "enable_data_lineage", "RedshiftTempDir", "TempDir",
}  # fmt: skip
PAUSE = ("--job-bookmark-option", "job-bookmark-pause")


def resolved(*args: str, options: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return getResolvedOptions(["script.py", *args], options, **more)


# --- what it returns -----------------------------------------------------------------------------------------------


def test_result_holds_all_of_glues_names_when_nothing_is_given() -> None:
    found = resolved()

    assert set(found) == ALWAYS
    assert found.pop("job_bookmark_option") == "job-bookmark-disable"
    assert set(found.values()) == {None}


def test_result_holds_what_was_asked_for_when_it_is_given_in_either_form() -> None:
    found = resolved("--JOB_NAME", "parking", "--my-day=Monday", options=("JOB_NAME", "my-day"))

    assert (found["JOB_NAME"], found["my_day"]) == ("parking", "Monday")
    assert set(found) == {*ALWAYS, "JOB_NAME", "my_day"}


def test_job_name_is_not_in_the_result_when_it_was_not_asked_for() -> None:
    assert "JOB_NAME" not in resolved("--JOB_NAME", "parking")


def test_ids_are_in_the_result_when_glue_passes_them_unrequested() -> None:
    given = {"JOB_ID": "j_1", "JOB_RUN_ID": "jr_1", "SECURITY_CONFIGURATION": "s"}

    found = resolved(*(part for name, value in given.items() for part in (f"--{name}", value)))

    assert given.items() <= found.items()


def test_first_argument_is_passed_over_when_it_is_the_script() -> None:
    assert getResolvedOptions(["--day=Monday", "--day=Friday"], ["day"])["day"] == "Friday"


def test_unknown_arguments_are_passed_over_when_they_are_glues_own() -> None:
    found = resolved("--enable-metrics", "true", "--day", "Monday", "--job-language", "python", options=("day",))

    assert found["day"] == "Monday"
    assert "enable_metrics" not in found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("--TempDir", "s3://a/"), ("s3://a/", "s3://a/")),
        (("--RedshiftTempDir", "s3://b/"), ("s3://b/", "s3://b/")),
        (("--TempDir", "s3://a/", "--RedshiftTempDir", "s3://b/"), ("s3://a/", "s3://a/")),
        ((), (None, None)),
    ],
    ids=["one", "old name", "both", "none"],
)
def test_temporary_folder_has_both_names_when_one_is_given(given: tuple[str, ...], expected: tuple[Any, Any]) -> None:
    found = resolved(*given, options=("TempDir",))

    assert (found["TempDir"], found["RedshiftTempDir"]) == expected


@pytest.mark.parametrize(
    ("given", "option"),
    [
        (("--job-bookmark-option", "job-bookmark-enable"), "job-bookmark-enable"),
        (PAUSE, "job-bookmark-pause"),
        (("--continuation-option", "continuation-enabled"), "job-bookmark-enable"),
        (("--continuation-option", "continuation-readonly"), "job-bookmark-pause"),
        (("--continuation-option", "continuation-ignore"), "job-bookmark-disable"),
        (("--continuation-option", "continuation-enabled", *PAUSE), "job-bookmark-pause"),
    ],
    ids=["enable", "pause", "old enable", "old pause", "old disable", "new wins over old"],
)
def test_bookmark_option_is_read_when_given_in_the_new_or_the_old_spelling(given: tuple[str, ...], option: str) -> None:
    found = resolved(*given)

    assert found["job_bookmark_option"] == option
    assert "continuation_option" not in found


def test_range_is_in_the_result_when_the_job_is_paused() -> None:
    found = resolved(*PAUSE, "--job-bookmark-from", "jr_1", "--job-bookmark-to", "jr_2")

    assert (found["job_bookmark_from"], found["job_bookmark_to"]) == ("jr_1", "jr_2")


@pytest.mark.parametrize("end", ["from", "to"])
def test_one_end_of_a_range_is_accepted_without_error_when_the_job_is_not_paused(end: str) -> None:
    found = resolved(f"--job-bookmark-{end}", "jr_1")

    assert found[f"job_bookmark_{end}"] == "jr_1"
    assert found["job_bookmark_option"] == "job-bookmark-disable"


def test_abbreviated_name_is_accepted_only_when_abbreviations_are_allowed() -> None:
    found = resolved("--da", "Monday", options=("day",), allow_abbrev=True)

    assert found["day"] == "Monday"
    with pytest.raises(GlueArgumentError, match="the following arguments are required: --day"):
        resolved("--da", "Monday", options=("day",))


# --- what it refuses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["JOB_RUN_ID", "JOB_ID", "SECURITY_CONFIGURATION", "encryption-type"])
def test_name_that_is_always_in_the_result_is_a_conflict_when_requested(name: str) -> None:
    with pytest.raises(argparse.ArgumentError) as caught:
        resolved("--JOB_RUN_ID", "jr_1", options=(name,))

    assert str(caught.value) == f"argument --{name}: conflicting option string: --{name}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("job-bookmark-option", "job-bookmark-option"),
        ("continuation-option", "continuation-option"),
        ("job-bookmark-from", "--job-bookmark-from"),
        ("job-bookmark-to", "--job-bookmark-to"),
    ],
)
def test_reserved_name_is_refused_when_asked_for(name: str, shown: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        resolved(options=(name,))

    assert str(caught.value) == f"Using reserved arguments {shown}"
    assert isinstance(caught.value, WatermarkError)


@pytest.mark.parametrize(("given", "missing"), [("from", "to"), ("to", "from")])
def test_pause_is_refused_when_one_end_of_the_range_is_missing(given: str, missing: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        resolved(*PAUSE, f"--job-bookmark-{given}", "jr_1")

    assert str(caught.value) == f"Missing option or value for --job-bookmark-{missing}"


@pytest.mark.parametrize("option", [(), ("--job-bookmark-option", "job-bookmark-enable")], ids=["default", "enable"])
def test_range_is_refused_when_the_job_is_not_paused(option: tuple[str, ...]) -> None:
    with pytest.raises(RuntimeError) as caught:
        resolved(*option, "--job-bookmark-from", "jr_1", "--job-bookmark-to", "jr_2")

    assert str(caught.value) == "Invalid option(s)--job-bookmark-from --job-bookmark-to"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--job-bookmark-option", "bogus"), "argument --job-bookmark-option: invalid choice: 'bogus' (choose from "),
        (("--continuation-option", "bogus"), "argument --continuation-option: invalid choice: 'bogus' (choose from "),
        (("--encryption-type", "bogus"), "argument --encryption-type: invalid choice: 'bogus' (choose from "),
        (("--job-bookmark-from",), "argument --job-bookmark-from: expected one argument"),
        ((), "the following arguments are required: --day"),
    ],
    ids=["option", "old option", "encryption", "no value", "missing"],
)
def test_error_has_the_text_of_argparse_when_arguments_do_not_parse(given: tuple[str, ...], text: str) -> None:
    with pytest.raises(GlueArgumentError) as caught:
        resolved(*given, options=("day",))

    assert str(caught.value).startswith(text)
    assert isinstance(caught.value, WatermarkError)


# --- on Glue -------------------------------------------------------------------------------------------------------


def test_glues_own_parser_is_used_when_its_library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(Exception):
        pass

    def refuse(args: list[str], options: list[str]) -> dict[str, Any]:
        if not options:
            raise Theirs("none")
        return {"from": "glue", "options": options}

    package, utils = types.ModuleType("awsglue"), types.ModuleType("awsglue.utils")
    package.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    package.utils, utils.getResolvedOptions, utils.GlueArgumentError = utils, refuse, Theirs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "awsglue", package)
    monkeypatch.setitem(sys.modules, "awsglue.utils", utils)

    found = glue.getResolvedOptions(["script.py"], ["day"])

    assert on_glue()
    assert found == {"from": "glue", "options": ["day"]}
    with pytest.raises(GlueArgumentError, match="none"):
        glue.getResolvedOptions(["script.py"], [])


def test_our_parser_is_used_when_glues_library_is_absent() -> None:
    assert not on_glue()
    assert glue.getResolvedOptions(["script.py", "--day", "Monday"], ["day"])["day"] == "Monday"


def test_error_explains_the_options_when_they_are_left_out() -> None:
    with pytest.raises(
        TypeError, match=r"getResolvedOptions\(sys.argv, \['JOB_NAME'\]\). JOB_RUN_ID is in the result"
    ) as caught:
        glue.getResolvedOptions(["script.py", "--JOB_NAME", "parking"])

    assert isinstance(caught.value, RuntimeError)
