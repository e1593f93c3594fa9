"""Which files are to blame when a read fails: only those that fail alone, twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from scripts.helpers.errors import SourceError
from scripts.helpers.reading.search import TRANSIENT, NotAFileError, search, typed_read_errors

MANY = [f"{number:03d}" for number in range(64)]


class Reader:
    """Reads files, some of which are damaged, and records which files it was asked to read."""

    def __init__(self, *damaged: str) -> None:
        self.damaged, self.reads = set(damaged), list[list[str]]()

    def fails(self, keys: Sequence[str]) -> Exception | None:
        self.reads.append(list(keys))
        found = sorted(self.damaged & set(keys))
        return ValueError(f"damaged: {found[0]}") if found else None


def nobody(error: Exception, keys: Sequence[str]) -> Sequence[str]:
    return []


def the_one_it_names(error: Exception, keys: Sequence[str]) -> Sequence[str]:
    return [str(error).removeprefix("damaged: ")]


def all_of_them(error: Exception, keys: Sequence[str]) -> Sequence[str]:
    return keys


def a_stranger(error: Exception, keys: Sequence[str]) -> Sequence[str]:
    return ["of another source"]


@pytest.mark.parametrize("named", [nobody, the_one_it_names, all_of_them, a_stranger])
@pytest.mark.parametrize("damaged", [[], ["000"], ["063"], ["017", "018", "040"], MANY], ids=len)
def test_each_damaged_file_is_found_and_no_other(
    damaged: list[str], named: Callable[[Exception, Sequence[str]], Sequence[str]]
) -> None:
    reader = Reader(*damaged)

    found = search(MANY, reader.fails, named)

    assert sorted(found) == damaged


def test_files_that_errors_name_are_read_alone_first_when_there_are_many() -> None:
    reader = Reader("017", "040")

    search(MANY, reader.fails, the_one_it_names)

    # Each named file is read alone twice, and then the remaining files together, until that read succeeds.
    assert [len(keys) for keys in reader.reads] == [64, 1, 1, 63, 1, 1, 62]


def test_files_are_halved_when_no_error_names_one() -> None:
    reader = Reader("000")

    search(MANY, reader.fails, nobody)

    assert [len(keys) for keys in reader.reads] == [64, 32, 16, 8, 4, 2, 1, 1, 1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize("named", [nobody, all_of_them])
def test_each_key_is_looked_up_a_few_times_when_there_are_many(
    named: Callable[[Exception, Sequence[str]], Sequence[str]],
) -> None:
    hashed: list[str] = []

    class Key(str):
        __slots__ = ()

        def __hash__(self) -> int:
            hashed.append(self)
            return super().__hash__()

    search([Key(key) for key in MANY], lambda keys: ValueError("damaged: 000") if "000" in keys else None, named)

    assert len(hashed) < 10 * len(MANY)


def test_nothing_is_read_when_there_are_no_files() -> None:
    reader = Reader()

    assert (search([], reader.fails, nobody), reader.reads) == ([], [])


def test_file_is_not_to_blame_when_it_can_be_read_the_second_time() -> None:
    errors = [ValueError("lost"), None]

    assert search(["a"], lambda keys: errors.pop(0), nobody) == []
    assert errors == []


@pytest.mark.parametrize("before", [[], [ValueError("lost")]], ids=["first", "second"])
def test_no_file_is_to_blame_when_the_cause_is_another(before: list[Exception]) -> None:
    errors = [*before, type("RetriesExceeded", (Exception,), {})()]

    with pytest.raises(NotAFileError, match="RetriesExceeded"):
        search(["a"], lambda keys: errors.pop(0), nobody)


@pytest.mark.parametrize("cause", ["SocketTimeoutException", "ZipException"])
def test_error_of_spark_is_kept_when_another_attempt_may_succeed(cause: str) -> None:
    java = SimpleNamespace(
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: cause), getCause=lambda: None, toString=lambda: cause
    )
    error = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol", "java_exception": java})("lost")

    with pytest.raises(type(error) if cause in TRANSIENT else SourceError), typed_read_errors("in/"):
        raise error
