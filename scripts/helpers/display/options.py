"""Options by their names: what was meant by one that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from inspect import signature
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from scripts.helpers.errors import SourceOptionError

T = TypeVar("T")

NEAREST = 3
"""At most as many names are offered."""
ALIKE, AS_GOOD = 0.68, 0.1
"""How alike names are that are offered, and how much less than the best of them, as difflib measures it."""


def options_of(kind: type[T], given: Mapping[str, Any], beside: Iterable[str] = (), refused: Collection[str] = ()) -> T:
    """Return options as a value of their class. SourceOptionError for one that there is not says what may be meant.

    Parameters
    ----------
    beside
        Other parameters of the call, which may be meant as well.
    refused
        Options that the call does not take, so that none of them is suggested.
    """
    own = list(signature(kind).parameters)
    known = [name for name in (*own, *beside) if name not in refused]
    for name in given:
        if name not in own:
            why = nearest(known, name) or f"Use {', '.join(known)}."
            raise SourceOptionError(name, f"there is none of that name. {why}")
    return kind(**given)


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Refuse a value that an option does not have. SourceOptionError names those that it has."""
    known = list(choices)
    # To Python, 1 is True.
    if value not in known or isinstance(value, bool) is not isinstance(known[0], bool):
        *others, last = map(repr, known)
        raise SourceOptionError(name, f"{value!r} is unknown. Use {', '.join(others)} or {last}.")


def check_choices(options: Any) -> None:
    """Refuse a value that a field of options does not have, where its type is a few values or a flag."""
    kind: Any = type(options)
    for name, choices in _choices_of(kind).items():
        check_choice(name, getattr(options, name), choices)


@cache
def _choices_of(kind: type) -> dict[str, tuple[object, ...]]:
    flags = Literal[True, False]
    hints = {name: flags if hint is bool else hint for name, hint in get_type_hints(kind).items()}
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def nearest(names: Iterable[str], wanted: str) -> str:
    """Ask whether names were meant that look like the one given; nothing where none does."""
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), list(by_lower), NEAREST, ALIKE)
    # The start of a name may be a small part of it, as `cursor` is of `cursor_column`.
    begun = [
        name for name in by_lower if wanted and (name.startswith(wanted.lower()) or wanted.lower().startswith(name))
    ]
    # To difflib, two letters that are swapped in a short name are two that differ.
    swapped = [name for name in by_lower if sorted(name) == sorted(wanted.lower())]
    near = list(dict.fromkeys([*near, *swapped, *begun]))[:NEAREST]
    # difflib finds the three nearest, alike or not: those that are clearly less alike than the best only distract.
    likeness = [difflib.SequenceMatcher(None, wanted.lower(), name).ratio() for name in near]
    close = [name for name, like in zip(near, likeness, strict=True) if like >= likeness[0] - AS_GOOD]
    return "Did you mean " + " or ".join(by_lower[name] for name in close) + "?" if close else ""
