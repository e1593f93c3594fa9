"""Options by name: suggestions for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from inspect import signature
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from scripts.helpers.errors import InvalidValueError

T = TypeVar("T")

NEAREST = 3
"""The most names that are suggested."""
ALIKE, AS_GOOD = 0.68, 0.1
"""Least similarity of a suggested name, and how far below the best suggestion it may be, as difflib measures it."""


def option_error(option: str, detail: str) -> InvalidValueError:
    """Return the error of an option that has an invalid value, or no effect; `detail` is a full sentence."""
    return InvalidValueError(f": {detail}", reason="option", option=option)


def options_of(kind: type[T], given: Mapping[str, Any], beside: Iterable[str] = (), refused: Collection[str] = ()) -> T:
    """Return an instance of `kind` with the given options; for an unknown name, raise an error with similar names.

    Parameters
    ----------
    beside
        Names of other parameters of the call. They are suggested too.
    refused
        Options that the call does not take. They are never suggested.
    """
    own = list(signature(kind).parameters)
    known = [name for name in (*own, *beside) if name not in refused]
    for name in given:
        if name not in own:
            why = nearest(known, name) or f"Use {', '.join(known)}."
            raise option_error(name, f"there is none of that name. {why}")
    return kind(**given)


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise InvalidValueError, which lists the choices, if a value is not among the choices of an option."""
    known = list(choices)
    # Compare the types too, because 1 == True in Python.
    if value not in known or isinstance(value, bool) is not isinstance(known[0], bool):
        *others, last = map(repr, known)
        raise option_error(name, f"{value!r} is unknown. Use {', '.join(others)} or {last}.")


def check_choices(options: Any) -> None:
    """Check each field whose type is a Literal or bool; raise InvalidValueError for a value that it does not allow."""
    kind: Any = type(options)
    for name, choices in _choices_of(kind).items():
        check_choice(name, getattr(options, name), choices)


@cache
def _choices_of(kind: type) -> dict[str, tuple[object, ...]]:
    flags = Literal[True, False]
    hints = {name: flags if hint is bool else hint for name, hint in get_type_hints(kind).items()}
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def nearest(names: Iterable[str], wanted: str) -> str:
    """Return a question that suggests the names similar to `wanted`; an empty text if none is similar."""
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), list(by_lower), NEAREST, ALIKE)
    # difflib misses a long name if the user gave only its start, such as `cursor` for `cursor_column`.
    begun = [
        name for name in by_lower if wanted and (name.startswith(wanted.lower()) or wanted.lower().startswith(name))
    ]
    # difflib misses a short name with two swapped letters, because it counts both letters as different.
    swapped = [name for name in by_lower if sorted(name) == sorted(wanted.lower())]
    near = list(dict.fromkeys([*near, *swapped, *begun]))[:NEAREST]
    # Drop names that are clearly less similar than the best one: they only distract.
    likeness = [difflib.SequenceMatcher(None, wanted.lower(), name).ratio() for name in near]
    close = [name for name, like in zip(near, likeness, strict=True) if like >= likeness[0] - AS_GOOD]
    return "Did you mean " + " or ".join(by_lower[name] for name in close) + "?" if close else ""
