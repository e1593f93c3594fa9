"""Each error that a page quotes has a text that its class can make."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from string import Formatter
from typing import Any

import pytest

from scripts.helpers import errors
from tests.docs.pages import PAGES, text_of

ANY_TEXT, ANY_NUMBER = "ⱷ", 987_654_321
ANY_TIME = datetime(1987, 6, 5, tzinfo=timezone.utc)
VARIABLE = re.compile(rf"'?{ANY_TEXT}'?|{re.escape(ANY_TIME.isoformat())}|[0-9][0-9,]*")
"""The names, times and numbers that differ between errors of one class."""
QUOTED = [
    (page, name, text)
    for page in PAGES
    for name, text in re.findall(r"\b([A-Z]\w*Error): ([^\n`]+)", text_of(page))
    if issubclass(getattr(errors, name, OSError), errors.WatermarkError)
]


def stand_ins(parameter: inspect.Parameter) -> list[Any]:
    """Return the values to try for an argument: for a list an empty one and a name; for an action also one of AWS."""
    kind = str(parameter.annotation)
    if kind.startswith("Sequence"):
        return [[], [ANY_TEXT]]
    if parameter.name == "action":
        return [ANY_TEXT, f"{ANY_TEXT}:{ANY_TEXT}"]
    return [{"int": ANY_NUMBER, "datetime": ANY_TIME}.get(kind, ANY_TEXT)]


def pattern_of(template: str) -> str:
    """Return the text of a reason as a pattern, with a wildcard for each field of its template."""
    return "".join(text + ("\0" if name else "") for text, name, _, _ in Formatter().parse(template))


def texts_of(error: type[Exception]) -> Iterator[str]:
    """Yield each text that a class makes, as a pattern. A class without its own texts may have any text."""
    if error.__init__ is errors.WatermarkError.__init__:
        yield "\0"
        return
    if "facts" in inspect.signature(error).parameters:
        for text in errors.REASONS.values():
            yield VARIABLE.sub("\0", str(error(ANY_TEXT, pattern_of(text))))
    parameters = [
        parameter
        for parameter in inspect.signature(error).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default in (parameter.empty, "")
    ]
    for arguments in itertools.product(*map(stand_ins, parameters)):
        yield VARIABLE.sub("\0", str(error(*arguments)))


def agrees(quoted: str, made: str) -> bool:
    """Return whether a quoted text matches a text that a class makes; a quote that ends in … is its beginning."""
    ends = [end for end in range(1, len(made)) if made[end - 1] != "\0"] if quoted.endswith("…") else [len(made)]
    start = quoted.removesuffix("…").rstrip()
    return any(re.fullmatch(re.escape(made[:end]).replace("\0", ".*"), start) for end in ends)


@pytest.mark.parametrize(
    ("page", "name", "text"), QUOTED, ids=[f"{page}-{number}" for number, (page, *_) in enumerate(QUOTED)]
)
def test_text_is_that_of_its_class_when_a_page_quotes_it(page: str, name: str, text: str) -> None:
    assert any(agrees(text, made) for made in texts_of(getattr(errors, name)))


def test_quotes_are_found_when_pages_are_read() -> None:
    assert len({name for _, name, _ in QUOTED}) > 10


@pytest.mark.parametrize(
    "text",
    [
        "The commit of run … of job … got no answer …",
        "The store did not say whether run 'jr_1' of job 'bays' was committed.",
        "The store did not say whether run 'jr_1' of job 'bays' was comitted. …",
    ],
)
def test_text_is_wrong_when_no_class_makes_it(text: str) -> None:
    assert not any(agrees(text, made) for made in texts_of(errors.CommitUnknownError))
