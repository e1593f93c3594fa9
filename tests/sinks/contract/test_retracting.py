"""Rows that a decision takes back disappear from the target and come again once; the other rows stay."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from scripts.helpers.errors import InvalidValueError, TargetError, TargetSchemaError
from scripts.helpers.sinks.file_schema import COLUMNS
from scripts.helpers.watermarks import Watermarks
from tests.sinks.contract.targets import Copy, Files, Kind, Target, every, in_one_format, in_one_place, numbers


@every(where=in_one_format, slow=("delta-spark", "deltalake-s3", "pyarrow-s3"))
def test_rows_of_later_versions_go_and_come_again_once_when_a_rewind_takes_them_back(
    watermarks: Watermarks, target: Target
) -> None:
    target.create(numbers().schema, batch=pa.string())
    options = {"batch_column": "batch"} if "batch_column" in target.kind.can else {}
    copy, other = (Copy(watermarks, target, job_id, **options) for job_id in ("repairs", "parking"))
    other.run(numbers(70))
    for number in (1, 2, 3):
        copy.run(numbers(number))

    watermarks.rewind(copy.job_id, to_version=1, retract=True, why="2 was wrong")
    copy.batches[1:] = [numbers(22)]
    job = copy.begin()
    decided = target.ids()
    job.__exit__(None, None, None)
    copy.run(numbers(4))

    assert decided == [1, 70]
    assert target.ids() == [1, 4, 22, 70]
    marks = [row["batch"] for row in target.read()] if options else []
    assert [mark for mark in marks if not re.fullmatch(r"[0-9a-f]{32}-e[0-9a-f]{16}-\d{10}", mark)] == []


@every("batch_column", where=lambda kind: kind.engine == "pandas")
def test_decision_is_refused_when_no_column_marks_the_rows_to_take_back(target: Target, copy: Copy) -> None:
    target.create(numbers().schema)
    copy.run(numbers(1, 2))

    with pytest.raises(InvalidValueError, match="the 2 rows that version 1 left there cannot be taken back"):
        copy.watermarks.reset(copy.job_id, retract=True, why="rows of a test were among them")

    assert (copy.watermarks.latest(copy.job_id).version, target.ids()) == (1, [1, 2])


def has_files_whose_columns_come_and_go(kind: Kind) -> bool:
    return kind.family == "files" and kind.form != "csv" and in_one_place(kind)


@every(where=has_files_whose_columns_come_and_go)
def test_error_names_what_to_delete_when_only_a_batch_that_was_taken_back_had_a_column(
    watermarks: Watermarks, target: Target, copy: Copy
) -> None:
    copy.run(numbers(1))
    copy.run(numbers(2).append_column("rate", pa.array([0.5])))
    watermarks.rewind(copy.job_id, to_version=1, retract=True, why="a rate is a text")
    copy.batches.pop()
    corrected = numbers(2).append_column("rate", pa.array(["half"]))

    copy.refused(corrected, TargetSchemaError, match=f"'rate'.*delete .*/{COLUMNS}: ")
    target.sink().target.delete([COLUMNS])
    copy.run(corrected)
    copy.run(numbers(3).append_column("rate", pa.array(["one"])))

    assert target.ids() == [1, 2, 3]


@pytest.mark.parametrize("target", ["pandas", "pandas-s3"], indirect=True)
def test_target_is_refused_when_another_job_writes_to_a_folder_below_it(watermarks: Watermarks, target: Files) -> None:
    copy = Copy(watermarks, target)
    below = Copy(watermarks, target.another(f"{target.place.uri.rpartition('/')[2]}/sub"), "parking")
    copy.run(numbers(1))
    below.run(numbers(70))

    copy.refused(numbers(2), TargetError, match="job writes to its folder 'sub'")
    below.run(numbers(71))

    assert below.target.ids() == [70, 71]
