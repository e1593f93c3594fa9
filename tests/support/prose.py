"""Phrases that pages must not use, and what to write instead."""

from __future__ import annotations

import re

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
    r"\b(tells?|told)\b": "shows, reports, describes",
    r"\banew\b": "again, new",
    r"\bgo(es)? on\b": "continues",
    r"\bpass(es|ed)? over\b": "skips, ignores",
    r"\bfor good\b|\bmade good\b|\bin vain\b": "permanently; fixed; without effect",
    r"\bwhoever\b|(^|[.;:] )who \w+s\b": "anybody who, users who, roles that",
    r"\b(lies?|lying) (above|below|between|in|within)\b|\bwould lie\b": "is",
    r"(?<!there )\bis no (?!(longer|more)\b)": "is not a",
    r"\bbeside (a read|boto3|dlt|listing|one (query|worker)|other tools|s5cmd|spark)\b": "compared with",
    r"\b(can|may) commit no more\b": "can no longer commit",
    r"\bis there already\b|\b(is|are) not there yet\b": "exists already, does not exist yet",
    r"\b(in|at) no place\b|\bnothing (says|tells) which\b": "say what is missing or unknown",
}
"""Patterns that pages must not use, each with a replacement."""


def unfit(text: str) -> list[str]:
    """Return each forbidden phrase in a text, with what to write instead."""
    found = []
    for kind, better in INSTEAD.items():
        found += [f"{phrase[0]!r}: {better}" for phrase in re.finditer(kind, text, re.IGNORECASE)]
    return found
