"""The requests of the Job Runs API: their members, types and limits, as in Glue's service model. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.helpers.glue_api.errors import InvalidInputException
from scripts.helpers.job_runs.capacity import WORKER_TYPES
from scripts.helpers.job_runs.states import WATCHED

MAX_STOPPED = 25
MAX_PAGE = 200
MAX_INTEGER, MAX_NUMBER = 2**31 - 1, 1e15
_BROKEN = re.compile("[\0\ud800-\udfff]")
_LINE = re.compile("[\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff\t]*")


@dataclass(frozen=True)
class Text:
    """A text of so many bytes in UTF-8, on one line unless `lines`, and one of `choices` if there are any."""

    least: int = 0
    most: int | None = None
    choices: tuple[str, ...] = ()
    lines: bool = False

    kind = "string"
    types = (str,)

    def broken_rule(self, value: str) -> str | None:
        """Return the rule that a value breaks."""
        if _BROKEN.search(value):
            return "Member must be text without NUL characters and halves of surrogate pairs"
        size = len(value.encode())
        if size < self.least:
            return f"Member must have length greater than or equal to {self.least}"
        if self.most is not None and size > self.most:
            return f"Member must have length less than or equal to {self.most} (it has {size} bytes)"
        if self.choices and value not in self.choices:
            return f"Member must satisfy enum value set: [{', '.join(self.choices)}]"
        if not self.lines and not _LINE.fullmatch(value):
            return "Member must be a single line without control characters"
        return None

    def problems(self, value: str, path: str) -> list[str]:
        """Say what is wrong with the value at a path."""
        return _broken(self.broken_rule(value), f"Value at '{path}'")


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    least: int | None = None
    most: int | None = MAX_INTEGER

    kind = "integer"
    types = (int,)

    def problems(self, value: int, path: str) -> list[str]:
        """Say what is wrong with the value at a path. It is shown: numbers are no secrets."""
        rule = None
        if self.least is not None and value < self.least:
            rule = f"Member must have value greater than or equal to {self.least}"
        elif self.most is not None and value > self.most:
            rule = f"Member must have value less than or equal to {self.most}"
        return _broken(rule, f"Value {value} at '{path}'")


@dataclass(frozen=True)
class Number:
    """A number that is one: neither NaN nor without end."""

    kind = "double"
    types = (int, float)

    def problems(self, value: float, path: str) -> list[str]:
        """Say what is wrong with the value at a path."""
        # Asked this way round, as NaN is neither above nor below anything.
        if abs(value) <= MAX_NUMBER:
            return []
        return _broken(f"Member must be a number of at most {MAX_NUMBER:g}", f"Value at '{path}'")


@dataclass(frozen=True)
class Flag:
    """True or False."""

    kind = "boolean"
    types = (bool,)

    def problems(self, _value: bool, _path: str) -> list[str]:
        """Say what is wrong with the value at a path: nothing."""
        return []


@dataclass(frozen=True)
class TextMap:
    """Texts by name, such as the arguments of a job."""

    kind = "map"
    types = (dict,)

    def problems(self, value: dict[Any, Any], path: str) -> list[str]:
        """Say what is wrong with the value at a path; with types first, as others need texts."""
        found = []
        for name, text in value.items():
            if not isinstance(name, str) or not isinstance(text, str):
                found.append(f"'{path}' must be a map of strings, and its member {name!r} is not")
        if found:
            return found
        for name, text in value.items():
            rule = _ENTRY_NAME.broken_rule(name) or FREE.broken_rule(text)
            found += _broken(rule, f"Member {name!r} of '{path}'")
        return found


@dataclass(frozen=True)
class Items:
    """A list of so many members."""

    member: Shape
    least: int = 0
    most: int | None = None

    kind = "list"
    types = (list, tuple)

    def problems(self, value: Sequence[Any], path: str) -> list[str]:
        """Say what is wrong with the value at a path: its length, or else its members."""
        rule = None
        if len(value) < self.least:
            rule = f"Member must have length greater than or equal to {self.least}"
        elif self.most is not None and len(value) > self.most:
            rule = f"Member must have length less than or equal to {self.most} (it has {len(value)} members)"
        found = _broken(rule, f"Value at '{path}'")
        if not found:
            for index, member in enumerate(value):
                found += _problems(self.member, member, f"{path}[{index}]")
        return found


@dataclass(frozen=True)
class Structure:
    """Members by name."""

    members: Mapping[str, Shape]
    required: frozenset[str] = field(default_factory=frozenset)

    kind = "structure"
    types = (dict,)

    def problems(self, value: dict[str, Any], path: str) -> list[str]:
        """Say what is wrong with the value at a path: members that are missing, unknown, or wrong themselves."""
        start = f"{path}." if path else ""
        found = [f"'{start}{name}' is missing" for name in sorted(self.required - value.keys())]
        for name in value:
            if name not in self.members:
                found.append(f"'{start}{name}' is not known; known are {', '.join(sorted(self.members))}")
        for name, member in value.items():
            if name in self.members:
                found += _problems(self.members[name], member, start + name)
        return found


Shape = Text | Whole | Number | Flag | TextMap | Items | Structure


def _problems(shape: Any, value: Any, path: str) -> list[str]:
    # To Python True is a whole number as well; to Glue it is none.
    if not isinstance(value, shape.types) or (isinstance(value, bool) and bool not in shape.types):
        return [f"'{path}' must be of type {shape.kind}, not {type(value).__name__}"]
    found: list[str] = shape.problems(value, path)
    return found


def _broken(rule: str | None, what: str) -> list[str]:
    return [] if rule is None else [f"{what} failed to satisfy constraint: {rule}"]


NAME = Text(1, 255)
FLAG = Flag()
NUMBER = Number()
MAP = TextMap()
FREE = Text(lines=True)
_ENTRY_NAME = Text(1, lines=True)
AT_LEAST_1 = Whole(1)

_CAPACITY: dict[str, Shape] = {
    "AllocatedCapacity": Whole(),
    "Timeout": AT_LEAST_1,
    "MaxCapacity": NUMBER,
    "SecurityConfiguration": NAME,
    "NotificationProperty": Structure({"NotifyDelayAfter": AT_LEAST_1}),
    "WorkerType": Text(choices=WORKER_TYPES),
    "NumberOfWorkers": Whole(),
    "ExecutionClass": Text(most=16, choices=("FLEX", "STANDARD")),
}
_UPDATE: dict[str, Shape] = _CAPACITY | {
    "JobMode": Text(choices=("SCRIPT", "VISUAL", "NOTEBOOK")),
    "JobRunQueuingEnabled": FLAG,
    "Description": Text(most=2048, lines=True),
    "LogUri": FREE,
    "Role": Text(),
    "ExecutionProperty": Structure({"MaxConcurrentRuns": AT_LEAST_1}),
    "Command": Structure(
        {
            "Name": Text(choices=("glueetl", "gluestreaming", "pythonshell")),
            "ScriptLocation": Text(1, 400_000),
            "PythonVersion": Text(choices=("3", "3.9")),
            "Runtime": Text(most=64),
        },
        frozenset({"ScriptLocation"}),
    ),
    "DefaultArguments": MAP,
    "NonOverridableArguments": MAP,
    "Connections": Structure({"Connections": Items(NAME, 0, 1_000)}),
    "MaxRetries": Whole(0, 10),
    "GlueVersion": NAME,
    "MaintenanceWindow": Text(),
}
_TRIGGER: dict[str, Shape] = {
    "Name": NAME,
    "Type": Text(choices=("CONDITIONAL",)),
    "Predicate": Structure(
        {
            "Logical": Text(choices=("AND", "ANY")),
            "Conditions": Items(
                Structure(
                    {
                        "LogicalOperator": Text(choices=("EQUALS",)),
                        "JobName": NAME,
                        "State": Text(choices=tuple(sorted(WATCHED))),
                    },
                    frozenset({"JobName", "State"}),
                ),
                1,
                500,
            ),
        },
        frozenset({"Conditions"}),
    ),
    "Actions": Items(
        Structure(
            {
                "JobName": NAME,
                "Arguments": MAP,
                "Timeout": AT_LEAST_1,
                "SecurityConfiguration": NAME,
                "NotificationProperty": Structure({"NotifyDelayAfter": AT_LEAST_1}),
            },
            frozenset({"JobName"}),
        ),
        1,
    ),
    "Description": Text(most=2048, lines=True),
    "StartOnCreation": FLAG,
    "Tags": MAP,
}
_NAMED = Structure({"Name": NAME}, frozenset({"Name"}))
_JOB = Structure({"JobName": NAME}, frozenset({"JobName"}))

OPERATIONS: dict[str, Structure] = {
    "CreateJob": Structure(_UPDATE | {"Name": NAME, "Tags": MAP}, frozenset({"Name", "Command"})),
    "GetJob": _JOB,
    "UpdateJob": Structure(
        {"JobName": NAME, "JobUpdate": Structure(_UPDATE, frozenset({"Command"}))}, frozenset({"JobName", "JobUpdate"})
    ),
    "DeleteJob": _JOB,
    "StartJobRun": Structure(
        _CAPACITY
        | {
            "JobName": NAME,
            "JobRunQueuingEnabled": FLAG,
            "JobRunId": NAME,
            "Arguments": MAP,
            "ExecutionRoleSessionPolicy": Text(2, 2048, lines=True),
        },
        frozenset({"JobName"}),
    ),
    "GetJobRun": Structure(
        {"JobName": NAME, "RunId": NAME, "PredecessorsIncluded": FLAG}, frozenset({"JobName", "RunId"})
    ),
    "GetJobRuns": Structure(
        {"JobName": NAME, "NextToken": FREE, "MaxResults": Whole(1, MAX_PAGE)}, frozenset({"JobName"})
    ),
    "BatchStopJobRun": Structure(
        {"JobName": NAME, "JobRunIds": Items(NAME, 1, MAX_STOPPED)}, frozenset({"JobName", "JobRunIds"})
    ),
    "CreateTrigger": Structure(_TRIGGER, frozenset({"Name", "Type", "Predicate", "Actions"})),
    "GetTrigger": _NAMED,
    "StartTrigger": _NAMED,
    "StopTrigger": _NAMED,
    "DeleteTrigger": _NAMED,
}
"""What each operation takes. `Role` means nothing off Glue, so it may be left out."""


def check(operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request that keeps the rules of its operation.

    Raises
    ------
    InvalidInputException
        Names the member and its rule. No value is shown: arguments can hold secrets.
    """
    wrong = _problems(OPERATIONS[operation], dict(request), "")
    if wrong:
        count = f"{len(wrong)} validation error{'s' if len(wrong) > 1 else ''} detected"
        raise InvalidInputException(f"{count}: {'; '.join(wrong)}.", operation)
    return dict(request)
