"""A background thread that renews a run's lease, and never outlives the run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any


class Heartbeat:
    """Calls a method of an object at intervals until `stop` is called, the method returns False, or the object is gone.

    The thread is a daemon, holds no reference to the object between two beats, and uses the
    machine's monotonic timer, so setting the clock forward or back does not change its pace.

    Parameters
    ----------
    owner
        The object; the thread ends when nothing else refers to it any more.
    beat
        Called as ``beat(owner)``; False ends the thread.
    seconds
        Pause between two beats.
    """

    def __init__(self, owner: Any, beat: Callable[[Any], bool], seconds: float) -> None:
        self._ended = threading.Event()
        weakref.finalize(owner, self._ended.set)
        self._thread = threading.Thread(
            target=_keep_beating,
            args=(weakref.ref(owner), beat, seconds, self._ended),
            name="watermark-heartbeat",
            daemon=True,
        )
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _keep_beating(owner: weakref.ref[Any], beat: Callable[[Any], bool], seconds: float, ended: threading.Event) -> None:
    while not ended.wait(seconds):
        alive = owner()
        if alive is None or not beat(alive):
            return
        del alive  # Drop this reference, which would otherwise keep the object alive until the next beat.
