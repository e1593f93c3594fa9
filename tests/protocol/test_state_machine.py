"""Random search for an order of calls, faults and clocks that loses or doubles a row (hazards I1 to I11, I14)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.protocol.machine import Protocol
from tests.support.doubles import Double, FaultyFile

LONG = bool(os.environ.get("GLUE_WATERMARKS_LONG"))


class OnFile(Protocol):
    """The same with a table in a file."""

    def make_double(self) -> Double:
        return FaultyFile()


TestProtocol, TestProtocolOnFile = Protocol.TestCase, OnFile.TestCase
TestProtocol.settings = TestProtocolOnFile.settings = settings(
    max_examples=1_500 if LONG else 40,
    stateful_step_count=60 if LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=True,
)
