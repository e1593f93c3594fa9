"""The notebook of docs/, run from its first cell to its last."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.no_aws import no_aws
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

PATH = REPOSITORY / "docs" / "notebook.ipynb"


@pytest.fixture(scope="module")
def executed() -> Any:
    """Run the notebook without any AWS configuration and return it with outputs; an error in a cell is raised."""
    notebook = nbformat.read(PATH, as_version=4)
    with pytest.MonkeyPatch.context() as environment:
        no_aws(environment)
        return NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(REPOSITORY)}}).execute()


def outputs(executed: Any, start: str, kind: str = "text/plain") -> list[str]:
    """Return the outputs of the cells whose source begins with `start`."""
    return [
        output["data"].get(kind, "")
        for cell in executed.cells
        if cell.cell_type == "code" and cell.source.startswith(start)
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]


def test_notebook_has_no_outputs_when_it_is_stored() -> None:
    stored = nbformat.read(PATH, as_version=4)

    assert [cell for cell in stored.cells if cell.get("outputs") or cell.get("execution_count")] == []


def test_notebook_shows_history_delta_and_reasons_when_it_is_run(executed: Any) -> None:
    before, after = outputs(executed, 'watermarks.history("parking-to-raw")')
    (table, _) = outputs(executed, 'watermarks.history("parking-to-raw")', "text/html")
    (delta,) = outputs(executed, '(landing / "d.json")', "text/html")
    explained = outputs(executed, "from scripts.helpers.file_bookmark") + outputs(executed, "bookmark.explain")

    assert [line.split()[:2] for line in before.splitlines()[2:]] == [["2", "COMMIT"], ["1", "COMMIT"]]
    assert [line.split()[1] for line in after.splitlines()[2:]] == ["COMMIT", "REWIND", "COMMIT", "COMMIT"]
    assert table.startswith("<table><caption>parking-to-raw</caption>")
    assert "/landing/: 1 file, 12 bytes" in delta
    assert explained[0].startswith("'taken at version 2 by run jr_")
    assert explained[1] == "'it is not there, and nothing is remembered of it'"


def test_notebook_reads_the_last_file_again_when_the_job_is_rewound(executed: Any) -> None:
    (again,) = outputs(executed, "watermarks.rewind")

    assert re.fullmatch("<FileDelta 'file:///.*/landing/': 1 file, 12 bytes>", again)
