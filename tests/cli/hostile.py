"""Commands on a double of the table, and what the page says of one job."""

from __future__ import annotations

import gzip
import re
from base64 import b64decode

import pytest
from click.testing import CliRunner, Result

from scripts.cli import surroundings
from scripts.cli.main import cli
from tests.cli.stories import NOW
from tests.support.spoiled_table import TableOfJobs


def called(monkeypatch: pytest.MonkeyPatch, table: TableOfJobs, *arguments: str) -> Result:
    """Call the command on a double, as it is called on a table."""
    monkeypatch.setattr(surroundings, "make_table_client", lambda *_: table)
    return CliRunner().invoke(cli, ["--table", "table", "--now", NOW.isoformat(), *arguments], prog_name="watermarks")


def shown_of(page: str, job: str) -> str:
    """Return the row of a job in a page, without its place among the others, and its details."""
    (row,) = re.findall(rf'<tr role="row" data-name="{job}".*?</tr>', page, re.DOTALL)
    (place,) = re.findall(r'data-rank="(\d+)"', row)
    packed = re.search(rf'id="details-{place}">(.*?)</script>', page)
    details = gzip.decompress(b64decode(packed[1])).decode() if packed else ""
    return re.sub(r'data-rank="\d+"', "", row) + details
