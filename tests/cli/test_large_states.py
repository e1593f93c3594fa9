"""Readers load the states of a job only up to a size limit; of a state that is too large they show only the name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.protocol.bounded_lookups import MOST_SHOWN
from scripts.helpers.protocol.chunks import CHUNK_BYTES, cut
from scripts.helpers.protocol.packed_json import pack_json
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.coverage import backfill_record_id
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from tests.cli.hostile import called, shown_of
from tests.cli.stories import NOW, rows_state
from tests.support.dynamodb import FakeDynamoDB
from tests.support.rows_states import state_of
from tests.support.spoiled_table import TableOfJobs
from tests.support.steps import commit

RECORD = backfill_record_id("large", "c", state_of(rows_state(NOW)))
TOO_LARGE = [f"c{number:02}" for number in range(60)]
NOTE = "too large to show here"
MB = 1_000_000


def opened(double: Any) -> Watermarks:
    """Return `Watermarks` on a double of the table."""
    return Watermarks("table", double, clock=lambda: NOW)


def state(hours: int, size: int = 0) -> dict[str, Any]:
    """Return a state of rows that unpacks to about `size` bytes, and takes a thousandth of them in its chunk."""
    return rows_state(NOW - timedelta(hours=hours)) | {"note": "a" * size}


class Spilling:
    """A table with a good job, and one whose states are in chunks that each test chooses.

    Attributes
    ----------
    lengths
        Unpacked bytes of each reference that was written, by the id of its chunks.
    """

    def __init__(self) -> None:
        self.double = FakeDynamoDB()
        self.watermarks = opened(self.double)
        self.lengths: dict[str, int] = {}
        for job in ("good", "large", RECORD):
            commit(self.watermarks, job, "jr_1", {"repairs": state(2)})

    def spill(self, stored: Any, job: str = "large") -> Spilled:
        """Write a value into chunks and return the reference to it."""
        reference, parts = cut(stored, f"s#t-{len(self.lengths)}", "state")
        self.watermarks.store.write_chunks(job, {reference.id: parts})
        self.lengths[reference.id] = reference.length
        return reference

    def put(self, states: Mapping[str, Any], job: str = "large") -> None:
        """Replace the states of a job."""
        before = self.watermarks.latest(job)
        self.watermarks.store.swap(before, replace(before, watermarks=states))

    def table(self, *left_out: str) -> Counted:
        """Return the table for readers, with no requests counted yet."""
        jobs: dict[str, dict[str, Any]] = {}
        for (job, key), item in self.double.items.items():
            if job not in left_out:
                jobs.setdefault(job, {})[key] = item
        return Counted(jobs)


class Counted(TableOfJobs):
    """A table that records which chunks were requested."""

    def asked(self) -> list[str]:
        keys = [given["Key"]["runId"]["S"] for call, given in self.requests if call == "get_item"]
        return [key[1:].rpartition("#")[0] for key in keys if key.startswith("!s#")]


@pytest.fixture
def spilling() -> Spilling:
    return Spilling()


@pytest.fixture
def shared(spilling: Spilling) -> Spilling:
    """Return a table with a job whose 60 contexts refer to one chunk, which unpacks to more than readers load."""
    reference = spilling.spill(state(3, MOST_SHOWN))
    spilling.put({**dict.fromkeys(TOO_LARGE, reference), "small": state(1)})
    return spilling


def names_noted(page: str) -> list[str]:
    """Return the contexts that a page marks with the note, in the order of the page."""
    return re.findall(rf'<th scope="row">([^<]*)</th><td>{NOTE}</td>', page)


def names_of_rows(page: str) -> list[str]:
    return re.findall(r'<th scope="row">([^<]*)</th><td>rows</td>', page)


def test_contexts_are_named_and_their_chunk_is_not_read_when_it_is_too_large(shared: Spilling) -> None:
    alone = build_report(opened(shared.table("large")), now=NOW)
    table = shared.table()

    page = build_report(opened(table), now=NOW)

    details = shown_of(page, "large")
    assert names_noted(details) == TOO_LARGE
    assert names_of_rows(details) == ["small"]
    assert "<dt>Lag</dt><dd>unknown" in details
    assert table.asked() == []
    assert shown_of(page, "good") == shown_of(alone, "good")


def test_chunk_is_read_once_when_60_contexts_refer_to_it(spilling: Spilling) -> None:
    reference = spilling.spill(state(3, MB))
    spilling.put(dict.fromkeys(TOO_LARGE, reference))
    table = spilling.table()

    page = build_report(opened(table), now=NOW)

    details = shown_of(page, "large")
    assert len(names_of_rows(details)) == 60
    assert names_noted(details) == []
    assert "<dt>Lag</dt><dd>3 h</dd>" in details
    assert table.asked() == [reference.id]


def test_small_states_are_read_up_to_the_bound_when_each_has_a_chunk(spilling: Spilling) -> None:
    sizes = {name: (60 - number) * 100_000 for number, name in enumerate(TOO_LARGE)}
    references = {name: spilling.spill(state(3, size)) for name, size in sizes.items()}
    spilling.put(references)
    table = spilling.table()

    page = build_report(opened(table), now=NOW)

    asked = table.asked()
    unpacked = sum(spilling.lengths[chunk] for chunk in asked)
    assert MOST_SHOWN - 800_000 < unpacked <= MOST_SHOWN
    assert len(set(asked)) == len(asked)
    details = shown_of(page, "large")
    assert names_of_rows(details) == [name for name in sizes if references[name].id in asked]
    assert names_noted(details) == [name for name in sizes if references[name].id not in asked]


def test_chunks_count_as_well_when_a_reference_says_that_they_unpack_to_little(spilling: Spilling) -> None:
    honest = spilling.spill(state(3))
    chunks = MOST_SHOWN // CHUNK_BYTES + 2
    spilling.put({"c": honest._replace(chunks=chunks)})
    table = spilling.table()

    page = build_report(opened(table), now=NOW)

    assert names_noted(shown_of(page, "large")) == ["c"]
    assert table.asked() == []


def test_job_is_shown_as_damaged_when_a_reference_lies_about_what_it_unpacks_to(spilling: Spilling) -> None:
    honest = spilling.spill(state(3, 2 * MOST_SHOWN))
    spilling.put({"c": honest._replace(length=1_000)})

    page = build_report(opened(spilling.table()), now=NOW)

    assert "more or less than one compressed stream" in shown_of(page, "large")


def test_gaps_are_not_counted_when_the_record_of_backfills_is_too_large(spilling: Spilling) -> None:
    spilling.put({"c": state(3)})
    spilling.put({"c": spilling.spill({"kind": "backfills", "note": "a" * MOST_SHOWN}, RECORD)}, RECORD)
    table = spilling.table()

    page = build_report(opened(table), now=NOW)

    assert re.search(r'<th scope="row">c</th><td>rows</td>.*?<td class="n">unreadable</td>', shown_of(page, "large"))
    assert table.asked() == []


def packed(ranges: int, number: int) -> dict[str, Any]:
    coded = {f"o{number}": [[1], [1]] * ranges}
    return {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10**9, "covered": pack_json(coded)}


def test_states_are_read_up_to_the_bound_when_small_packed_lists_unfold_to_much(spilling: Spilling) -> None:
    spilling.put({**{name: packed(10_000 - n, n) for n, name in enumerate(TOO_LARGE)}, "small": state(1)})

    page = build_report(opened(spilling.table()), now=NOW)

    details = shown_of(page, "large")
    assert names_of_rows(details) == [*TOO_LARGE[-5:], "small"]
    assert names_noted(details) == TOO_LARGE[:-5]
    assert "<dt>Lag</dt><dd>unknown" in details


def test_packed_lists_in_a_chunk_count_for_each_context_when_60_refer_to_it(spilling: Spilling) -> None:
    spilling.put(dict.fromkeys(TOO_LARGE, spilling.spill(packed(10_000, 0))))

    page = build_report(opened(spilling.table()), now=NOW)

    assert len(names_of_rows(shown_of(page, "large"))) == 5


def test_gaps_are_not_counted_when_slices_that_are_packed_unfold_to_too_much(spilling: Spilling) -> None:
    spilling.put({name: packed(10_000, 0) for name in TOO_LARGE[:5]})
    record = backfill_record_id("large", "c00", state_of(packed(10_000, 0)))
    begun = {"begun": packed(10_000, 0)["covered"], "covered": pack_json({}), "kind": "backfills"}
    commit(spilling.watermarks, record, "jr_1", {"c00": {**packed(1, 0), **begun}})

    page = build_report(opened(spilling.table()), now=NOW)

    assert re.search(r'<th scope="row">c00</th><td>rows</td>.*?<td class="n">unreadable</td>', shown_of(page, "large"))


def test_lag_is_unknown_when_packed_lists_unfold_to_too_much(
    monkeypatch: pytest.MonkeyPatch, spilling: Spilling, thresholds: Sequence[str]
) -> None:
    columns = pack_json([["spark", [["a", "long"]] * 120_000]])
    spilling.put({"c": state(3) | {"schemas": columns}, "small": state(1)})

    done = called(monkeypatch, spilling.table(), "jobs", *thresholds, "--output", "json")

    by_job = {job["job"]: job for job in json.loads(done.stdout)["jobs"]}
    assert by_job["large"]["reason"] == f"its lag is unknown; {NOTE}: c"


def test_charts_have_the_age_when_the_states_of_older_versions_are_in_chunks(spilling: Spilling) -> None:
    """The present version's states are read and give the lag; those of older versions are not read."""
    for number in range(2):
        commit(spilling.watermarks, "wide", f"jr_{number}", {name: state(3, 2_000) for name in TOO_LARGE})

    page = build_report(opened(spilling.table()), now=NOW)

    details = shown_of(page, "wide")
    assert "<dt>Lag</dt><dd>3 h</dd>" in details
    assert "Highest age" in details
    assert "Highest lag" not in details


