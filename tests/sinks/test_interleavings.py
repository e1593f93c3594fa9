"""Two or three live attempts at one batch, and a person: the target is right, whoever moves when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.batch import publishing
from scripts.helpers.batch.publishing import Publication
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.protocol.run import Run
from scripts.helpers.sinks import files, staging
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.outputs import mark_of
from tests.sinks.interleaving import Interleaving, MemoryPlace, let_number_decide, play
from tests.support.long import cases
from tests.support.patience import LONG
from tests.support.staging import FilledSink

MOST = 1_000
"""Interleavings in which each fault shows that the scheduler must find."""
FIRST = {
    "drop_after_unknown_commit": 36,
    "every_version_is_as_good": 26,
    "refused_version": 130,
    "retraction_is_forgotten": 46,
    "retraction_is_over_at_once": 1_938,
    "winner_drops": 720,
}
"""Where each search begins: the interleavings before this number do not show what the test searches for."""
PARTS = cases(2, long=10)
COUNT = cases(100, long=20_000) // PARTS
"""Interleavings in one test."""


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put every place into the storage of the story that is played, and derive random tokens from its number."""
    current: list[Interleaving] = []
    made = Interleaving.__init__

    def begin(self: Interleaving, number: int) -> None:
        made(self, number)
        current[:] = [self]
        let_number_decide(number, monkeypatch)

    monkeypatch.setattr(Interleaving, "__init__", begin)
    monkeypatch.setattr(files, "place_of", lambda path, *_: MemoryPlace(path, current[0].storage))


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("part", range(PARTS))
def test_target_equals_the_source_when_attempts_and_a_person_interleave(part: int) -> None:
    refused: Counter[str] = Counter()
    for number in range(part * COUNT, (part + 1) * COUNT):
        refused += play(number).refused

    # These happened: an attempt met another's lease, one was overtaken, and one never learned what its commit did.
    assert {"RunInProgressError", "FencedError", "CommitUnknownError"} <= refused.keys()


@pytest.mark.timeout(LONG)
def test_person_is_refused_a_version_that_is_gone_when_attempts_interleave() -> None:
    first = FIRST["refused_version"]

    assert any("InvalidValueError[retracted]" in play(number).refused for number in range(first, first + MOST))


# --- faults that the scheduler must find ---------------------------------------------------------------


def shared_folder(patch: pytest.MonkeyPatch) -> None:
    """All attempts at a batch stage in the same folder."""
    patch.setattr(staging, "folder_of", lambda batch, _fence, _token: f"{mark_of(batch.job_id)}/{batch}-f0-0")


def straight_to_target(patch: pytest.MonkeyPatch) -> None:
    """Attempts write directly to the target."""

    def stage(sink: FileSink, batch: Any, fence: int, write: Any, **_options: Any) -> Output:
        write(sink.target, f"batch_id={batch}")
        return Output(
            "files", sink.target.uri(""), "", "", mark_of(batch.job_id), batch.epoch, batch.version, fence, 2, 0
        )

    patch.setattr(FilledSink, "stage_files", stage)
    for name in ("publish", "clear", "drop", "sweep"):
        patch.setattr(FileSink, name, lambda *_: None)


def publish_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Readers see a batch before the head names the winner."""
    commit = Publication.commit

    def early(publication: Publication, metrics: Any) -> str:
        for sink, output in publication.staged:
            sink.publish(output)
        return commit(publication, metrics)

    patch.setattr(Publication, "commit", early)


def clear_before_publish(patch: pytest.MonkeyPatch) -> None:
    """The staged folder is deleted before its files are at the target."""
    publish = FileSink.publish

    def cleared(sink: FileSink, output: Output) -> None:
        sink.clear(output)
        publish(sink, output)

    patch.setattr(FileSink, "publish", cleared)


def earlier_is_left(patch: pytest.MonkeyPatch) -> None:
    """A run does not publish what an earlier run has committed."""
    patch.setattr(Publication, "finish_earlier", lambda _publication: None)
    patch.setattr(Run, "unpublished", property(lambda _run: ()))


def list_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A run that begins forgets which batches are not published yet."""
    claimed = Head.claimed
    patch.setattr(Head, "claimed", lambda head, *given, **more: replace(claimed(head, *given, **more), unpublished=()))


def drop_after_unknown_commit(patch: pytest.MonkeyPatch) -> None:
    """An attempt deletes what it staged, although its commit may have taken effect."""
    drop = Publication.drop

    def dropped(publication: Publication) -> None:
        publication.is_tried = False
        drop(publication)

    patch.setattr(Publication, "drop", dropped)


def winner_drops(patch: pytest.MonkeyPatch) -> None:
    """An attempt whose commit already took effect assumes that another attempt made that commit."""
    publish = Publication.publish

    def published(publication: Publication) -> None:
        run = publication.run
        assert isinstance(run, Run)
        if run.is_already:  # type: ignore[attr-defined]
            run.outputs = ()
        publish(publication)

    commit = Run.commit

    def noted(run: Run, *given: Any, **more: Any) -> str:
        said = commit(run, *given, **more)
        run.is_already = said == "already"  # type: ignore[attr-defined]
        return said

    patch.setattr(Run, "commit", noted)
    patch.setattr(Publication, "publish", published)


def retraction_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Only the process of the person deletes what was taken back, and that process dies."""
    patch.setattr(Run, "retracting", property(lambda _run: ()))


def retraction_is_over_at_once(patch: pytest.MonkeyPatch) -> None:
    """Rows that were deleted once count as gone for good, although a copy may still be under way."""
    patch.setattr(publishing, "COPY_DURATION", timedelta(seconds=-1))


def every_version_is_as_good(patch: pytest.MonkeyPatch) -> None:
    """A person may go back to a version whose rows are no longer at the target."""
    rewound = Head.rewound
    patch.setattr(Head, "rewound", lambda head, *given: replace(rewound(replace(head, retracted=()), *given)))


def leftover_is_hidden(patch: pytest.MonkeyPatch) -> None:
    """What losers staged is not swept, and the doctor does not look there."""
    patch.setattr(FileSink, "sweep", lambda *_: 0)
    patch.setattr(FileSink, "staged", lambda *_: [])


FAULTS = [
    shared_folder,
    straight_to_target,
    publish_before_commit,
    clear_before_publish,
    earlier_is_left,
    list_is_forgotten,
    drop_after_unknown_commit,
    winner_drops,
    retraction_is_forgotten,
    retraction_is_over_at_once,
    every_version_is_as_good,
    leftover_is_hidden,
]


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_interleaving_is_found_when_the_code_has_a_fault(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)

    found = None
    first = FIRST.get(fault.__name__, 0)
    for number in range(first, first + MOST):
        try:
            play(number)
        except AssertionError as error:
            found = error
            break

    assert found is not None
