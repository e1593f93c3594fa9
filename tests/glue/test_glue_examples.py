"""Docstring examples of Glue's names that need Spark, run as written."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from pyspark import SparkContext

from scripts.helpers.glue import GlueContext
from scripts.helpers.watermarks import Watermarks
from tests.support.doctests import START, examples, needs_spark, run

EXAMPLES = [test for test in examples() if needs_spark(test)]


@pytest.mark.parametrize("test", EXAMPLES, ids=lambda test: test.name.removeprefix(START))
def test_docstring_example_gives_what_it_shows_when_it_is_run_on_spark(
    test: doctest.DocTest, glue_context: GlueContext, watermarks: Watermarks, tmp_path: Any
) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text("id\n123")
    names = {"glue_context": glue_context, "watermarks": watermarks, "landing": str(tmp_path)}

    run(test, names | {"SparkContext": SparkContext})


def test_every_class_with_spark_is_among_the_examples_when_they_are_searched() -> None:
    found = {test.name.rpartition(".")[2] for test in EXAMPLES}

    assert {"GlueContext", "Job", "DynamicFrame"} <= found
