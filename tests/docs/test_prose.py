"""Pages are written as engineers write: no phrase that a reader has to decode, and no aphorism in place of a fact.

`codespell`, which `make lint` runs too, finds misspelt words; this finds words that are spelt right and used as nobody
uses them.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import FENCE, PAGES, text_of

INSTEAD = {
    r"\bmend(s|ed|ing)?\b": "repairs, fixes",
    r"\bthat one says\b": "name what says it",
    r"\bours\b": "this package",
    r"\bthe last of these\b": "name it again",
    r"\bhas (it|them) come again\b|\b(has to|must|may) come again\b": "reads again, reprocesses",
    r"\b(stands?|lies?) there\b": "is",
    r"\bwithout a word\b": "silently",
    r"\bthree in the morning\b": "what the section helps with",
    r"\bare held to\b": "what is required",
    r"\bit does for\b": "what it does",
    r"\bsilence is\b": "a job that reports nothing",
    r"\bcan do without\b": "is optional",
    r"\b(finds?|tells?|knows?) nothing that is not\b": "say it without two negations",
    r"\bnobody (knows|can tell)\b": "is unknown",
    r"\byour word that\b": "declares that",
    r"\bso far as\b|\binsofar\b": "if, where",
    r"\b-\d+ files\b|\b1 rows have\b": "a plural that agrees with its number",
    r"\bis told of\b|\bare told of\b": "is logged, is reported",
    r"\bwhat comes late\b": "late rows",
}
"""What pages do not say, and what they say in its place."""
SENTENCES_THAT_WERE_BAD = [
    "That one says how late an event may be. Ours says how far a job got, and lasts between runs.",
    "`settled=True` lifts the last of these.",
    "It does for any Spark job what Glue's job bookmarks do for Glue's own readers.",
    "It is for data engineers who load tables on a schedule and are held to the numbers.",
    "When a batch has to come again, say so and say why; the history keeps it",
    "Silence is filled in with a value that is too high (`FILL`).",
    "it shows its values, asks, and can do without `--why`",
    "Checkov finds nothing that is not explained beside the resource.",
    "-1 files · 1 rows have NULL",
]


def prose_of(page: str) -> str:
    """Return a page without its blocks of code and without code in a line."""
    return re.sub(r"`[^`]*`", "", FENCE.sub("", text_of(page)))


def unfit(text: str) -> list[str]:
    """Return each phrase that is not to be used, with what to write instead."""
    found = []
    for kind, better in INSTEAD.items():
        found += [f"{phrase[0]!r}: {better}" for phrase in re.finditer(kind, text, re.IGNORECASE)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_phrase_that_nobody_uses_when_it_is_read(page: str) -> None:
    assert unfit(prose_of(page)) == []


@pytest.mark.parametrize("sentence", SENTENCES_THAT_WERE_BAD)
def test_sentence_is_found_when_it_is_one_of_those_that_were_bad(sentence: str) -> None:
    assert unfit(sentence)
