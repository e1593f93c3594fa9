"""Checks requests and stored records of the Job Runs API by Glue's service model in botocore.

Botocore's own validation checks types and required members, but no upper limits and no patterns. Its errors also show
values, and arguments can hold secrets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import botocore
from botocore.loaders import create_loader
from botocore.model import ServiceModel

from scripts.helpers.errors import DAMAGE
from scripts.helpers.glue_api.errors import InvalidInputException
from scripts.helpers.protocol import values
from scripts.helpers.protocol.items import LONGEST_LEASE, Item
from scripts.helpers.protocol.values import ImplausibleError

MAX_PAGE, MAX_INTEGER = 200, 2**31 - 1
"""The most results of one page, used if a request names no number, and the largest whole number, as in Glue."""
MAX_NUMBER = 1e15
"""Limit for fractions. Glue documents none, but the table cannot store infinity or 1e400."""
MOST_WORKERS = {"G.1X": 299, "G.2X": 149}
LEAST_DPUS, MOST_DPUS = 2, 100
SHELL_DPUS = (0.0625, 1)
"""Glue's limits: most workers by type, fewest and most DPUs of a Spark job, and the DPUs of a Python shell job."""
CAPACITY = (
    "AllocatedCapacity", "ExecutionClass", "MaxCapacity", "NotificationProperty", "NumberOfWorkers",
    "SecurityConfiguration", "WorkerType",
)  # fmt: skip
"""Members that a job sets as defaults and that each of its runs may override."""
WITHOUT_EFFECT = frozenset({
    *CAPACITY, "Connections", "ExecutionRoleSessionPolicy", "GlueVersion", "JobMode", "LogUri", "MaintenanceWindow",
    "Role", "Tags",
})  # fmt: skip
"""Members of requests that have an effect only on Glue's own machines."""
NOT_TAKEN = frozenset({"CodeGenConfigurationNodes", "SourceControlDetails"})
"""Members that are refused, because visual jobs are not supported."""
_RETRIES = {"min": 0, "max": 10}
_QUEUING = "JobRunQueuingEnabled"
_PACKAGE_RULES: dict[str, dict[str, Any]] = {
    "CreateJobRequest": {"required": ["Name", "Command"]},  # `Role` is optional, as it has no effect off Glue.
    "JobUpdate": {"required": ["Command"]},
    "JobCommand": {"required": ["ScriptLocation"], "members": {"Name": {"shape": "CommandName"}}},
    "CommandName": {"type": "string", "enum": ["glueetl", "gluestreaming", "pythonshell"]},
    "PythonVersionString": {"enum": ["3", "3.9"]},
    "ScriptLocationString": {"min": 1},
    "MaxRetries": _RETRIES,
    "AttemptCount": _RETRIES,
    "MaxConcurrentRuns": {"min": 1},
    "GenericMap": {"key": {"shape": "NameOfArgument"}},
    "NameOfArgument": {"type": "string", "min": 1},
}
"""Changes to the model's shapes: rules that only Glue's documentation has, and rules of this package."""
MAX_ITEM_BYTES = 390_000
"""Most bytes of a record: DynamoDB's limit is 400 KB, and one more run must still fit into a job's item."""


def _structure(needed: str, **members: str) -> dict[str, Any]:
    shown = {name: {"shape": kind} for name, kind in members.items()}
    return {"type": "structure", "required": needed.split(), "members": shown}