# --- commands --------------------------------------------------------------------------------------


@pytest.fixture
def thresholds(tmp_path: Any) -> Sequence[str]:
    """Return the option that makes a job late after a day without new rows."""
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps({"*": {"warn": "1d", "measure": "lag"}}))
    return ["--thresholds", str(path)]


def test_job_is_a_problem_when_its_lag_decides_and_states_are_too_large(
    monkeypatch: pytest.MonkeyPatch, shared: Spilling, thresholds: Sequence[str]
) -> None:
    table = shared.table()

    done = called(monkeypatch, table, "jobs", "--fail-on", "missing", *thresholds, "--output", "json")

    by_job = {job["job"]: job for job in json.loads(done.stdout)["jobs"]}
    assert by_job["large"].get("unread", TOO_LARGE) == TOO_LARGE
    assert by_job["large"]["reason"] == f"its lag is unknown; {NOTE}: c00, c01, c02, …"
    assert (by_job["large"]["state"], by_job["good"]["state"]) == ("problem", "idle")
    assert table.asked() == []
    assert done.exit_code == 1


def test_job_is_late_when_the_state_of_its_oldest_cursor_is_in_chunks(
    monkeypatch: pytest.MonkeyPatch, spilling: Spilling, thresholds: Sequence[str]
) -> None:
    spilling.put({"c": spilling.spill(state(30, MB)), "small": state(1)})

    done = called(monkeypatch, spilling.table(), "jobs", *thresholds, "--output", "json")

    by_job = {job["job"]: job for job in json.loads(done.stdout)["jobs"]}
    assert by_job["large"]["reason"] == "1 d 6 h lag, the limit is 1 d"


