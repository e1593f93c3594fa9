"""Every fenced block of README.md and docs/ is run by a test, or this file says why not."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, SHELLS, fences, is_test, metadata, shell_commands, text_of
from tests.support.places import REPOSITORY

RUN = {
    ("files.md", "mermaid"): "docs/test_site.py::test_picture_is_in_the_page",
    ("protocol.md", "mermaid"): "docs/test_site.py::test_picture_is_in_the_page",
    ("rows.md", "mermaid"): "docs/test_site.py::test_picture_is_in_the_page",
    ("README.md", "console"): "docs/test_readme.py::test_first_minute_goes_as_the_page_shows",
    ("README.md", "python"): "docs/test_readme.py::test_readme_examples_work",
    ("command-line.md", "console"): "cli/test_page.py::test_output_is_that_of_the_page",
    ("cost.md", "python"): "docs/test_cost_page.py::test_units_and_dollars_are_those_of_the_page",
    ("failures.md", "console"): "docs/test_failures_page.py::test_stories_happen_as_they_are_told",
    ("failures.md", "python"): "docs/test_failures_page.py::test_stories_happen_as_they_are_told",
    ("files.md", "python"): "docs/test_files_page.py::test_examples_of_the_page_work",
    ("glue-bookmarks.md", "python"): "glue/test_glue_bookmarks_page.py::test_examples_of_the_page_work",
    ("glue.md", "python"): "glue/test_glue_page.py::test_example_takes_each_file_once",
    ("job-runs.md", "python"): "job_runs/test_job_runs_page.py::test_examples_of_the_page_work",
    ("job-runs.md", "mermaid"): "job_runs/test_job_runs_page.py::test_page_is_short_and_draws_legal_moves_only",
    ("lake-jobs.md", "python"): "docs/test_lake_jobs_page.py::test_tables_are_loaded_beside_one_that_fails",
    ("merge.md", "python"): "docs/test_merge_page.py::test_table_is_that_of_the_page",
    ("metrics.md", "console"): "docs/test_metrics_page.py::test_page_shows_what_is_printed",
    ("metrics.md", "python"): "docs/test_metrics_page.py::test_page_shows_what_is_printed",
    ("migrate.md", "python"): "docs/test_migrate_page.py::test_jobs_move_as_told",
    ("permissions.md", "json"): "infra/test_permissions.py::test_page_lists_the_same_actions",
    ("permissions.md", "python"): "infra/test_permissions.py::test_page_lists_the_same_actions",
    ("protocol.md", "python"): "protocol/test_protocol_page.py::test_table_has_a_batch_once",
    ("relationalize.md", "python"): "jobs/test_relationalize.py::test_examples_of_the_page_work",
    ("report.md", "{screenshot} job"): "docs/test_site.py::test_screenshot_is_in_the_page",
    ("report.md", "{screenshot} list"): "docs/test_site.py::test_screenshot_is_in_the_page",
    ("report.md", "{screenshot} phone"): "docs/test_site.py::test_screenshot_is_in_the_page",
    ("report.md", "python"): "report/test_report_page.py::test_examples_of_the_page_work",
    ("rows.md", "python"): "docs/test_rows_page.py::test_examples_of_the_page_work",
    ("run-on.md", "python"): "docs/test_run_on_page.py::test_retry_enters_at_once",
    ("run-on.md", "json"): "docs/test_run_on_page.py::test_setting_of_emr_names_the_python_that_is_installed",
    ("sinks.md", "python"): "docs/test_sinks_page.py::test_batch_is_there_once",
    ("start.md", "console"): "docs/test_start_page.py::test_first_five_minutes_go_as_told",
    ("start.md", "python"): "docs/test_start_page.py::test_first_five_minutes_go_as_told",
    ("table-formats.md", "python"): "docs/test_table_formats_page.py::test_copies_are_those_of_the_page",
    ("terraform.md", "terraform"): "infra/test_pages.py::test_configurations_of_the_pages_are_valid",
    ("write-a-job.md", "python"): "docs/test_write_a_job_page.py::test_examples_of_the_page_work",
}
"""The test that runs the blocks in a language on a page."""
NOT_RUN = {
    ("README.md", "text"): "a picture of a run",
    ("merge.md", "text"): "a part of a job: sinks/test_database_on_spark.py merges rows with missing ones",
    ("api.md", "{eval-rst}"): "for Sphinx: test_site.py builds it, and a name that is not there fails the build",
    ("index.md", "{include} ../README.md"): "for Sphinx: docs/test_site.py finds the words on the built page",
    ("index.md", "{toctree}"): "for Sphinx: test_site.py builds it, and a page that is not there fails the build",
}
SHELL = {
    r"make [a-z-]+": "docs/test_fences.py::test_make_knows_the_target",
    r"watermarks .*": "docs/test_readme.py::test_readme_examples_work",
    r"pip install '\..*": "docs/test_fences.py::test_install_has_what_the_page_shows_next",
    r"moto_server .*": "docs/test_start_page.py::test_first_five_minutes_go_as_told",
    r"export AWS_.*": "docs/test_start_page.py::test_first_five_minutes_go_as_told",
    r"python -m tests\.support\.fetch_.*": "glue/test_public_scripts.py::test_files_are_those_of_the_commit",
    r"python -m build --wheel": "jobs/test_ingest_jobs.py::test_ingest_files_runs_under_spark_submit",
    r"spark-submit .*": "docs/test_run_on_page.py::test_arguments_are_the_jobs",
    r"sed -i .*": "glue/test_glue_page.py::test_imports_exist",
    r"cd terraform/examples/complete": "infra/test_complete_example.py::test_example_leaves_nothing",
    r"cd terraform/examples/minimal": "infra/test_terraform.py::test_minimal_example_makes_the_table_and_one_role",
    r"printf 'provider .* >provider\.tf": "infra/test_complete_example.py::test_example_leaves_nothing",
    r"terraform (init|apply .*)": "infra/test_complete_example.py::test_example_leaves_nothing",
}
"""The test that runs commands that match a pattern."""
SHELL_NOT_RUN = {
    r"sudo (dnf|python3\.11 -m pip) install .*": "it installs into EMR's own Linux, on a machine that is EMR's",
    r"GLUE_SCRIPTS_DIR=.* python -m pytest .*": "the scripts of others are on GitHub; those in their manner are run",
    r"terraform (state rm|import) .*": "it is for a table that AWS has made from a backup",
}
NEEDED = {
    r"watermarks report\b": {"cli", "report"},
    r"^(\$ )?watermarks (explain|plan)\b": {"cli", "files"},
    r"^(\$ )?watermarks ": {"cli"},
    r"\.new_files\(": {"files"},
    r"\bspark\.read\.": {"spark"},
    r"\.to_pandas\(": {"notebook"},
    r"\.read_pandas\(": {"pandas"},
}
"""Commands and code that a page may show, and the extras that they need."""


def test_every_block_is_run_or_excused_when_pages_are_read() -> None:
    shown = {(page, language) for page in PAGES for language, _ in fences(page) if language not in SHELLS}

    assert RUN.keys() & NOT_RUN.keys() == set()
    assert shown == RUN.keys() | NOT_RUN.keys()


@pytest.mark.parametrize(("page", "language"), sorted(RUN))
def test_named_test_is_there_and_reads_the_page_when_it_is_said_to_run_it(page: str, language: str) -> None:
    name = RUN[page, language]

    source = (REPOSITORY / "tests" / name.partition("::")[0]).read_text(encoding="utf-8")

    assert is_test(name)
    assert f'"{page}"' in source


def test_every_shell_command_is_run_or_excused_when_pages_are_read() -> None:
    commands = {command for page in PAGES for command in shell_commands(page)}
    known = SHELL | SHELL_NOT_RUN

    assert len(commands) > 15
    assert [command for command in commands if not any(re.fullmatch(kind, command) for kind in known)] == []
    assert [kind for kind in known if not any(re.fullmatch(kind, command) for command in commands)] == []
    assert [name for name in SHELL.values() if not is_test(name)] == []


WRITTEN = ("python", "terraform", "json", *SHELLS)
"""Languages of blocks whose width we choose. Output of programs and input at a prompt may be wider."""


@pytest.mark.parametrize("page", PAGES)
def test_code_fits_the_column_of_the_site_when_a_page_shows_it(page: str) -> None:
    blocks = [text for language, text in fences(page) if language in WRITTEN and ">>> " not in text]

    assert [line for text in blocks for line in text.splitlines() if len(line) > 88] == []


def test_make_knows_the_target_when_a_page_names_it() -> None:
    named = {command.split()[1] for page in PAGES for command in shell_commands(page) if command.startswith("make ")}
    rules = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert {"demo", "test", "bench-files"} <= named
    assert named <= rules


@pytest.mark.parametrize("page", [page for page in PAGES if "pip install '" in text_of(page)])
def test_install_has_what_the_page_shows_next(page: str) -> None:
    installs = re.findall(r"pip install '([^']+)'", text_of(page))
    extras = {extra for install in installs for extra in install.partition("[")[2].strip("]").split(",") if extra}
    shown = text_of(page)
    needed = set().union(*(what for kind, what in NEEDED.items() if re.search(kind, shown, re.MULTILINE)))

    assert [install for install in installs if "[" in install and not install.startswith((".[", "moto["))] == []
    assert extras - {"server"} <= set(metadata()["options.extras_require"])
    assert needed <= extras
