"""Chunks that are missing or altered: a specific error names one of them, and nothing changes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import ConfigurationError, CorruptItemError, FencedError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.values import same_values
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import commit, frozen, large
from tests.support.table_items import Stored, change_item, item_of, put_item

pytestmark = pytest.mark.both_stores


def _put(item: dict[str, Any], data: Any) -> dict[str, Any]:
    return item | {"data": data}


DAMAGE: dict[str, tuple[Callable[[list[dict[str, Any]]], list[dict[str, Any]]], int, str]] = {
    "first-missing": (lambda chunks: chunks[1:], 0, "chunk 1 of 2 is gone"),
    "last-missing": (lambda chunks: chunks[:1], 1, "chunk 2 of 2 is gone"),
    "altered": (
        lambda chunks: [chunks[0], _put(chunks[1], {"B": chunks[1]["data"]["B"][:-30] + b"x" * 30})],
        0,
        "(not compressed data|more or less than one compressed stream|length or checksum differ)",
    ),
    "truncated": (
        lambda chunks: [chunks[0], _put(chunks[1], {"B": chunks[1]["data"]["B"][:-1]})],
        0,
        "more or less than one compressed stream",
    ),
    "swapped": (
        lambda chunks: [_put(chunks[0], chunks[1]["data"]), _put(chunks[1], chunks[0]["data"])],
        0,
        "not compressed data",
    ),
    "other-value": (
        lambda chunks: [_put(chunks[0], {"B": zlib.compress(b"[]")}), _put(chunks[1], {"B": b"x"})],
        0,
        "more or less than one compressed stream",
    ),
    "bomb": (
        lambda chunks: [_put(chunks[0], {"B": zlib.compress(b"0" * 100_000_000, 9)}), _put(chunks[1], {"B": b"x"})],
        0,
        "more or less than one compressed stream",
    ),
    "text": (lambda chunks: [_put(chunks[0], {"S": "x"}), chunks[1]], 0, "'B'"),
    "no-data": (lambda chunks: [chunks[0], {k: v for k, v in chunks[1].items() if k != "data"}], 1, "'data'"),
}
READS: dict[str, tuple[str, Callable[[Watermarks, str, Run], Any]]] = {
    "planned": ("!p#", lambda w, job, run: run.planned("parking")),
    "freeze": ("!p#", lambda w, job, run: run.freeze({"parking": large(2)}, {"parking": large(3)})),
    "state": ("!s#", lambda w, job, run: run.state("parking")),
    "get_watermark": ("!s#", lambda w, job, run: w.get_watermark(job)),
    "get_watermark-of-run": ("!s#", lambda w, job, run: w.get_watermark(job, "r1")),
    "get_watermark_values": ("!s#", lambda w, job, run: w.get_watermark_values(job)),
}


@pytest.fixture
def run(watermarks: Watermarks, job_id: str) -> Run:
    """Return a run with a large state and a large plan."""
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    return frozen(watermarks, job_id, "r2", plan={"parking": large(2)}, following={"parking": large(3)})


@pytest.fixture
def damage(watermarks: Watermarks, stored: Stored, run: Run) -> Callable[[str, str], str]:
    """Return a function that damages the chunks of the plan or committed state, and returns the key to be named."""

    def act(kind: str, prefix: str) -> str:
        change, named, _ = DAMAGE[kind]
        head = stored()["~latest"]
        maps = {"!p#": head["plan"]["M"]["contexts"], "!s#": head["watermarks"]}
        prefix = "!" + maps[prefix]["M"]["parking"]["M"]["id"]["S"]
        found = [item for key, item in sorted(stored().items()) if key.startswith(prefix)]
        assert len(found) == 2
        for item in found:
            watermarks.store.delete(item["jobName"]["S"], item["runId"]["S"])
        for item in change(found):
            put_item(watermarks, item)
        range_key: str = found[named]["runId"]["S"]
        return range_key

    return act


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", ["last-missing", "altered"])
def test_every_reader_names_the_chunk_and_changes_nothing_when_it_is_damaged(
    watermarks: Watermarks, job_id: str, run: Run, stored: Stored, damage: Any, read: str, kind: str
) -> None:
    prefix, call = READS[read]
    named = damage(kind, prefix)
    before = stored()

    with pytest.raises(CorruptItemError) as caught:
        call(watermarks, job_id, run)

    assert (caught.value.job_id, caught.value.range_key) == (job_id, named)
    assert stored() == before


@pytest.mark.parametrize("kind", DAMAGE)
def test_text_says_what_is_wrong_when_a_chunk_is_damaged(
    job_id: str, run: Run, stored: Stored, damage: Any, kind: str
) -> None:
    named = damage(kind, "!p#")
    before = stored()

    with pytest.raises(ConfigurationError) as caught:
        run.planned("parking")

    assert isinstance(caught.value, CorruptItemError)
    assert caught.value.range_key == named
    assert re.search(f"its chunks: {DAMAGE[kind][2]}", str(caught.value))
    assert stored() == before


def test_rewind_is_refused_and_changes_nothing_when_a_chunk_of_that_version_is_gone(
    watermarks: Watermarks, job_id: str, run: Run, stored: Stored, delete: Callable[[str], None]
) -> None:
    run.commit()
    (gone,) = (
        key for key in stored() if key.startswith("!s#") and key.endswith("#00001") and key not in _of_head(stored)
    )
    delete(gone)
    before = stored()

    with pytest.raises(CorruptItemError, match="chunk 2 of 2 is gone") as caught:
        watermarks.rewind(job_id, to_version=1, why="a test")

    assert caught.value.range_key == gone
    assert stored() == before


def _of_head(stored: Stored) -> list[str]:
    start = "!" + stored()["~latest"]["watermarks"]["M"]["parking"]["M"]["id"]["S"]
    return [key for key in stored() if key.startswith(start)]


@pytest.mark.parametrize(
    ("name", "value"), [("chunks", "999999999"), ("length", "99999999999")], ids=["chunks", "length"]
)
def test_nothing_is_read_for_it_when_a_reference_asks_for_more_than_is_ever_written(
    watermarks: Watermarks, job_id: str, run: Run, name: str, value: str
) -> None:
    shown = item_of(watermarks, job_id)["watermarks"]
    shown["M"]["parking"]["M"][name] = {"N": value}
    change_item(watermarks, job_id, items.HEAD_KEY, watermarks=shown)

    with pytest.raises(CorruptItemError, match=rf"parking\.reference\.{name} is not a whole number from 1 to "):
        watermarks.get_watermark_values(job_id)


@pytest.mark.parametrize("decision", ["discard", "commit"])
def test_old_handle_is_fenced_when_the_plan_that_it_reads_is_gone(
    watermarks: Watermarks, job_id: str, run: Run, decision: str
) -> None:
    if decision == "discard":
        watermarks.discard_plan(job_id, why="a test")
    else:
        watermarks.begin(job_id, "r2").commit()

    with pytest.raises(FencedError, match="another run took over") as caught:
        run.planned("parking")

    assert (caught.value.fence, caught.value.current_fence) == (run.fence, watermarks.latest(job_id).fence)
    assert caught.value.current_fence > run.fence


def test_run_can_commit_when_only_the_old_state_is_damaged(
    watermarks: Watermarks, job_id: str, run: Run, damage: Any
) -> None:
    damage("first-missing", "!s#")

    assert run.commit() == "done"

    assert same_values(watermarks.get_watermark_values(job_id), {"parking": large(3)})