def test_list_has_an_unknown_lag_when_only_the_state_that_is_too_large_shows_that_it_is_of_files(
    monkeypatch: pytest.MonkeyPatch, spilling: Spilling
) -> None:
    spilling.put({"landed": spilling.spill({"kind": "files", "note": "a" * MOST_SHOWN})})

    done = called(monkeypatch, spilling.table(), "jobs")

    (line,) = [line for line in done.stdout.splitlines() if line.startswith("large")]
    assert line.split()[:3] == ["large", "idle", "unknown"]


def test_list_has_an_unknown_lag_when_states_are_too_large(monkeypatch: pytest.MonkeyPatch, shared: Spilling) -> None:
    done = called(monkeypatch, shared.table(), "jobs")

    (line,) = [line for line in done.stdout.splitlines() if line.startswith("large")]
    assert line.split()[:3] == ["large", "idle", "unknown"]


def test_job_is_shown_with_an_unknown_lag_and_no_chunk_is_read_when_states_are_in_chunks(
    monkeypatch: pytest.MonkeyPatch, spilling: Spilling
) -> None:
    spilling.put({"c": spilling.spill(state(3, MB)), "small": state(1)})
    table = spilling.table()

    done = called(monkeypatch, table, "show", "large")

    assert table.asked() == []
    assert re.search(r"^lag +unknown$", done.stdout, re.MULTILINE)
    assert re.search(r"^c +in chunks +", done.stdout, re.MULTILINE)


def test_job_is_a_problem_of_the_list_when_a_chunk_of_it_is_gone(
    monkeypatch: pytest.MonkeyPatch, spilling: Spilling
) -> None:
    reference = spilling.spill(state(3, MB))
    spilling.put({"c": reference})
    spilling.watermarks.store.delete_chunks("large", reference)

    done = called(monkeypatch, spilling.table(), "jobs", "--output", "json")

    by_job = {job["job"]: job for job in json.loads(done.stdout)["jobs"]}
    assert by_job["large"]["state"] == "problem"
    assert by_job["large"]["reason"] == "damaged (CorruptItemError while reading it); see doctor"
    assert by_job["good"]["state"] == "idle"


def test_one_context_is_read_when_it_is_named(monkeypatch: pytest.MonkeyPatch, spilling: Spilling) -> None:
    references = {f"c{number}": spilling.spill(state(3, MB)) for number in range(3)}
    spilling.put(references)
    table = spilling.table()

    done = called(monkeypatch, table, "backfill", "large", "--context", "c1")

    assert done.exit_code == 0
    assert set(table.asked()) == {references["c1"].id}


def test_context_is_refused_with_the_names_of_others_when_it_is_of_another_kind(
    monkeypatch: pytest.MonkeyPatch, spilling: Spilling
) -> None:
    spilling.put({"c": state(3), "files": {"kind": "other"}})

    done = called(monkeypatch, spilling.table(), "backfill", "large", "--context", "files")

    assert "has no context 'files' of rows. It has: c" in done.stderr


def test_values_are_read_once_when_60_contexts_refer_to_one_chunk(spilling: Spilling) -> None:
    reference = spilling.spill(state(3, MB))
    spilling.put(dict.fromkeys(TOO_LARGE, reference))
    table = spilling.table()

    values = opened(table).get_watermark_values("large")

    assert len(values) == 60
    assert table.asked() == [reference.id]
