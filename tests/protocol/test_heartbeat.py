"""The heartbeat's thread by itself: when it beats, and when it ends."""

from __future__ import annotations

import gc
import threading

from scripts.helpers.protocol.heartbeat import Heartbeat
from tests.support.patience import PATIENCE


class Owner:
    """Something to keep alive, which counts its beats."""

    def __init__(self) -> None:
        self.beats = 0

    def beat(self) -> bool:
        self.beats += 1
        return True


def test_no_beat_is_made_when_it_is_stopped_before_the_first() -> None:
    owner = Owner()
    beat = Heartbeat(owner, Owner.beat, 1_000)

    beat.stop()
    beat.stop()

    assert (owner.beats, beat.is_alive) == (0, False)


def test_thread_ends_when_it_is_stopped_from_within_a_beat() -> None:
    made: list[Heartbeat] = []
    ready = threading.Event()

    def stop(owner: Owner) -> bool:
        ready.wait(PATIENCE)
        made[0].stop()
        return owner.beat()

    owner = Owner()
    made.append(Heartbeat(owner, stop, 0.001))
    ready.set()

    made[0]._thread.join(PATIENCE)

    assert (owner.beats, made[0].is_alive) == (1, False)


def test_interpreter_can_end_when_the_thread_runs() -> None:
    owner = Owner()
    beat = Heartbeat(owner, Owner.beat, 1_000)

    assert beat._thread.daemon

    beat.stop()


def test_thread_keeps_no_owner_alive_when_it_has_beaten() -> None:
    beaten = threading.Event()

    def tell(owner: Owner) -> bool:
        beaten.set()
        return owner.beat()

    owner: Owner | None = Owner()
    beat = Heartbeat(owner, tell, 0.01)
    assert beaten.wait(PATIENCE)

    owner = None
    gc.collect()
    beat._thread.join(PATIENCE)

    alive, _ = beat.is_alive, beat._ended.set()
    assert not alive
