"""The requests of the Job Runs API: members, types and limits, by Glue's service model and its Job Runs page. Pure.

They are written down here, as the model of an older botocore lacks what is newer: with boto3 1.26 no run could wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.helpers.glue_api.errors import InvalidInputException
from scripts.helpers.job_runs.states import WATCHED

MAX_STOPPED, MAX_PAGE, MAX_INTEGER = 25, 200, 2**31 - 1
"""Runs that are stopped by one call, results of one page, and the largest whole number, as in Glue."""
MAX_NUMBER = 1e15
"""Glue names no limit of a fraction; neither infinity nor 1e400 can be stored."""
WORKER_TYPES = (
    "Standard", "G.025X", "G.1X", "G.2X", "G.4X", "G.8X", "G.12X", "G.16X", "R.1X", "R.2X", "R.4X", "R.8X", "Z.2X",
)  # fmt: skip
MOST_WORKERS = {"G.1X": 299, "G.2X": 149}
LEAST_DPUS, MOST_DPUS = 2, 100
SHELL_DPUS = (0.0625, 1)
"""Machines that Glue gives a job: workers by their type, DPUs of a Spark job, and those of a Python shell job."""
_BROKEN = re.compile("[\0\ud800-\udfff]")
_LINE = re.compile("[\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff\t]*")


@dataclass(frozen=True)
class Shape:
    """What a value may be.

    Attributes
    ----------
    kind
        The type, by the name that Glue's service model has for it. A map is one of texts by name.
    least, most
        Limits of a whole number, of a text's bytes in UTF-8, or of how many members a list or a map has.
    choices
        A text is one of these, if there are any.
    lines
        A text may have more than one line.
    member
        What each member of a list or a map is.
    name
        What the name of each member of a map is.
    members, required
        What a structure may have, and what it must have.
    """

    kind: str
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    lines: bool = False
    member: Shape | None = None
    name: Shape | None = None
    members: Mapping[str, Shape] = field(default_factory=dict)
    required: frozenset[str] = frozenset()


def _text(least: int | None = None, most: int | None = None, lines: bool = False) -> Shape:
    return Shape("string", least, most, lines=lines)


def _choice(*choices: str) -> Shape:
    return Shape("string", choices=choices)


def _whole(least: int | None = None, most: int = MAX_INTEGER) -> Shape:
    return Shape("integer", least, most)


def _list(member: Shape, least: int, most: int | None = None) -> Shape:
    return Shape("list", least, most, member=member)


def _map(name: Shape, member: Shape, most: int | None = None) -> Shape:
    return Shape("map", most=most, member=member, name=name)


def _structure(members: Mapping[str, Shape], *required: str) -> Shape:
    return Shape("structure", members=members, required=frozenset(required))


_NAME = _text(1, 255)
_FLAG = Shape("boolean")
_FREE = _text(lines=True)
_MAP = _map(_text(1, lines=True), _FREE)
_TAGS = _map(_text(1, 128, lines=True), _text(most=256, lines=True), most=50)
_DESCRIPTION = _text(most=2048, lines=True)
_AT_LEAST_1 = _whole(1)
_NOTIFICATION = _structure({"NotifyDelayAfter": _AT_LEAST_1})

CAPACITY = {
    "AllocatedCapacity": _whole(),
    "MaxCapacity": Shape("double"),
    "SecurityConfiguration": _NAME,
    "NotificationProperty": _NOTIFICATION,
    "WorkerType": _choice(*WORKER_TYPES),
    "NumberOfWorkers": _whole(),
    "ExecutionClass": _choice("FLEX", "STANDARD"),
}
"""What a job asks for by default, and each of its runs may ask for otherwise."""
WITHOUT_EFFECT = frozenset({
    *CAPACITY, "Connections", "ExecutionRoleSessionPolicy", "GlueVersion", "JobMode", "LogUri", "MaintenanceWindow",
    "Role", "Tags",
})  # fmt: skip
"""Members of requests that only Glue's own machines know."""
_COMMAND = _structure(
    {
        "Name": _choice("glueetl", "gluestreaming", "pythonshell"),
        "ScriptLocation": _text(1, 400_000),
        "PythonVersion": _choice("3", "3.9"),
        "Runtime": _text(most=64),
    },
    "ScriptLocation",
)
_UPDATE = CAPACITY | {
    "Timeout": _AT_LEAST_1,
    "JobMode": _choice("SCRIPT", "VISUAL", "NOTEBOOK"),
    "JobRunQueuingEnabled": _FLAG,
    "Description": _DESCRIPTION,
    "LogUri": _FREE,
    "Role": _text(),
    "ExecutionProperty": _structure({"MaxConcurrentRuns": _AT_LEAST_1}),
    "Command": _COMMAND,
    "DefaultArguments": _MAP,
    "NonOverridableArguments": _MAP,
    "Connections": _structure({"Connections": _list(_NAME, 0, 1_000)}),
    "MaxRetries": _whole(0, 10),
    "GlueVersion": _NAME,
    "MaintenanceWindow": _text(),
}
_START = CAPACITY | {
    "JobName": _NAME,
    "Timeout": _AT_LEAST_1,
    "JobRunQueuingEnabled": _FLAG,
    "JobRunId": _NAME,
    "Arguments": _MAP,
    "ExecutionRoleSessionPolicy": _text(2, 2048, lines=True),
}
_CONDITION = _structure(
    {"LogicalOperator": _choice("EQUALS"), "JobName": _NAME, "State": _choice(*sorted(WATCHED))}, "JobName", "State"
)
_ACTION = _structure(
    {
        "JobName": _NAME,
        "Arguments": _MAP,
        "Timeout": _AT_LEAST_1,
        "SecurityConfiguration": _NAME,
        "NotificationProperty": _NOTIFICATION,
    },
    "JobName",
)
_TRIGGER = {
    "Name": _NAME,
    "Type": _choice("CONDITIONAL"),
    "Predicate": _structure({"Logical": _choice("AND", "ANY"), "Conditions": _list(_CONDITION, 1, 500)}, "Conditions"),
    "Actions": _list(_ACTION, 1),
    "Description": _DESCRIPTION,
    "StartOnCreation": _FLAG,
    "Tags": _TAGS,
}
_OF_A_JOB = _structure({"JobName": _NAME}, "JobName")
_OF_A_TRIGGER = _structure({"Name": _NAME}, "Name")

