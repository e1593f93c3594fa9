"""A pytest plugin that writes a result for each group of tests to the file that --groups-to names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support import reach


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--groups-to", metavar="FILE", help="leave a result for each group of tests in a file")
    parser.addoption("--group", metavar="NAME", help="take all tests of this run for those of a group")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--groups-to"):
        config.pluginmanager.register(Recorder(Path(path), config))


class Recorder:
    """Writes results after the tests are collected, and again after they have ended."""

    def __init__(self, path: Path, config: pytest.Config) -> None:
        self.path, self.whole = path, config.getoption("--group")
        self.only_collects = config.getoption("collectonly")
        self.tests: dict[str, str] = {}
        self.outcomes: dict[str, reach.Outcome] = {}

    def leave(self, outcomes: dict[str, reach.Outcome]) -> None:
        results = [
            reach.Result(group, outcome, count, reach.digest(group)) for (group, outcome), count in
            Counter((group, outcomes.get(test, "began")) for test, group in self.tests.items()).items()
        ]  # fmt: skip
        if self.whole:
            results.append(reach.Result(self.whole, "collected", len(self.tests), reach.digest(self.whole)))
        reach.leave(self.path, results)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        groups = {item.nodeid: self.whole or reach.group_of(item) for item in session.items}
        self.tests = {test: group for test, group in groups.items() if group}
        self.leave(dict.fromkeys(self.tests, "collected") if self.only_collects else {})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome
        elif report.when == "call":
            self.outcomes.setdefault(report.nodeid, "passed")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.only_collects:
            return
        if self.whole and (missed := reach.not_reached(self.whole)):
            # A file outside the group's hash could change without the group running again.
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            message = f"tests/support/reach.py does not count what {self.whole} loads: {', '.join(missed)}"
            if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
                reporter.write_line(message, red=True)
            self.outcomes = dict.fromkeys(self.tests, "failed")
        self.leave(self.outcomes)
