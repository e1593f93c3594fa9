"""Evaluates whether IAM policies allow a request, by the rules of the IAM User Guide, for the operators that we use.

Rules: "Policy evaluation logic" (a Deny wins, without an Allow it is refused), "Condition operators" and
"Set operators for multi-valued context keys". An unknown element raises an error instead of a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One action on one resource, with the context that the service provides.

    A single-valued key has a str, a multi-valued key (such as dynamodb:LeadingKeys) a tuple.
    """

    action: str
    resource: str
    context: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


def is_allowed(policies: Iterable[str | Mapping[str, Any]], request: Request) -> bool:
    """Return whether identity policies, as JSON or parsed, allow a request."""
    effects = {
        statement["Effect"]
        for policy in policies
        for statement in _list((json.loads(policy) if isinstance(policy, str) else policy)["Statement"])
        if _applies(statement, request)
    }
    return "Allow" in effects and "Deny" not in effects


def _applies(statement: Mapping[str, Any], request: Request) -> bool:
    unknown = set(statement) - {"Sid", "Effect", "Action", "Resource", "Condition"}
    if unknown:
        raise ValueError(f"the evaluator does not know {sorted(unknown)}")
    return (
        any(_like(pattern.lower(), request.action.lower()) for pattern in _list(statement["Action"]))
        and any(_like(pattern, request.resource) for pattern in _list(statement["Resource"]))
        and all(
            _holds(operator, key, [str(value) for value in _list(wanted)], request.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, str | tuple[str, ...]]) -> bool:
    found = {name.lower(): value for name, value in context.items()}.get(key.lower())
    quantifier, _, plain = operator.rpartition(":")
    if plain == "Null":
        is_absent = found is None or found == ()
        return is_absent == (wanted == ["true"])
    if_exists = plain.endswith("IfExists")
    name = plain.removesuffix("IfExists")
    if name not in _OPERATORS or quantifier not in ("", "ForAllValues", "ForAnyValue"):
        raise ValueError(f"the evaluator does not know the operator {operator}")
    matches, is_negative = _OPERATORS[name]

    def one(value: str) -> bool:
        return any(matches(pattern, value) for pattern in wanted) != is_negative

    if quantifier:
        values = (found,) if isinstance(found, str) else found or ()
        values = tuple(value for value in values if value != "")
        return all(map(one, values)) if quantifier == "ForAllValues" else any(map(one, values))
    if found is None:
        return if_exists or is_negative
    if not isinstance(found, str):
        raise ValueError(f"{key} has many values; {operator} needs ForAllValues or ForAnyValue")
    return one(found)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _like(pattern: str, text: str) -> bool:
    """Match with ``*`` for any text and ``?`` for any one character."""
    if "${" in pattern:
        raise ValueError("the evaluator does not know policy variables")
    regex = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def _equal(pattern: str, text: str) -> bool:
    return pattern == text


def _equal_bool(pattern: str, text: str) -> bool:
    return pattern.lower() == text.lower()


_OPERATORS: dict[str, tuple[Callable[[str, str], bool], bool]] = {
    "StringEquals": (_equal, False),
    "StringNotEquals": (_equal, True),
    "StringLike": (_like, False),
    "StringNotLike": (_like, True),
    "ArnEquals": (_like, False),
    "ArnLike": (_like, False),
    "Bool": (_equal_bool, False),
}
"""The comparison of the policy's value with the request's, and whether the operator is negated."""
