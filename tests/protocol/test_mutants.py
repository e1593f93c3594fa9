"""The state machine can fail: it catches each of these changes to the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from scripts.helpers.protocol import chunks
from tests.protocol import mutants
from tests.protocol.actors import Handle, Trouble
from tests.protocol.machine import Protocol
from tests.protocol.mutants import SEARCHED, Patch
from tests.protocol.world import World

pytestmark = pytest.mark.if_changed("searches")

EXAMPLES = 150
SEARCH = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def share_after_death(world: World) -> None:
    """A run dies before setting the old version's expiry; the next run stops using the chunks that both shared."""
    for request in range(1, 10):
        _whole_run(world, {"rows": 1, "files": 1})
        _whole_run(world, {"rows": 1}, Trouble(request, "die-before"))
        _whole_run(world, {})
        _whole_run(world, {"files": 1})
        world.model.check()


def share_with_run_in_force(world: World) -> None:
    """A context is set by hand while the run item of the run in force still refers to the old chunks."""
    _whole_run(world, {"rows": 1, "files": 1})
    for context in ("rows", "files"):
        world.set_watermark("a", context, 2)
    world.model.check()


def end_by_two_clocks(world: World) -> None:
    """An operator whose clock is slow resets the job while a commit sets the expiry of the version before it."""
    world.skew["b"] = timedelta(hours=-8)
    for request in range(1, 12):
        _whole_run(world, {"rows": 1, "files": 1})
        _whole_run(world, {"rows": 1})
        world.now += timedelta(hours=1)
        _whole_run(world, {"rows": 1}, Trouble(request, meanwhile=lambda: world.reset("b", None)))
        world.model.check()


def begin_after_legacy_write(world: World) -> None:
    """The original class writes its only item, and this package's first run begins at once."""
    world.model.legacy_write("jr_old_1", 2)
    _whole_run(world, {"rows": 1})


def copy_while_a_run_begins(world: World) -> None:
    """Runs begin, and commit if they can, at each request of a copy to another table and back."""
    for request in range(1, 20):
        _whole_run(world, {"rows": 1})
        _whole_run(world, {"files": 1})
        world.copy("a", Trouble(request, meanwhile=lambda: _two_runs_if_free(world)), None)
        world.copy("a", None, Trouble(request, meanwhile=lambda: _two_runs_if_free(world)))
        world.model.check()


def reset_with_an_open_plan(world: World) -> None:
    """An operator resets a job whose run has frozen a plan, and the next run begins."""
    _whole_run(world, {"rows": 1, "files": 1})
    handle = world.begin("a", world.new_run_id())
    assert handle is not None
    world.freeze(handle, {"rows": 1})
    world.reset("b", None)
    world.model.check()
    _whole_run(world, {"rows": 1})


def _whole_run(world: World, most: Mapping[str, int], trouble: Trouble | None = None) -> None:
    handle = world.begin("a", world.new_run_id(), take_over=True)
    assert handle is not None
    _work(world, handle, most, trouble)


def _two_runs_if_free(world: World) -> None:
    for context in ("rows", "files"):
        handle = world.begin("b", world.new_run_id())
        if handle is not None:
            _work(world, handle, {context: 1})


def _work(world: World, handle: Handle, most: Mapping[str, int], trouble: Trouble | None = None) -> None:
    world.freeze(handle, most)
    world.process(handle)
    world.commit(handle, trouble)


SCENARIOS = (
    (mutants.chunks_expire_with_one_version, share_after_death, "I8"),
    (mutants.chunks_without_margin, end_by_two_clocks, "I8"),
    (mutants.run_item_stays, share_with_run_in_force, "I8"),
    (mutants.eventual_query, begin_after_legacy_write, "overlooked"),
    (mutants.begins_where_it_moved, copy_while_a_run_begins, "copy"),
    (mutants.moved_with_the_same_fence, copy_while_a_run_begins, "became"),
    (mutants.reset_keeps_plan, reset_with_an_open_plan, "reset: State"),
)


@pytest.fixture
def spilled_world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world whose states are all in chunks, and whose old versions expire."""
    monkeypatch.setattr(chunks, "MAX_BYTES", 0)
    monkeypatch.setattr(chunks, "WORTH_BYTES", 0)
    world = World(retention=timedelta(minutes=20))
    world.source.update(rows=50, files=50)
    return world


@pytest.mark.parametrize("mutant", SEARCHED, ids=lambda mutant: mutant.__name__)
def test_search_fails_when_the_code_is_mutated(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Protocol, settings=SEARCH)


@pytest.mark.long
def test_search_passes_when_the_code_is_not_mutated() -> None:
    """Run the search of the mutants on correct code; the normal search is in test_state_machine."""
    run_state_machine_as_test(Protocol, settings=SEARCH)


@pytest.mark.parametrize(
    ("mutant", "scenario", "broken"), SCENARIOS, ids=lambda part: part if isinstance(part, str) else part.__name__
)
def test_scenario_fails_when_the_code_is_mutated(
    spilled_world: World, monkeypatch: pytest.MonkeyPatch, mutant: Patch, scenario: Callable[[World], None], broken: str
) -> None:
    """Random search would need too many runs to find these, because they take specific steps in a specific order."""
    mutant(monkeypatch)

    with pytest.raises(AssertionError, match=broken):
        scenario(spilled_world)


@pytest.mark.parametrize("scenario", [scenario for _, scenario, _ in SCENARIOS], ids=lambda part: part.__name__)
def test_scenario_passes_when_the_code_is_not_mutated(spilled_world: World, scenario: Callable[[World], None]) -> None:
    scenario(spilled_world)
    spilled_world.drain()
    spilled_world.model.check()
