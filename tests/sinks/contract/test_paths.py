"""A target at a path is in the folder that was named, whatever characters its name has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from scripts.helpers.errors import InvalidValueError
from tests.sinks.contract.targets import Copy, Kind, Target, every, numbers

NAMES = ["a#1", "a#2", "a?x", "a%20b", "a b", "a%", "a+b", "\u00e4", "a[x]", "a{x}"]
"""None may be taken for one before it."""
MORE = ["~a%b*c&d=e:f'g\"h,i;\U0001f600", "a\\b", "a^b", "a|b"]
UNFIT = ["a%20b", "a[x]", "a\\b", "a^b", "a|b", "a\nb", "a\tb", "a\x7fb"]
"""What the package deltalake does not take, and the sink refuses."""


def at_a_path(kind: Kind) -> bool:
    """Return whether the test covers a target: Delta, or Parquet files, each with Spark and without."""
    return kind.family == "delta" or (kind.family == "files" and kind.form == "parquet" and kind.engine != "pyarrow")


@every(where=at_a_path, slow=("delta-spark", "parquet-s3"))
def test_rows_are_in_the_folders_that_were_named_when_one_run_writes_to_many(target: Target, copy: Copy) -> None:
    is_unfit = target.kind.family == "delta" and target.spark is None
    names = NAMES if target.spark is not None else [*NAMES, *MORE]
    targets = {name: target.another(name) for name in names if not (is_unfit and name in UNFIT)}

    with copy.job() as job:
        rows = pa.Table.from_pandas(job.rows_since(numbers(1, 2).to_pandas(), "id"), preserve_index=False)
        for one in targets.values():
            one.write(job, rows)
        for name in UNFIT if is_unfit else ():
            with pytest.raises(InvalidValueError, match="with Spark"):
                target.another(name).write(job, rows)

    assert {name: one.ids() for name, one in targets.items()} == {name: [1, 2] for name in targets}
    folders = {name.partition("/")[0] for name in target.contents()}
    assert folders - {f"_{name}.staging" for name in targets} == set(targets)