_RECORDS: dict[str, dict[str, Any]] = {
    "RunRecord": _structure(
        "tok state maxRetries startedOn modifiedOn run",
        tok="RecordName", state="RecordName", maxRetries="MaxRetries", run="RunMap",
        startedOn="RecordName", modifiedOn="RecordName", runningSince="RecordName", completedOn="RecordName",
        leaseSeconds="RecordLease", error="RecordText", detail="RecordText", launcher="RecordText",
    ),
    "RunMap": _structure("told command", told="JobRun", command="GenericMap"),
    "JobRecord": _structure(
        "tok active waiting", tok="RecordName", active="RecordPairs", waiting="RecordPairs", job="JobMap",
    ),
    "JobMap": _structure("definition", definition="Job"),
    # Names are shown, logged and used as keys, so control characters are refused. A job's lists of runs (RecordPairs)
    # never have 2,000 (see `job_record.MAX_SLOTS`). Texts have up to `run_record.MAX_ERROR` characters of 1 to 4 bytes.
    "RecordName": {"type": "string", "min": 1, "max": 255, "pattern": r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*"},
    "RecordPair": {"type": "list", "min": 2, "max": 2, "member": {"shape": "RecordName"}},
    "RecordPairs": {"type": "list", "max": 2_000, "member": {"shape": "RecordPair"}},
    "RecordLease": {"type": "double", "min": 1e-6, "max": int(LONGEST_LEASE.total_seconds())},
    "RecordText": {"type": "string", "max": 8_000},
}  # fmt: skip
"""Shapes of stored records. Members that have a shape of Glue's are checked only for types and numbers: the request may
have been checked by another botocore version, with other members, worker types and patterns."""
_FULLY_CHECKED = {*_RECORDS, "NameString"}
_FLOAT = {"M": {"leaseSeconds": {"S": "float"}}}
_BROKEN = re.compile("[\0\ud800-\udfff]")
_PAIRS = r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF"
"""How the model's patterns write characters beyond 16 bits, and how Python writes them."""
_TYPES: dict[str, Any] = {
    "string": (str,), "integer": (int,), "double": (int, float), "boolean": (bool,), "map": (dict,),
    "list": (list, tuple), "structure": (dict,), "timestamp": (datetime,),
}  # fmt: skip


@functools.cache
def model() -> ServiceModel:
    """Return Glue's service model with this package's rules added."""
    return with_ours(create_loader().load_service_model("glue", "service-2"))


def with_ours(theirs: Mapping[str, Any]) -> ServiceModel:
    """Return a service model with this package's rules added."""
    shapes = {**theirs["shapes"], **_RECORDS}
    for name, ours in _PACKAGE_RULES.items():
        found = shapes.get(name, {})
        shapes[name] = {**found, **ours, "members": {**found.get("members", {}), **ours.get("members", {})}}
    return ServiceModel({**theirs, "shapes": shapes}, "glue")


def check(operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request if it follows the rules of its operation.

    Raises
    ------
    InvalidInputException
        The request breaks a rule. The error names the member and the rule, but shows no texts, which may be secret.
    """
    wrong = _problems(model().operation_model(operation).input_shape, dict(request), "")
    if wrong:
        count = f"{len(wrong)} validation error{'s' if len(wrong) > 1 else ''} detected"
        # Name the version, because an older boto3 lacks newer members and worker types.
        by = f"Checked by Glue's model in botocore {botocore.__version__}."
        raise InvalidInputException(f"{count}: {'; '.join(wrong)}. {by}", operation)
    return dict(request)


def read(item: Item, record: str, longest: int) -> dict[str, Any]:
    """Return the attributes that a record of the kind `record` has in an item, as plain values.

    Parameters
    ----------
    longest
        The most bytes that the record's map, ``run`` or ``job``, may have.

    Raises
    ------
    ImplausibleError
        An attribute was altered. The error names the attribute and its rule, but shows no text values.
    """
    if values.size_of({"M": item}) > MAX_ITEM_BYTES:
        raise ImplausibleError(f"it is larger than {MAX_ITEM_BYTES:,} bytes")
    shape = _shape(model(), record)
    found: dict[str, Any] = {}
    for name in sorted(shape.members.keys() & item.keys()):
        try:
            if shape.members[name].type_name == "structure":
                found[name] = values.decode(item[name], item["types"])
                values.encode(found[name], limit=longest)  # Raise if the map is too large to be written again.
            else:
                found |= values.decode({"M": {name: item[name]}}, _FLOAT)
        except DAMAGE as error:
            what = f"what can be stored in {longest:,} bytes, with the types of its values"
            raise ImplausibleError(f"{name!r} must be {what}") from error
    if wrong := _problems(shape, found, "", stored=True):
        raise ImplausibleError("; ".join(wrong[:3])[:1_000])  # Limit the text: arguments may have long names.
    return found


@functools.cache
def _shape(service: ServiceModel, name: str) -> Any:
    """Return a shape with its members from a cache, because making them takes longer than checking a record."""
    return service.shape_for(name)


def _problems(shape: Any, value: Any, path: str, stored: bool = False) -> list[str]:
    """Return what is wrong with the value at a path of a request or, if `stored`, of a record."""
    kind, found = shape.type_name, list[str]()
    # In Python True is also a whole number; in Glue it is not.
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"'{path}' must be of type {kind}, not {type(value).__name__}"]
    if kind == "structure":
        start, known = f"{path}." if path else "", shape.members.keys() - NOT_TAKEN
        found += [f"'{start}{name}' is missing" for name in shape.required_members if name not in value]
        for name, member in value.items():
            if name == _QUEUING and member is True and not stored:
                found.append(f"'{start}{name}' may not be True: no run waits here. Start it again when a slot is free")
            elif name in known:
                found += _problems(shape.members[name], member, start + name, stored)
            elif not stored:
                found.append(f"'{start}{name}' is not known; known are {', '.join(sorted(known))}")
    elif (not stored or kind in ("integer", "double") or shape.name in _FULLY_CHECKED) and (
        rule := _broken_rule(shape, value)
    ):
        shown = f" {value}" if kind == "integer" else ""  # Show whole numbers: they are not secret.
        found.append(f"Value{shown} at '{path}' failed to satisfy constraint: {rule}")
    elif kind == "list":
        for index, member in enumerate(value):
            found += _problems(shape.member, member, f"{path}[{index}]", stored)
    elif kind == "map":
        for name, member in value.items():
            for inner, one in ((shape.key, name), (shape.value, member)):
                found += _problems(inner, one, f"{path}[{name!r}]", stored)
    return found


def _broken_rule(shape: Any, value: Any) -> str | None:
    """Return the rule that a value of the right type breaks, or None."""
    kind, rules = shape.type_name, shape.metadata
    # Written as `not <=`, because comparisons with NaN are always false.
    if kind == "double" and not abs(value) <= MAX_NUMBER:
        return f"Member must be a number of at most {MAX_NUMBER:g}"
    # Check this before the length, because halves of surrogate pairs cannot be encoded in UTF-8.
    if kind == "string" and shape.name != "RecordText" and _BROKEN.search(value):
        return "Member must be text without NUL characters and halves of surrogate pairs"
    measured, what, count = value, "value", ""
    if kind in ("string", "list", "map"):
        measured, of = (len(value.encode()), "bytes") if kind == "string" else (len(value), "members")
        what, count = "length", f" (it has {measured} {of})"
    if measured < rules.get("min", measured):
        return f"Member must have {what} greater than or equal to {rules['min']}"
    most = rules.get("max", MAX_INTEGER if kind == "integer" else measured)
    if measured > most:
        return f"Member must have {what} less than or equal to {most}{count}"
    if value not in rules.get("enum", [value]):
        return f"Member must satisfy enum value set: [{', '.join(rules['enum'])}]"
    if "pattern" in rules and not re.fullmatch(rules["pattern"].replace(*_PAIRS), value):
        return f"Member must satisfy regular expression pattern: {rules['pattern']}"
    return None


def check_capacity(wanted: Mapping[str, Any], is_shell: bool) -> None:
    """Raise InvalidInputException for machines that Glue does not offer; the error shows numbers, never secrets."""
    found = []
    workers = [name for name in ("WorkerType", "NumberOfWorkers") if name in wanted]
    if "MaxCapacity" in wanted and workers:
        found.append(f"MaxCapacity may not stand beside {' and '.join(workers)}: leave out the one or the other")
    for name in ("MaxCapacity", "AllocatedCapacity"):
        if name not in wanted:
            continue
        dpus = wanted[name]
        # In Glue, a Python shell job has 1/16 DPU or 1 DPU, and a Spark job has whole DPUs.
        if is_shell and name == "MaxCapacity" and dpus not in SHELL_DPUS:
            found.append(f"MaxCapacity is {dpus:g}, and a Python shell job takes 0.0625 or 1")
        elif not is_shell and (not LEAST_DPUS <= dpus <= MOST_DPUS or dpus != int(dpus)):
            found.append(f"{name} is {dpus:g}, and a Spark job takes whole DPUs from {LEAST_DPUS} to {MOST_DPUS}")
    number, most = wanted.get("NumberOfWorkers", 1), MOST_WORKERS.get(wanted.get("WorkerType", ""), MAX_INTEGER)
    if not 1 <= number <= most:
        found.append(f"NumberOfWorkers is {number}, and {wanted.get('WorkerType', 'a job')} has 1 to {most:,}")
    if found:
        raise InvalidInputException(f"{'; '.join(found)}.")
