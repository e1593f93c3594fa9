"""Options that `Watermarks` refuses if its table is a file, and how its answers are shown in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.watermarks import Watermarks
from tests.support.no_aws import no_aws
from tests.support.steps import commit

NAME = "sqlite:watermarks.db"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, without credentials and without a region."""
    no_aws(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"region_name": "eu-west-2"}, "region_name"),
        ({"endpoint_url": "http://127.0.0.1:9"}, "endpoint_url"),
        ({"dynamodb_client": object()}, "dynamodb_client"),
        ({"region_name": "eu-west-2", "endpoint_url": "http://127.0.0.1:9"}, "region_name, endpoint_url"),
    ],
)
def test_option_of_aws_is_refused_when_the_table_is_a_file(options: Any, named: str) -> None:
    with pytest.raises(InvalidValueError, match=f"'sqlite:watermarks.db' is a file.* no effect: {named}\\. Omit"):
        Watermarks(NAME, **options)


def test_answers_are_tables_in_a_notebook_when_the_table_is_a_file() -> None:
    marks = Watermarks(NAME)
    marks.create_table()
    commit(marks, "parking", "jr_1", {"n": 1})

    shown: list[Any] = [marks.history("parking"), marks.list_jobs()]

    assert repr(marks) == "Watermarks('sqlite:watermarks.db')"
    assert ["parking" in one._repr_html_() for one in shown] == [True, True]


def test_file_is_created_in_the_home_folder_when_its_name_starts_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    Watermarks("sqlite:~/watermarks.db").create_table()

    assert (tmp_path / "home" / "watermarks.db").is_file()
