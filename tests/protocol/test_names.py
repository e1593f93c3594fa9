"""Names, ids and the batch id."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import InvalidIdError
from scripts.helpers.protocol.names import (
    BatchId,
    check_context,
    check_job_id,
    check_run_id,
    new_epoch,
    new_run_id,
    new_token,
    same_run,
)

ALL = [check_job_id, check_run_id, check_context]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (check_job_id, "parking"),
        (check_job_id, "9 to 5"),
        (check_job_id, "dept/parking:eu@2x=a+b_c.d-e"),
        (check_job_id, "j" * 255),
        (check_run_id, "jr_" + "0f" * 32),
        (check_run_id, "jr_" + "0f" * 32 + "_attempt_1"),
        (check_run_id, "#run {1} \\ \"x\""),
        (check_run_id, "r" * 255),
        (check_run_id, "0"),
        (check_context, "repairs"),
        (check_context, "datasource0~!"),
    ],
)  # fmt: skip
def test_check_returns_the_same_text_when_it_obeys_the_rule(check: Callable[[str], str], text: str) -> None:
    assert check(text) == text


@pytest.mark.parametrize("check", ALL)
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "!c#1",
        "~latest",
        "a\n",
        "\nfake=log",
        "a\tb",
        "a\x00",
        "a\x7f",
        "naïve",
        "\U0001f697",
        "!" * 80,
        "!" * 81,
        "a" * 256,
    ],
)
def test_check_refuses_with_the_text_and_the_rule_when_it_is_not_allowed(
    check: Callable[[str], str], text: str
) -> None:
    with pytest.raises(InvalidIdError) as caught:
        check(text)

    message = str(caught.value)
    assert (repr(text) if len(text) <= 80 else f"'{text[:77]}...'") in message
    assert f"({len(text)} characters)" in message
    assert "It must" in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["a*", "a?b", "a{b}", "a#b", "-a", "/a", "a\\b"])
def test_job_id_is_refused_when_iam_could_not_match_it(text: str) -> None:
    with pytest.raises(InvalidIdError, match=r"Job name .* is not allowed"):
        check_job_id(text)


@pytest.mark.parametrize("check", [check_run_id, check_context])
def test_remedy_names_every_forbidden_first_character_when_the_first_is_a_space(check: Callable[[str], str]) -> None:
    with pytest.raises(InvalidIdError, match="1 to 255 printable ASCII characters, the first not '!', '~' or a space"):
        check(" a")


@pytest.mark.parametrize("check", ALL)
@pytest.mark.parametrize("value", [None, 7, b"parking"])
def test_check_refuses_with_the_type_when_the_value_is_not_text(check: Callable[[Any], str], value: Any) -> None:
    with pytest.raises(InvalidIdError, match=f"must be a str, not {type(value).__name__}"):
        check(value)


@pytest.mark.parametrize(
    ("make", "shape"), [(new_token, "[0-9a-f]{16}"), (new_epoch, "e[0-9a-f]{16}"), (new_run_id, "jr_[0-9a-f]{64}")]
)
def test_new_ids_differ_and_keep_their_shape_when_made_often(make: Callable[[], str], shape: str) -> None:
    made = [make() for _ in range(100)]

    assert len(set(made)) == 100
    assert all(re.fullmatch(shape, text) for text in made)
    assert all(check_run_id(text) for text in made)


def test_batch_id_is_safe_in_a_path_and_sorts_when_versions_grow() -> None:
    texts = [str(BatchId("dept/parking", "e1f00ba42", version)) for version in (1, 9, 10, 1_000)]

    assert texts == sorted(texts)
    assert texts[0] == "e1f00ba42-0000000001"


def test_batch_id_differs_when_job_epoch_or_version_does() -> None:
    ids = {BatchId("a", "e1", 1), BatchId("b", "e1", 1), BatchId("a", "e2", 1), BatchId("a", "e1", 2)}

    assert len(ids) == 4
    assert BatchId("a", "e1", 1) in ids


@pytest.mark.parametrize(
    ("owner", "run_id", "is_same"),
    [
        ("jr_0a", "jr_0a", True),
        ("jr_0a", "jr_0a_attempt_0", True),
        ("jr_0a", "jr_0a_attempt_1", True),
        ("jr_0a_attempt_1", "jr_0a_attempt_2", True),
        ("jr_0a_attempt_0", "jr_0a", True),
        ("jr_0a_attempt_1", "jr_0a", False),
        ("jr_0a_attempt_2", "jr_0a_attempt_1", False),
        ("jr_0a", "jr_0b_attempt_1", False),
        ("jr_0a_attempt_1", "jr_0a_attempt_12", True),
        ("jr_0a_attempt_10", "jr_0a_attempt_9", False),
        ("jr_0a", "jr_0a_attempt_", False),
        ("jr_0a_attempt_1x", "jr_0a", False),
        ("nightly", "nightly", True),
        ("nightly", "nightly_attempt_1", False),
        ("nightly_attempt_1", "nightly_attempt_2", False),
    ],
)
def test_run_continues_only_its_own_earlier_attempts_when_ids_are_glues(owner: str, run_id: str, is_same: bool) -> None:
    assert same_run(owner, run_id) is is_same
