"""A command for a job whose items were altered changes nothing of another job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import CorruptItemError, WatermarkError
from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command
from tests.support.neighbours import (
    KINDS,
    PLANTED,
    PLANTER,
    VICTIM,
    Neighbours,
    both,
    check_that_the_other_one_goes_on,
    folders_of_others,
    record_of,
)
from tests.support.table_items import plant

WHY = ("--why", "a test", "--yes")
ORDERS: Mapping[str, Sequence[str]] = {
    "doctor": ("doctor", PLANTER, "--repair", "--yes"),
    "rewind": ("rewind", PLANTER, "--to-version", "1", "--retract", *WHY),
    "reset": ("reset", PLANTER, "--retract", *WHY),
}


def check_that_the_other_one_goes_on_when_ordered(two: Neighbours, run: Command, order: str) -> None:
    before = two.of_others()

    done = run(two.watermarks, *ORDERS[order])
    with suppress(CorruptItemError):
        examine_targets(two.watermarks, PLANTER, sinks=[two.sink(PLANTER)], repair=True)
    with suppress(WatermarkError):
        two.run(PLANTER, 3)

    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    check_that_the_other_one_goes_on(two, before)


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_target_of_another_job_stays_when_an_altered_log_names_it(
    watermarks: Watermarks, tmp_path: Path, run: Command, kind: str, order: str
) -> None:
    """The operator may write anywhere, so no access rights protect the other target."""
    two = both(KINDS[kind](watermarks, tmp_path))
    own, theirs = record_of(two.watermarks, PLANTER), record_of(two.watermarks, VICTIM)
    records = [*(make(own, theirs) for make in PLANTED), *folders_of_others(two), own]
    for version in (1, 2):
        plant(two.watermarks, PLANTER, {"outputs": records}, at=items.log_key(version))

    check_that_the_other_one_goes_on_when_ordered(two, run, order)


@pytest.mark.parametrize("order", list(ORDERS))
def test_foreign_folder_stays_when_an_altered_log_names_it_and_no_job(
    watermarks: Watermarks, tmp_path: Path, run: Command, order: str
) -> None:
    two = both(KINDS["files"](watermarks, tmp_path))
    letter = tmp_path / "council" / "home" / "alice" / "letter.txt"
    letter.parent.mkdir(parents=True)
    letter.write_text("dear")
    record = record_of(watermarks, PLANTER) | {"job": "", "staging": f"file://{tmp_path}/council"}
    record["target"] = f"file://{tmp_path}/another"
    for version in (1, 2):
        plant(watermarks, PLANTER, {"outputs": [record]}, at=items.log_key(version))

    check_that_the_other_one_goes_on_when_ordered(two, run, order)
