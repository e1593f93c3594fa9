"""A scheduler of interleavings: attempts at one batch, and a person; one of them moves at a time.

Every request to DynamoDB and every operation on a file is a point at which an actor may be paused, killed or
overtaken, or lose its reply. A number decides everything, so each interleaving can be repeated. Nothing sleeps: leases
end because the clock is moved.
"""

from __future__ import annotations

import json
import random
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache, partial
from typing import Any, TypeVar

import pytest
from greenlet import getcurrent, greenlet

from scripts.helpers.batch.batch import NOTHING, Batch
from scripts.helpers.batch.end_of_run import EndOfRun
from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.batch.publishing import Publication
from scripts.helpers.errors import PlanConflictError, RunInProgressError, UnknownJobError, WatermarkError
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.protocol import items
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks.outputs import NOTE, batch_of, is_published_name
from scripts.helpers.sinks.places import Place
from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import Died, FakeDynamoDB
from tests.support.staging import FilledSink

JOB, TARGET, CONTEXT = "repairs", "s3://raw/repairs", "rows"
LEASE = timedelta(minutes=15)
START = datetime(2026, 3, 29, tzinfo=timezone.utc)
FAULTS = ("reply-lost", "drop", "re-send")


class WrongTarget(AssertionError):
    """Readers of the target saw rows that they must not see."""


@lru_cache(maxsize=64)
def rows_in(data: bytes) -> list[int]:
    """Return the rows of a file; cached, since the same few files are read after each change."""
    found: list[int] = json.loads(data)
    return found


class Storage:
    """A bucket or a file system: whole files by URI. Each change is one point."""

    def __init__(self, point: Callable[[str], None], *, renames: bool) -> None:
        self.point, self.renames = point, renames
        self.held: dict[str, bytes] = {}
        self.watch: Callable[[], None] = lambda: None

    def change(self, what: str, change: Callable[[], Any]) -> Any:
        self.point(what)
        result = change()
        self.watch()
        return result


class MemoryPlace:
    """A place in a `Storage`."""

    def __init__(self, root: str, storage: Storage) -> None:
        self.root, self.storage = root.rstrip("/"), storage

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}".rstrip("/")

    def files(self, folder: str = "", most: int | None = None) -> dict[str, int]:
        start = f"{self.uri(folder)}/"
        self.storage.point("list")
        found = [uri for uri in sorted(self.storage.held) if uri.startswith(start)]
        return {uri[len(self.root) + 1 :]: len(self.storage.held[uri]) for uri in found[:most]}

    def read(self, name: str) -> bytes | None:
        self.storage.point("read")
        return self.storage.held.get(self.uri(name))

    def write(self, name: str, data: bytes) -> None:
        self.storage.change("write", lambda: self.storage.held.update({self.uri(name): data}))

    def move(self, names: Mapping[str, str], sizes: Mapping[str, int], to: MemoryPlace) -> list[str]:
        move = self._rename if self.storage.renames else self._copy
        return [old for old, new in names.items() if not move(self.uri(old), to.uri(new))]

    def _rename(self, old: str, new: str) -> bool:
        def rename() -> bool:
            data = self.storage.held.pop(old, None)
            if data is not None:
                self.storage.held[new] = data
            return data is not None

        return bool(self.storage.change("rename", rename))

    def _copy(self, old: str, new: str) -> bool:
        # S3 reads the source at one moment, and the copy becomes visible at a later one.
        self.storage.point("copy")
        data = self.storage.held.get(old)
        if data is not None:
            self.storage.change("copied", lambda: self.storage.held.update({new: data}))
        return data is not None

    def check_rights(self, to: MemoryPlace) -> None:
        self.storage.point("look")

    def delete(self, names: Collection[str]) -> None:
        for name in sorted(names):
            self.storage.change("delete", partial(self.storage.held.pop, self.uri(name), None))

    def delete_folder(self, folder: str, last: str, found: Collection[str] | None = None) -> None:
        self.delete([name for name in (self.files(folder) if found is None else found) if name != last])
        self.delete([last])