OPERATIONS = {
    "CreateJob": _structure(_UPDATE | {"Name": _NAME, "Tags": _TAGS}, "Name", "Command"),
    "GetJob": _OF_A_JOB,
    "UpdateJob": _structure({"JobName": _NAME, "JobUpdate": _structure(_UPDATE, "Command")}, "JobName", "JobUpdate"),
    "DeleteJob": _OF_A_JOB,
    "StartJobRun": _structure(_START, "JobName"),
    "GetJobRun": _structure({"JobName": _NAME, "RunId": _NAME, "PredecessorsIncluded": _FLAG}, "JobName", "RunId"),
    "GetJobRuns": _structure({"JobName": _NAME, "NextToken": _FREE, "MaxResults": _whole(1, MAX_PAGE)}, "JobName"),
    "BatchStopJobRun": _structure(
        {"JobName": _NAME, "JobRunIds": _list(_NAME, 1, MAX_STOPPED)}, "JobName", "JobRunIds"
    ),
    "CreateTrigger": _structure(_TRIGGER, "Name", "Type", "Predicate", "Actions"),
    "GetTrigger": _OF_A_TRIGGER,
    "StartTrigger": _OF_A_TRIGGER,
    "StopTrigger": _OF_A_TRIGGER,
    "DeleteTrigger": _OF_A_TRIGGER,
}
"""What each operation takes. `Role` means nothing off Glue, so it may be left out."""


# --- checks ----------------------------------------------------------------------------------


