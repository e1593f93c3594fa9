"""Events bring the same files as a listing, and none twice, even if messages are late, lost or repeated."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.buckets import Job
from tests.support.events import Told
from tests.support.long import cases

KEYS = st.sampled_from(["a.csv", "b.csv", "day=1/c.csv"])
WRITES = st.tuples(st.just("put"), KEYS, st.sampled_from(["1", "2", "3"]), st.integers(0, 90))
DELETES = st.tuples(st.just("delete"), KEYS)
DELIVERIES = st.tuples(st.just("told"), st.lists(st.integers(0, 30), max_size=4))
LISTINGS = st.tuples(st.just("list"))


@settings(max_examples=cases(40, long=3_000), deadline=None)
@given(
    steps=st.lists(st.one_of(WRITES, WRITES, DELETES, DELIVERIES, DELIVERIES, LISTINGS), max_size=25),
    versioned=st.booleans(),
)
def test_events_bring_what_a_listing_brings_when_messages_are_late_lost_or_repeated(
    steps: list[tuple[object, ...]], versioned: bool
) -> None:
    """Each write or delete sends a message with its key, which is delivered any number of times, in any order.

    An upload has the time at which it was started, up to 90 minutes before the object exists.
    """
    job = Job(versioned=versioned)
    sent: list[str] = []
    known: dict[str, tuple[object, ...]] = {}
    written = 0

    def check(taken: list[str]) -> None:
        for key in taken:
            row = job.bucket.objects[key]
            identity = (row["version_id"],) if versioned else (row["etag"], row["size"])
            assert known.get(key) != identity, f"{key} is taken twice"
            known[key] = identity

    for step in steps:
        job.bucket.wait(minutes=1)
        if step[0] == "put":
            _, key, body, minutes = step
            written += 1
            job.bucket.put(str(key), body=str(body), at=job.bucket.now - timedelta(minutes=int(str(minutes))))
            job.bucket.objects[str(key)]["version_id"] = f"v{written}" if versioned else None
            sent.append(str(key))
        elif step[0] == "delete":
            job.bucket.delete(str(step[1]))
            sent.append(str(step[1]))
        elif step[0] == "told":
            keys = {sent[place % len(sent)] for place in step[1]} if sent else set()  # type: ignore[attr-defined]
            check(job.take_told(Told(sorted(keys))))
        elif step[0] == "list":
            check(job.take())
        forget_what_is_known_as_gone(job, known)

    # Once a message of each write has arrived, a listing finds no other file.
    check(job.take_told(Told(sorted(set(sent)))))
    assert job.take() == []
    assert known.keys() >= job.bucket.objects.keys()


def forget_what_is_known_as_gone(job: Job, known: dict[str, tuple[object, ...]]) -> None:
    """Remove keys that the bookmark saw deleted: such an object is new when it returns, even with the same bytes."""
    if job.state is None:
        return
    remembered = set(job.bookmark().ledger.known().between(None, None).column("key").to_pylist())
    for key in set(known) - remembered:
        del known[key]