class Actor:
    """One process, which moves only when it is told to."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name, self._work = name, work
        self.is_over = self.is_killed = self.is_asleep = False
        self.cut_off = 0
        self.error: BaseException | None = None
        # A greenlet, not a thread: switching between threads took a fifth of the time of all stories.
        self._steps = greenlet(self._run)
        self._steps.actor = self

    def step(self) -> None:
        """Let the actor go on to its next point."""
        self._steps.switch()

    def pause(self) -> None:
        """Wait, as the actor, until the scheduler lets it continue."""
        self._steps.parent.switch()
        if self.is_killed:
            raise Died(self.name)

    def _run(self) -> None:
        try:
            if not self.is_killed:
                self._work()
        except Died:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True


def moving() -> Actor | None:
    """Return the actor that calls this function; None if the scheduler calls it."""
    return getattr(getcurrent(), "actor", None)


class Interleaving:
    """One story, decided by its number: who moves when, who dies, which replies are lost, and when the lease ends."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.database = FakeDynamoDB()
        self.database.fault = lambda _number, operation, _params: self._request(operation)
        self.storage = Storage(self.stop, renames=self.random.random() < 0.5)
        self.storage.watch = self.look
        self.now, self.source = START, self.random.randint(1, 4)
        self.is_faulty = True
        self.trace: list[str] = []
        self.refused: Counter[str] = Counter()
        self._head_seen: bytes | None = None
        self._seen_in_force: tuple[int, list[Retraction]] = 0, []
        client: Any = self.database
        self.watermarks = Watermarks("table", client, clock=lambda: self.now)
        self.watermarks.store.sleep = lambda _seconds: None

    # --- what actors do -------------------------------------------------------------------------

    def attempt(self, run_id: str) -> bool:
        """Run the job once, as `IncrementalJob` does; return whether it read anything."""
        run = self.watermarks.begin(JOB, run_id, lease=LEASE)
        publication = Publication(run, None, None, lambda: self.now)
        batch = Batch(run, EndOfRun(run, (), lambda: self.now), publication)
        try:
            publication.finish_earlier()
            settled = batch.settled(CONTEXT)
            if settled is None:
                low = (run.state(CONTEXT) or {"value": 0})["value"]
                settled = {"kind": "numbers", "low": low, "high": self.source}
                batch.add(CONTEXT, settled, {"value": self.source})
            elif settled != NOTHING:
                batch.add(CONTEXT, settled, None)
            rows = range(settled["low"], settled["high"])
            sink, batch_id = self.sink(), batch.freeze().id
            publication.finish(sink)
            publication.add(sink, self.stage(sink, batch_id, run.fence, rows))
            if self.random.random() < 0.5:  # Scripts may commit within the block; its clean end does nothing then.
                batch.commit({})
        except WatermarkError as error:
            batch.leave(type(error), error, None, {})
            raise
        batch.leave(None, None, None, {})
        return len(rows) > 0 or run.replay

    def discard(self) -> None:
        """Drop the open plan, as a person, if there is one."""
        self.watermarks.discard_plan(JOB, why="it was wrong", who="somebody")

    def release(self) -> None:
        """Release the lease, as a person who believes that its run is dead, rightly or not."""
        self.watermarks.release(JOB, why="it hangs", who="somebody")

    def retract(self) -> None:
        """Go back to any existing version, as a person, and take back what came after it."""
        version = self.random.randint(0, self.watermarks.latest(JOB).version)
        if version:
            self.watermarks.rewind(JOB, to_version=version, retract=True, why="it was wrong", who="somebody")
        else:
            self.watermarks.reset(JOB, retract=True, why="it was wrong", who="somebody")

    def retract_twice(self) -> None:
        """Go back twice, as a person who changes their mind."""
        self.retract()
        self.retract()

    def sink(self) -> Any:
        """Return the sink of a run in this story."""
        return FilledSink(TARGET)

    def stage(self, sink: Any, batch: BatchId, fence: int, rows: range) -> Output:
        """Stage rows for the target of this story."""
        output: Output = sink.stage_files(batch, fence, lambda *to: self._write(rows, *to))
        return output

    def _write(self, rows: range, place: Place, folder: str) -> None:
        # Two files, so that a publication can stop half-way.
        place.write(f"{folder}/part-00000-x-c000.json", json.dumps(list(rows[::2])).encode())
        place.write(f"{folder}/part-00001-x-c000.json", json.dumps(list(rows[1::2])).encode())

    # --- how they are scheduled -----------------------------------------------------------------

    def play(self) -> None:
        """Let two or three attempts, and perhaps a person, work on the job; then run it until nothing is left."""
        same_id = self.random.random() < 0.5
        ids = ["jr_1" if same_id else f"jr_{number}" for number in range(self.random.randint(2, 3))]
        work = [(f"run {number}", self._refusable(partial(self.attempt, run_id))) for number, run_id in enumerate(ids)]
        self._actors = [Actor(name, do) for name, do in work]
        decision = self.random.choice((None, None, None, self.discard, self.retract, self.retract_twice, self.release))
        self._following: list[tuple[Actor, Callable[[], bool]]] = []
        if decision is not None:
            # Before something is published, a decision finds little to decide on. Only a run that begins after the
            # decision deletes what it took back.
            person = Actor("person", self._refusable(decision))
            after = Actor("after", self._refusable(partial(self.attempt, ids[0])))
            is_early = decision == self.release or self.random.random() < 0.3
            self._following = [(person, lambda: is_early or bool(self.rows())), (after, lambda: person.is_over)]
        self._stays = self.random.choice([0.0, 0.5, 0.8, 0.95])
        current = self._choose(None)
        while current is not None:
            current.step()
            if current.error is not None:
                raise current.error
            current = self._choose(current)
        self._drain()

    def _choose(self, current: Actor | None) -> Actor | None:
        """Choose who moves next, and what happens to that actor; None when all are done."""
        while True:
            left = [actor for actor in self._actors if not actor.is_over]
            # An actor that waits for an event which will not happen any more starts once all others are done.
            if self._following and (self._following[0][1]() or not left):
                self._actors.append(self._following.pop(0)[0])
                continue
            if not left:
                return None
            if current is None or current not in left or current.is_asleep or self.random.random() > self._stays:
                # A sleeping actor is woken when no other actor is left to move.
                current = self.random.choice([actor for actor in left if not actor.is_asleep] or left)
                current.is_asleep = False
            self._chance(current)
            return current

    def _drain(self) -> None:
        self.is_faulty = False
        for number in range(10):
            self.now += LEASE + timedelta(seconds=1)
            if not self.attempt(f"drain_{number}"):
                break
        self.look()
        found = self.rows()
        if found != Counter(range(self.source)):
            raise WrongTarget(f"{sorted(found.elements())} where 0 to {self.source - 1} are right")
        if any(self.watermarks.latest(JOB).unpublished):
            raise WrongTarget("a batch is not published")
        if unexplained := self.unexplained():
            raise WrongTarget(f"nobody explains {unexplained}")

    def unexplained(self) -> list[str]:
        """Return what remains at the target or in staging although the doctor neither reports nor deletes it."""
        found = examine_targets(self.watermarks, JOB, repair=True)
        odd = [str(finding) for finding in found if finding.kind not in ("staged leftover", "retraction")]
        held = [uri for uri in self.storage.held if not uri.startswith(f"{TARGET}/") and not uri.endswith(f"/{NOTE}")]
        return odd + held

    def _refusable(self, work: Callable[[], Any]) -> Callable[[], None]:
        def tried() -> None:
            try:
                work()
            except (RunInProgressError, UnknownJobError, PlanConflictError) as error:
                self.refused[error.kind] += 1
            except WatermarkError as error:
                # Fenced, unknown, closed: an attempt may fail, as long as the target is right.
                self.refused[error.kind] += 1

        return tried

    def _chance(self, actor: Actor) -> None:
        chance = self.random.random()
        if chance < 0.01:
            actor.is_killed = True
        elif chance < 0.04:
            self.now += LEASE + timedelta(seconds=1)
        elif chance < 0.06:
            self.source += 1
        elif chance < 0.12:
            actor.cut_off = self.random.choice((1, 1, 12))
        elif chance < 0.15:
            # Stopped, suspended, or on a network that delays its packets: asleep once the current step is done.
            actor.is_asleep = True

    def stop(self, what: str) -> None:
        actor = moving()
        if actor is not None:
            self.trace.append(f"{actor.name}: {what}")
            actor.pause()

    def _request(self, operation: str) -> str | None:
        self.stop(operation)
        actor = moving()
        if not self.is_faulty or actor is None:
            return None
        if actor.cut_off:
            # For a while no reply arrives, whether the request did or not, so the outcome of a commit may stay unknown.
            actor.cut_off -= 1
            return self.random.choice(("reply-lost", "drop"))
        return self.random.choice(FAULTS) if self.random.random() < 0.03 else None

    # --- what readers see -----------------------------------------------------------------------

    def rows(self, without: Collection[Retraction] = ()) -> Counter[int]:
        """Return the rows that a reader of the target sees, with their counts."""
        seen: Counter[int] = Counter()
        for uri, data in self.storage.held.items():
            is_seen = uri.startswith(f"{TARGET}/") and not is_hidden(uri.removeprefix(f"{TARGET}/"))
            if is_seen and not any(is_published_name(uri, one) for one in without):
                seen.update(rows_in(data))
        return seen

    def look(self) -> None:
        """Raise WrongTarget if a row is there twice, or before its batch is committed."""
        version, going = self._in_force()
        doubled = [row for row, count in self.rows(going).items() if count > 1]
        if doubled:
            raise WrongTarget(f"rows {doubled} are there twice")
        early = [seen for seen in self.versions() if seen > version]
        if early:
            raise WrongTarget(f"rows of version {early[0]} are there, and {version} is committed")

    def _in_force(self) -> tuple[int, list[Retraction]]:
        """Return the version in force, and the retractions that runs have not finished: their rows may still be there.

        On S3, a late copy may bring rows back. The head is parsed again only when it has changed.
        """
        stored = self.database.stored(JOB, items.HEAD_KEY)
        if stored != self._head_seen:
            item = self.database.item(JOB, items.HEAD_KEY)
            assert item is not None, "the head was deleted"
            head = items.head_from_item(item)
            self._head_seen = stored
            self._seen_in_force = head.version, list(head.retracting)
        return self._seen_in_force

    def versions(self) -> set[int]:
        """Return the versions whose rows a reader of the target sees."""
        batches = [batch_of(uri) for uri in self.storage.held if uri.startswith(f"{TARGET}/")]
        return {batch[2] for batch in batches if batch is not None}


Story = TypeVar("Story", bound=Interleaving)


def play(number: int) -> Interleaving:
    """Play one interleaving; an error names its number."""
    return played(Interleaving(number), number)


def let_number_decide(number: int, patch: pytest.MonkeyPatch) -> None:
    """Derive tokens from the number of a story, like everything else in it."""
    tokens = random.Random(-number)
    patch.setattr(secrets, "token_hex", lambda size=16: f"{tokens.getrandbits(8 * size):0{2 * size}x}")


def played(story: Story, number: int) -> Story:
    """Play a story to its end, and return it."""
    try:
        story.play()
    except BaseException as error:
        shown = "\n".join(story.trace[-80:])
        raise AssertionError(f"interleaving {number}: {type(error).__name__}: {error}\n{shown}") from error
    return story
