"""Blocks of ids: no id is assigned twice, whatever operators change in between, and a non-number is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.protocol.fields import MAX_COUNT, ImplausibleError
from scripts.helpers.relational.ids import BLOCK, MAX_ID, STRIDE, IdBlock, IdsState, planned_first
from scripts.helpers.relational.relations import Relations
from tests.support.reasons import because


def commit(states: dict[str, Any], version: int, *contexts: str) -> tuple[dict[str, Any], list[int]]:
    """Run one batch; return the states after its commit and the first id of each context."""
    blocks = [IdBlock.of_batch(context, version, slot, states) for slot, context in enumerate(contexts)]
    return states | {block.context: block.state_after(["root"]) for block in blocks}, [block.first for block in blocks]


def test_contexts_of_one_batch_have_blocks_of_their_own_when_planned() -> None:
    states, first = commit({}, 1, "p", "q")
    _, second = commit(states, 2, "q", "p")

    assert (first, second) == ([STRIDE, STRIDE + BLOCK], [2 * STRIDE, 2 * STRIDE + BLOCK])


def test_no_block_comes_twice_when_ids_were_set_ahead_and_a_version_is_gone_back_to() -> None:
    ahead = {"p": {"kind": "ids", "next_id": 50 * STRIDE}}
    after_2, found_2 = commit(ahead, 2, "p", "q")
    after_3, found_3 = commit(after_2, 3, "q", "p")
    _, found_5 = commit(after_2, 5, "p", "q")
    _, found_7 = commit(ahead, 7, "p", "r")
    _, found_8 = commit(after_3, 8, "r")

    found = [*found_2, *found_3, *found_5, *found_7, *found_8]
    assert found_2[0] >= 50 * STRIDE
    assert found == sorted(set(found))


def test_ids_are_above_those_of_another_job_when_its_bookmark_is_set() -> None:
    elsewhere = {"kind": "ids", "next_id": 101 * STRIDE, "version": 100, "tables": ["root"]}

    _, found = commit({"p": elsewhere}, 2, "p")

    assert found == [103 * STRIDE]


@pytest.mark.parametrize("slots", [1, 2])
def test_blocks_of_unsaved_runs_are_below_zero_and_their_own_when_tokens_differ(slots: int) -> None:
    found = [IdBlock.unsaved(f"jr_{number}", slot).first for number in range(500) for slot in range(slots)]

    assert len(set(found)) == 500 * slots
    assert all(-MAX_ID <= first <= -BLOCK and first % BLOCK == 0 for first in found)
    assert found[0] == IdBlock.unsaved("jr_0").first
    assert IdBlock.unsaved("jr_0").state_after(["root"]) is None


@pytest.mark.parametrize(
    ("state", "told"),
    [
        pytest.param({}, "next_id is missing", id="missing"),
        pytest.param({"next_id": "7"}, f"next_id is not a whole number from 0 to {MAX_ID:,}", id="text"),
        pytest.param({"next_id": True}, f"next_id is not a whole number from 0 to {MAX_ID:,}", id="boolean"),
        pytest.param({"next_id": -1}, f"next_id is not a whole number from 0 to {MAX_ID:,}", id="negative"),
        pytest.param(
            {"next_id": 7, "version": "1"}, f"version is not a whole number from 0 to {MAX_COUNT:,}", id="version"
        ),
        pytest.param({"next_id": 7, "tables": "root"}, "tables is not a list of up to 2,000 texts", id="tables"),
    ],
)
def test_state_is_refused_when_it_has_no_number(state: dict[str, Any], told: str) -> None:
    with pytest.raises(ImplausibleError, match=f"^q.{told}$"):
        IdsState.read({"kind": "ids", **state}, "q")


@pytest.mark.parametrize("first", [None, "7", True, -1, MAX_ID], ids=repr)
def test_plan_is_refused_when_its_first_id_is_no_number_with_a_block_behind_it(first: Any) -> None:
    with pytest.raises(ImplausibleError, match=r"^q\.first_id is "):
        planned_first({"kind": "ids", "first_id": first}, "q")


@pytest.mark.parametrize(("state", "name"), [(5, "int"), ({"kind": "files"}, "files")], ids=["number", "files"])
def test_context_is_refused_when_it_remembers_something_else(state: Any, name: str) -> None:
    with pytest.raises(SourceError, check=because("changed"), match=f"context 'p' remembers '{name}'"):
        IdBlock.of_batch("p", 2, 0, {"p": state})
    with pytest.raises(SourceError, check=because("changed"), match=f"context 'p' remembers '{name}'"):
        IdBlock.unsaved("jr_1", 0, "p", state)

    assert IdBlock.of_batch("q", 2, 0, {"p": state}).first == 2 * STRIDE


def test_error_says_so_when_a_batch_has_too_many_contexts() -> None:
    with pytest.raises(InvalidValueError, check=because("too_many_ids")) as caught:
        IdBlock.of_batch("p", 1, 16, {})

    assert str(caught.value) == (
        "Ids of context 'p': a batch has them for 16 contexts at most. Make a job of its own of the others."
    )


def test_error_says_so_when_no_block_is_left() -> None:
    with pytest.raises(InvalidValueError, check=because("too_many_ids")) as caught:
        IdBlock.of_batch("p", 2, 0, {"p": {"kind": "ids", "next_id": 2**63 - BLOCK}})

    assert str(caught.value) == "Ids of context 'p': no block of them is left. Continue in a job with another name."


def test_error_of_a_read_is_left_as_it_is_when_it_says_nothing_of_ids() -> None:
    error = RuntimeError("Job aborted")
    relations: Any = SimpleNamespace(block=SimpleNamespace(context="p"))

    with pytest.raises(RuntimeError) as caught, Relations.typed_errors(relations):
        raise error

    assert caught.value is error


def test_tables_are_known_when_the_bookmark_lists_them() -> None:
    states = {"p": {"kind": "ids", "next_id": 0, "tables": ["root", "root_a"]}, "q": {"kind": "ids", "next_id": 0}}

    known = [IdBlock.of_batch(context, 2, 0, states).known for context in ("p", "q")]

    assert known == [("root", "root_a"), ()]
