"""The mode of a job from its arguments, with Glue's errors, and its name in a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.batch.modes import Mode
from scripts.helpers.errors import InvalidIdError, InvalidValueError, JobArgumentError
from scripts.helpers.protocol.names import name_in_table

FROM, TO = {"job_bookmark_from": "jr_1"}, {"job_bookmark_to": "jr_2"}
SERVED = "repairs@@north-backfill-0123456789abcdef"


def option(name: str) -> dict[str, Any]:
    return {"job_bookmark_option": f"job-bookmark-{name}"}


@pytest.mark.parametrize(
    ("args", "mode"),
    [
        ({}, Mode("enable")),
        ({"job_bookmark_option": None, "job_bookmark_from": None}, Mode("enable")),
        (option("enable"), Mode("enable")),
        (option("pause"), Mode("pause")),
        (option("disable"), Mode("disable")),
        (option("pause") | FROM | TO, Mode("pause", "jr_1", "jr_2")),
        (option("disable") | FROM, Mode("disable", "jr_1", None)),
        (TO, Mode("enable", None, "jr_2")),
    ],
    ids=["no key", "keys of None", "enable", "pause", "disable", "range", "from alone", "to alone"],
)
def test_mode_is_that_of_the_arguments_when_they_are_resolved(args: dict[str, Any], mode: Mode) -> None:
    assert Mode.from_args({"JOB_NAME": "parking"} | args) == mode


@pytest.mark.parametrize(
    ("mode", "saves", "is_range"),
    [
        (Mode("enable"), True, False),
        (Mode("pause"), False, False),
        (Mode("pause", "jr_1", "jr_2"), False, True),
        (Mode("disable", "jr_1"), False, False),
    ],
    ids=["enable", "pause", "range", "disable"],
)
def test_only_enable_saves_and_only_pause_with_both_ends_is_a_range_when_asked(
    mode: Mode, saves: bool, is_range: bool
) -> None:
    assert (mode.saves, mode.is_range) == (saves, is_range)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (option("pause") | FROM, "Missing option or value for --job-bookmark-to"),
        (option("pause") | TO, "Missing option or value for --job-bookmark-from"),
        (FROM | TO, "Invalid option(s)--job-bookmark-from --job-bookmark-to"),
        (option("enable") | FROM | TO, "Invalid option(s)--job-bookmark-from --job-bookmark-to"),
        (option("disable") | FROM | TO, "Invalid option(s)--job-bookmark-from --job-bookmark-to"),
    ],
    ids=["pause without to", "pause without from", "both alone", "both with enable", "both with disable"],
)
def test_arguments_are_refused_in_glues_words_when_they_do_not_go_together(args: dict[str, Any], text: str) -> None:
    with pytest.raises(JobArgumentError) as caught:
        Mode.from_args(args)

    assert isinstance(caught.value, RuntimeError)
    assert str(caught.value) == text


@pytest.mark.parametrize("given", ["bogus", "enable", "job-bookmark-", "", "continuation-enabled"])
def test_option_is_refused_when_it_is_no_choice(given: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        Mode.from_args({"job_bookmark_option": given})

    assert str(caught.value) == (
        f"job_bookmark_option is {given!r}. Use job-bookmark-enable, job-bookmark-pause, job-bookmark-disable."
    )


def test_mode_is_refused_when_it_is_unknown() -> None:
    with pytest.raises(InvalidValueError, match=r"'mode': 'off' is unknown\. Use 'enable', 'pause' or 'disable'\."):
        Mode("off")  # type: ignore[arg-type]


def test_range_is_refused_when_an_end_is_no_run_id() -> None:
    with pytest.raises(InvalidIdError, match="Run id '~latest'"):
        Mode("pause", "~latest", "jr_2")


@pytest.mark.parametrize(
    ("before", "args", "after"),
    [
        (Mode("disable"), FROM, Mode("disable", "jr_1")),
        (Mode("disable"), {}, Mode("disable")),
        (Mode("pause"), FROM | TO, Mode("pause", "jr_1", "jr_2")),
        (Mode("pause", "jr_0", "jr_9"), TO, Mode("pause", "jr_0", "jr_2")),
        (Mode("pause", "jr_0", "jr_9"), option("enable"), Mode("enable")),
        (Mode("enable"), option("pause") | FROM | TO, Mode("pause", "jr_1", "jr_2")),
    ],
    ids=["one end", "nothing", "both ends", "another end", "option", "all"],
)
def test_mode_is_changed_only_as_far_as_the_arguments_say_when_there_is_one_already(
    before: Mode, args: dict[str, Any], after: Mode
) -> None:
    assert before.changed_by({"JOB_NAME": "parking"} | args) == after


def test_one_end_is_refused_in_glues_words_when_the_job_is_paused_without_a_range() -> None:
    with pytest.raises(JobArgumentError, match=r"^Missing option or value for --job-bookmark-to$"):
        Mode("pause").changed_by(FROM)


# --- namespaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_id", "namespace", "name"),
    [
        ("repairs", None, "repairs"),
        ("repairs", "", "repairs"),
        ("repairs", "north", "repairs@@north"),
        ("a@b", "c@d", "a@b@@c@d"),
        (SERVED, None, SERVED),
    ],
    ids=["none", "empty", "both", "single signs", "backfill of one in a namespace"],
)
def test_name_in_the_table_is_made_of_both_when_there_is_a_namespace(
    job_id: str, namespace: str | None, name: str
) -> None:
    assert name_in_table(job_id, namespace) == name


@pytest.mark.parametrize(
    ("job_id", "namespace", "text"),
    [
        ("repairs@@north", None, "Job name 'repairs@@north' has '@@' in it"),
        ("a@@b", "c", "cannot be joined by '@@' without doubt"),
        ("a", "b@@c", "cannot be joined by '@@' without doubt"),
        ("a@", "b", "cannot be joined by '@@' without doubt"),
        ("a*", "b", "Job name 'a*'"),
        ("a", "@b", "Job name '@b'"),
        ("a", "b*", "Job name 'b*'"),
    ],
)
def test_names_are_refused_when_two_pairs_could_have_the_same(job_id: str, namespace: str | None, text: str) -> None:
    with pytest.raises(InvalidIdError) as caught:
        name_in_table(job_id, namespace)

    assert text in str(caught.value)
