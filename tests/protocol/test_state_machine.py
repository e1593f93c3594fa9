"""Random search for an order of calls, faults and clocks that loses or duplicates a row (hazards I1 to I11, I14)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.protocol.machine import Protocol
from tests.support.doubles import Double, FaultyFile
from tests.support.long import cases


class OnFile(Protocol):
    """The same search on a table in a file."""

    def make_double(self) -> Double:
        return FaultyFile()


TestProtocol, TestProtocolOnFile = Protocol.TestCase, OnFile.TestCase
TestProtocol.settings = TestProtocolOnFile.settings = settings(
    max_examples=cases(15, long=1_500),
    stateful_step_count=cases(40, long=60),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=True,
)
