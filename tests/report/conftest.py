"""Fixtures: the system's Chromium, headless and driven by Selenium, and a table with one job of each kind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from tests.report.browser import Page
from tests.report.world import World, fill
from tests.support.clock import Clock
from tests.support.components import missing_component

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        missing_component("Chromium", "apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield started
    started.quit()


@pytest.fixture
def page(driver: Any) -> Page:
    return Page(driver)


@pytest.fixture(scope="session")
def world(dynamodb: Any) -> World:
    """Return a table with one job of each kind; its `job_id_rule` accepts every name."""
    clock = Clock()
    made = Watermarks("table-report", dynamodb, clock=clock, job_id_rule=".+")
    made.create_table()
    fill(made, clock)
    return World(made, clock.now)


@pytest.fixture(scope="session")
def report_file(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the report of `world`."""
    path = tmp_path_factory.mktemp("report") / "watermarks.html"
    path.write_text(build_report(world.watermarks, now=world.now), encoding="utf-8")
    return path