def check(operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request that keeps the rules of its operation.

    Raises
    ------
    InvalidInputException
        Names the member and its rule. No text is shown: arguments can hold secrets.
    """
    wrong = _problems(OPERATIONS[operation], dict(request), "")
    if wrong:
        count = f"{len(wrong)} validation error{'s' if len(wrong) > 1 else ''} detected"
        raise InvalidInputException(f"{count}: {'; '.join(wrong)}.", operation)
    return dict(request)


_TYPES: dict[str, Any] = {
    "string": (str,), "integer": (int,), "double": (int, float), "boolean": (bool,), "map": (dict,),
    "list": (list, tuple), "structure": (dict,),
}  # fmt: skip


def _problems(shape: Shape, value: Any, path: str) -> list[str]:
    """Say what is wrong with the value at a path."""
    # To Python True is a whole number as well; to Glue it is none.
    if not isinstance(value, _TYPES[shape.kind]) or (isinstance(value, bool) and shape.kind != "boolean"):
        return [f"'{path}' must be of type {shape.kind}, not {type(value).__name__}"]
    if shape.kind == "structure":
        return _problems_of_structure(shape, value, path)
    if shape.kind == "map":
        return _problems_of_map(shape, value, path)
    if rule := _broken_rule(shape, value):
        shown = f" {value}" if shape.kind == "integer" else ""  # Whole numbers are no secrets.
        return [f"Value{shown} at '{path}' failed to satisfy constraint: {rule}"]
    found: list[str] = []
    if shape.member is not None:
        for index, member in enumerate(value):
            found += _problems(shape.member, member, f"{path}[{index}]")
    return found


def _problems_of_structure(shape: Shape, value: dict[str, Any], path: str) -> list[str]:
    start = f"{path}." if path else ""
    found = [f"'{start}{name}' is missing" for name in sorted(shape.required - value.keys())]
    for name in value:
        if name not in shape.members:
            found.append(f"'{start}{name}' is not known; known are {', '.join(sorted(shape.members))}")
    for name, member in value.items():
        if name in shape.members:
            found += _problems(shape.members[name], member, start + name)
    return found


def _problems_of_map(shape: Shape, value: dict[Any, Any], path: str) -> list[str]:
    assert shape.name is not None
    assert shape.member is not None
    found = []
    if rule := _out_of_bounds(shape, len(value), "length", f" (it has {len(value)} members)"):
        found.append(f"Value at '{path}' failed to satisfy constraint: {rule}")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            found.append(f"'{path}' must be a map of strings, and its member {name!r} is not")
        elif rule := _broken_rule(shape.name, name) or _broken_rule(shape.member, text):
            found.append(f"Member {name!r} of '{path}' failed to satisfy constraint: {rule}")
    return found


def _broken_rule(shape: Shape, value: Any) -> str | None:
    """Return the rule that a value of the right type breaks."""
    if shape.kind == "integer":
        return _out_of_bounds(shape, value, "value", "")
    if shape.kind == "list":
        return _out_of_bounds(shape, len(value), "length", f" (it has {len(value)} members)")
    # Asked this way round, as NaN is neither above nor below anything.
    if shape.kind == "double" and not abs(value) <= MAX_NUMBER:
        return f"Member must be a number of at most {MAX_NUMBER:g}"
    return _broken_rule_of_text(shape, value) if shape.kind == "string" else None


def _out_of_bounds(shape: Shape, measured: int, what: str, too_much: str) -> str | None:
    if shape.least is not None and measured < shape.least:
        return f"Member must have {what} greater than or equal to {shape.least}"
    if shape.most is not None and measured > shape.most:
        return f"Member must have {what} less than or equal to {shape.most}{too_much}"
    return None


def _broken_rule_of_text(shape: Shape, value: str) -> str | None:
    # First, as halves of surrogate pairs have no bytes in UTF-8.
    if _BROKEN.search(value):
        return "Member must be text without NUL characters and halves of surrogate pairs"
    size = len(value.encode())
    if rule := _out_of_bounds(shape, size, "length", f" (it has {size} bytes)"):
        return rule
    if shape.choices and value not in shape.choices:
        return f"Member must satisfy enum value set: [{', '.join(shape.choices)}]"
    if not shape.lines and not _LINE.fullmatch(value):
        return "Member must be a single line without control characters"
    return None


# --- machines --------------------------------------------------------------------------------


def capacity_problems(wanted: Mapping[str, Any], is_shell: bool) -> list[str]:
    """Say what is wrong with the machines that a job or a run asks for; numbers are shown, as they are no secrets.

    >>> capacity_problems({"WorkerType": "G.2X", "NumberOfWorkers": 150}, is_shell=False)
    ['NumberOfWorkers is 150, and G.2X has 149 at most']
    """
    found = []
    workers = [name for name in ("WorkerType", "NumberOfWorkers") if name in wanted]
    if "MaxCapacity" in wanted and workers:
        found.append(f"MaxCapacity may not stand beside {' and '.join(workers)}: leave out the one or the other")
    for name in ("MaxCapacity", "AllocatedCapacity"):
        if name not in wanted:
            continue
        dpus = wanted[name]
        # Glue gives a Python shell job a sixteenth of a machine, or one; a Spark job whole machines.
        if is_shell and name == "MaxCapacity" and dpus not in SHELL_DPUS:
            found.append(f"MaxCapacity is {dpus:g}, and a Python shell job takes 0.0625 or 1")
        elif not is_shell and (not LEAST_DPUS <= dpus <= MOST_DPUS or dpus != int(dpus)):
            found.append(f"{name} is {dpus:g}, and a Spark job takes whole DPUs from {LEAST_DPUS} to {MOST_DPUS}")
    most = MOST_WORKERS.get(wanted.get("WorkerType", ""))
    number = wanted.get("NumberOfWorkers", 0)
    if most is not None and number > most:
        found.append(f"NumberOfWorkers is {number}, and {wanted['WorkerType']} has {most} at most")
    return found
