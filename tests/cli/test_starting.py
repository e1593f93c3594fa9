"""How the command starts without its packages, shows its version, and ends on Ctrl-C."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import pytest
from click.testing import CliRunner

from scripts.cli import deciding, jobs, start
from scripts.cli.contexts import file_bookmark
from scripts.cli.main import cli
from scripts.cli.report import report_package
from scripts.helpers.errors import ConfigurationError
from scripts.helpers.watermarks import Watermarks
from tests.support.blocked_packages import run_without


@pytest.mark.parametrize("package", ["click", "rich"])
def test_command_says_what_to_install_when_a_package_is_missing(package: str) -> None:
    done = run_without({package}, "from scripts.cli.start import main\nmain()", "jobs")

    assert done.returncode == 78
    assert done.stderr == f"watermarks needs {package}: {sys.executable} -m pip install click rich\n"


def test_error_is_raised_as_it_is_when_another_module_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scripts.cli.main", None)

    with pytest.raises(ModuleNotFoundError, match=r"scripts\.cli\.main"):
        start.main()


def test_command_is_run_when_its_packages_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("scripts.cli.main.main", lambda: calls.append(1))

    start.main()

    assert calls == [1]


@pytest.mark.parametrize(
    ("package", "modules", "load", "text"),
    [
        (
            "pyarrow",
            "scripts.helpers.files.bookmark",
            file_bookmark,
            "This command requires pyarrow. Install it: pip install pyarrow.",
        ),
        ("jinja2", "scripts.report", report_package, "The page needs Jinja2. Install it: pip install Jinja2."),
        (
            "markupsafe",
            "scripts.report",
            report_package,
            "The report requires markupsafe. Install it: pip install Jinja2.",
        ),
    ],
    ids=["pyarrow", "jinja2", "markupsafe"],
)
def test_package_is_named_when_a_command_needs_it_and_it_is_missing(
    package: str, modules: str, load: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(modules)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConfigurationError) as caught:
        load()

    assert str(caught.value) == text


def test_version_is_that_of_the_installed_package_when_asked_for() -> None:
    done = CliRunner().invoke(cli, ["--version"])

    assert (done.exit_code, done.output) == (0, f"watermarks, version {version('glue-watermarks')}\n")


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_command_ends_with_130_when_it_is_interrupted_at_work(
    watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "list_jobs", interrupted)

    done = CliRunner().invoke(cli, ["--table", watermarks.table_name, "--endpoint-url", endpoint, "jobs"])

    assert (done.exit_code, done.stdout) == (130, "")


def test_command_ends_with_130_when_it_is_interrupted_at_a_question(
    watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watermarks.begin("parking", "jr_1") as run:
        run.freeze({}, {"up_to": 42})
        run.commit()
    monkeypatch.setattr(deciding, "is_asked", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    given = ["--table", watermarks.table_name, "--endpoint-url", endpoint, "reset", "parking", "--why", "again"]

    with pytest.raises(SystemExit) as ended:
        cli(given)

    assert ended.value.code == 130
    assert watermarks.latest("parking").version == 1
