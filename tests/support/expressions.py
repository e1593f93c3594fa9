"""How DynamoDB evaluates our expressions and counts an item's size; any other expression raises an error. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

Item = dict[str, Any]


class Refused(ValueError):
    """DynamoDB answers this request with a ValidationException."""


class Names:
    """The names and values that an expression refers to; each must be used, as DynamoDB demands."""

    def __init__(self, given: Item) -> None:
        self._names = given.get("ExpressionAttributeNames", {})
        self._values = given.get("ExpressionAttributeValues", {})
        self._used: set[str] = set()

    def name(self, placeholder: str) -> str:
        self._used.add(placeholder)
        return str(self._names[placeholder])

    def value(self, placeholder: str) -> dict[str, Any]:
        self._used.add(placeholder)
        value: dict[str, Any] = self._values[placeholder]
        return value

    def check_used(self) -> None:
        if unused := {*self._names, *self._values} - self._used:
            raise Refused(f"Value unused in expressions: {sorted(unused)}")

    def holds(self, expression: str, item: Item) -> bool:
        """Evaluate a condition with all of its terms, so that every name in it counts as used."""
        sides = [[self._term(term, item) for term in side.split(" AND ")] for side in expression.split(" OR ")]
        return any(map(all, sides))

    def updated(self, expression: str, item: Item) -> Item:
        """Return the item after SET and REMOVE."""
        changed = dict(item)
        for clause in re.split(r"\s+(?=SET |REMOVE )", expression):
            verb, _, targets = clause.partition(" ")
            for target in targets.split(","):
                if verb == "SET" and (found := re.fullmatch(r"\s*(#\w+) = (:\w+)\s*", target)):
                    changed[self.name(found[1])] = self.value(found[2])
                elif verb == "REMOVE" and (found := re.fullmatch(r"\s*(#\w+)\s*", target)):
                    changed.pop(self.name(found[1]), None)
                else:
                    raise NotImplementedError(f"the update {clause!r}")
        return changed

    def key_range(self, expression: str) -> tuple[list[str], str, str, str]:
        """Parse a key condition: the names of the keys, the hash key, the first and the last range key."""
        form = r"(#\w+) = (:\w+)(?: AND (#\w+) BETWEEN (:\w+) AND (:\w+))?"
        if not (found := re.fullmatch(form, expression)):
            raise NotImplementedError(f"the key condition {expression!r}")
        names, values = found.group(1, 3), found.group(2, 4, 5)
        texts = [self.value(value)["S"] for value in values if value]
        hash_key, first, last = texts if found[3] else (*texts, "", "\U0010ffff")
        return [self.name(name) for name in names if name], hash_key, first, last

    def _term(self, term: str, item: Item) -> bool:
        if found := re.fullmatch(r"(attribute_exists|attribute_not_exists)\((#\w+)\)", term):
            return (self.name(found[2]) in item) == (found[1] == "attribute_exists")
        if not (found := re.fullmatch(r"(#\w+) (=|<) (:\w+)", term)):
            raise NotImplementedError(f"the condition {term!r}")
        ((tag, right),) = self.value(found[3]).items()
        ((stored, left),) = item.get(self.name(found[1]), {"": None}).items()
        if tag not in ("S", "N", "B"):
            raise NotImplementedError(f"a condition on a {tag}")
        if tag != stored:
            return False
        left, right = (Decimal(left), Decimal(right)) if tag == "N" else (left, right)
        return bool(left == right if found[2] == "=" else left < right)


def item_size(item: Item) -> int:
    """Return the size of an item in bytes, approximately as DynamoDB counts it."""
    return sum(len(name.encode()) + _size(value) for name, value in item.items())


def _size(attribute: dict[str, Any]) -> int:
    return sum(_content_size(value) for value in attribute.values())


def _content_size(value: Any) -> int:
    if isinstance(value, dict):
        return 3 + sum(1 + len(name.encode()) + _size(inner) for name, inner in value.items())
    if isinstance(value, list):
        # A list of attributes, or a set of texts, numbers or bytes.
        return 3 + sum(1 + (_size(inner) if isinstance(inner, dict) else len(inner)) for inner in value)
    return len(value.encode() if isinstance(value, str) else value) if isinstance(value, (str, bytes)) else 1
