"""Strategies for writes to a table and reads from it, with so few keys and values that they often meet."""

from __future__ import annotations

from datetime import datetime, timezone

from hypothesis import strategies as st

from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Change, Claim, Head, LogEntry, Plan

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
small = st.integers(0, 2)
tokens = st.sampled_from(["t1", "t2"])
jobs = st.just("parking") | st.sampled_from(["parking", "roads"])


@st.composite
def heads(draw: st.DrawFn) -> Head:
    claimed, planned = draw(st.booleans()), draw(st.booleans())
    return Head(
        draw(jobs),
        epoch=draw(st.sampled_from(["e1", "e2"])),
        version=draw(small),
        fence=draw(small),
        watermarks={"value": draw(small)},
        claim=Claim("jr_1", draw(tokens), 1, NOW, NOW) if claimed else None,
        plan=Plan(draw(tokens), {"rows": {"low": 0}}, {"value": 1}, NOW) if planned else None,
    )


entries = st.builds(
    lambda job_id, version, run_id: LogEntry(job_id, version, {"value": version}, Change("COMMIT", "c", NOW, run_id)),
    jobs, small, st.sampled_from(["jr_1", "jr_2"]),
)  # fmt: skip
range_keys = st.sampled_from([items.HEAD_KEY, *map(items.log_key, range(3)), "jr_1", items.chunk_key("p#t1-0", 0)])
