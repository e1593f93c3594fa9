"""Convert heads, log entries and runs to items of the table, and back. Pure.

The head must be the last item of its job, because the original class reads the last one. Range keys sort so:
``!`` (log, chunks) < run ids < ``~latest``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from scripts.helpers.errors import DAMAGE, CorruptItemError, InvalidValueError, NewerFormatError
from scripts.helpers.protocol import values
from scripts.helpers.protocol.fields import EARLIEST, LATEST, MAX_COUNT, Fields, attribute_of, clock_time, time_of
from scripts.helpers.protocol.head import Change, Claim, Head, LogEntry, Plan, Release
from scripts.helpers.protocol.outputs import EPOCH, MAX_EPOCH, MAX_OUTPUTS, Output, Retraction
from scripts.helpers.protocol.recent import kept_text
from scripts.helpers.protocol.values import Attribute, ImplausibleError, to_utc_string

Item = dict[str, Attribute]
T = TypeVar("T")

HASH_KEY, RANGE_KEY, WATERMARKS, TTL_ATTRIBUTE = "jobName", "runId", "watermarks", "expiresAt"
HEAD_KEY = "~latest"
LOG_PREFIX = "!c#"
RUN_RECORD_PREFIX, JOB_RECORD_KEY = "!r#", "!j"
"""Keys of the items that the Job Runs API keeps under a job's name; they are unrelated to watermarks."""
TOKEN = "tok"
"""Attribute with a new token at each write of an item of the Job Runs API."""
FORMAT = 1
"""Format of stored items. Items of a later format are refused, because this version does not know their rules."""
_WHOLE = re.compile(r"-?[0-9]{1,40}")
_ATTEMPT, _ATTEMPT_DIGITS = re.compile(r"_attempt_([0-9]+)$"), 2
"""With two digits, attempts sort in their order: a job has at most 10 retries."""
MAX_METRICS_BYTES = 8 * 1024
"""Encoded size of one commit's metrics. The head stores them beside its watermarks until the next commit."""
LONGEST_LEASE = timedelta(days=2 * 366)
"""Longest time from the begin of a run to the end of its lease, with renewals: the highest `max_lease` and a year.
A lease that ends later is treated as over."""
MAX_FAILURE_BYTES = 1_000
"""Size of the error text of a failed run. A longer text is cut when it is read, as it is only shown to operators."""


def log_key(version: int) -> str:
    """Return the range key of a version's log entry. The keys of a job's entries sort by version."""
    return f"{LOG_PREFIX}{version:019d}"


def chunk_key(chunks_id: str, index: int) -> str:
    """Return the range key of one chunk."""
    return f"!{chunks_id}#{index:05d}"


def run_record_key(run_id: str) -> str:
    """Return the range key of a run's record. Keys sort as run ids do, with attempt 10 of a run after its attempt 2.

    >>> run_record_key("jr_0_attempt_2")
    '!r#jr_0_attempt_02'
    """
    return RUN_RECORD_PREFIX + _ATTEMPT.sub(lambda found: f"_attempt_{int(found[1]):0{_ATTEMPT_DIGITS}}", run_id)


def run_of_record_key(range_key: str) -> str:
    """Return the run id that `run_record_key` made this range key from."""
    run_id = range_key.removeprefix(RUN_RECORD_PREFIX)
    return _ATTEMPT.sub(lambda found: f"_attempt_{int(found[1])}", run_id)


def is_job_runs_key(range_key: str) -> bool:
    """Return whether an item belongs to the Job Runs API, and so has no watermarks."""
    # "!t" is the key of a trigger, which an earlier version of this package stored.
    return range_key in (JOB_RECORD_KEY, "!t") or range_key.startswith(RUN_RECORD_PREFIX)


def is_ours(item: Item) -> bool:
    """Return whether this package wrote an item, and not the original class.

    The key of an item of the original class starts with neither ``!`` nor ``~``, and the item has no version.
    """
    return item[RANGE_KEY]["S"][0] in "!~" or "version" in item


def key(job_id: str, range_key: str) -> Item:
    """Return the primary key of an item, as the attributes of its hash key and its range key."""
    return {HASH_KEY: {"S": job_id}, RANGE_KEY: {"S": range_key}}


# --- records -> items ---------------------------------------------------------------------------


def head_to_item(head: Head) -> Item:
    """Return the item of a head; InvalidValueError, from `values.encode`, names a value that cannot be stored."""
    item = key(head.job_id, HEAD_KEY)
    item["watermarks"], item["types"] = values.encode(head.watermarks)
    item |= {"fmt": number(FORMAT)} | _written(HEAD, head)
    if head.claim:
        item |= _written(CLAIM, head.claim)
    if head.plan:
        item |= {"planId": {"S": head.plan.plan_id}, "plan": {"M": _plan_to_map(head.plan)}}
    # Store `logged`, the newest version known to have a log entry, only if it is the head's own version. If `logged` is
    # missing, as in heads of older versions of this package, the next begin looks for the log entry.
    if head.logged != head.version:
        item.pop("logged", None)
    return item


def log_to_item(entry: LogEntry) -> Item:
    """Return the immutable log item of one version."""
    item = key(entry.job_id, log_key(entry.version))
    item["watermarks"], item["types"] = values.encode(entry.watermarks)
    return item | {"fmt": number(FORMAT), "version": number(entry.version)} | _change_to_map(entry.change)


def run_to_item(entry: LogEntry) -> Item:
    """Return the item of a run, with its id as the range key. `get_watermark(job_id, run_id)` reads this item."""
    assert entry.change.run_id is not None
    item = key(entry.job_id, entry.change.run_id)
    item["watermarks"], item["types"] = values.encode(entry.watermarks)
    item["metrics"], item["metricTypes"] = encode_metrics(entry.change.metrics, {})
    item |= _written(CHANGE_COUNTS, entry.change)
    return item | {
        "version": number(entry.version),
        "status": {"S": "COMMITTED"},
        "committedAt": _moment(entry.change.at),
    }


def encode_metrics(metrics: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> tuple[Attribute, Attribute]:
    """Encode the counts of a run. InvalidValueError if a count has the name of one of the `next_watermarks`."""
    for name in metrics:
        if name in next_watermarks:
            raise InvalidValueError(reason="reserved_name", name=name, reserved=sorted(next_watermarks))
    return values.encode(metrics, what="metric", limit=MAX_METRICS_BYTES)


def _change_to_map(change: Change) -> Item:
    metrics, kinds = encode_metrics(change.metrics, {})
    return _written(CHANGE, change) | {"metrics": metrics, "metricTypes": kinds}


def _outputs(outputs: Sequence[Output | Retraction]) -> Attribute:
    # Store all records as one JSON text: no request reads a single record, and a map would need a second map for types.
    return {"S": json.dumps([output.record() for output in outputs])}


def _releases(releases: tuple[Release, ...]) -> Attribute:
    shown = [vars(release) | {"at": to_utc_string(release.at)} for release in releases]
    # Do not escape characters: an operator's reason may be in any alphabet, and escapes would make it thrice as long.
    return {"S": json.dumps(shown, ensure_ascii=False)}


def _plan_to_map(plan: Plan) -> Item:
    contexts, context_types = values.encode(plan.contexts, what="plan")
    following, next_types = values.encode(plan.next)
    item = {"contexts": contexts, "contextTypes": context_types, "next": following, "nextTypes": next_types}
    return item | _written(PLAN, plan)


def number(value: int) -> Attribute:
    """Encode a whole number, such as a version or a fence."""
    return {"N": str(value)}


def _counts(found: Mapping[str, int]) -> Attribute:
    return {"M": {name: number(count) for name, count in found.items()}}


def _answers(answers: Mapping[str, Mapping[str, int]]) -> Attribute:
    return {"M": {epoch: _counts(answered) for epoch, answered in answers.items()}}


def _time(moment: datetime) -> Attribute:
    return {"S": to_utc_string(moment)}


def _moment(moment: datetime) -> Attribute:
    """Encode a time of this machine's clock; raise InvalidValueError for one that `clock_time` would refuse to read."""
    if not EARLIEST <= moment <= LATEST:
        raise InvalidValueError(f"The clock says {moment:%Y-%m-%d}. Set the clock of the machine that the job runs on.")
    return _time(moment)


# --- items -> records ---------------------------------------------------------------------------


def head_from_item(item: Item) -> Head:
    """Return the head that an item stores; NewerFormatError for a later format, CorruptItemError if it was altered."""
    check_format(item)
    return reading(item, _head)


def log_from_item(item: Item) -> LogEntry:
    """Read a log entry."""
    check_format(item)
    return reading(item, _log_entry)


def run_from_item(item: Item) -> dict[str, Any]:
    """Return a run item, of this package or of the original class, as the dict that `get_watermark` returns."""
    return reading(item, _run)


def start_of_run(item: Item) -> datetime:
    """Return the time when a run began or, if it never began, when it was requested; `item` is the run's record."""
    check_format(item)
    return reading(item, lambda item: _moment_in(item, "runningSince" if "runningSince" in item else "startedOn"))


def reading(item: Item, read: Callable[[Item], T]) -> T:
    """Return the result of `read(item)`; CorruptItemError if it fails because the item was altered."""
    try:
        return read(item)
    except ImplausibleError as error:
        raise _corrupt(item, str(error)) from error
    except DAMAGE as error:
        # Show only the error's type: its text may quote the value of a watermark.
        raise _corrupt(item, f"{type(error).__name__} while reading it") from error


def _corrupt(item: Item, detail: str) -> CorruptItemError:
    return CorruptItemError(item[HASH_KEY]["S"], item[RANGE_KEY]["S"], detail)


def check_format(item: Item) -> None:
    """Raise NewerFormatError for an item of a later format."""
    # Check this first: a later format may have moved or renamed other attributes, and the item would look corrupt.
    found = item.get("fmt", {}).get("N", "0")
    if found.isdigit() and int(found) > FORMAT:
        raise NewerFormatError(item[HASH_KEY]["S"], int(found), FORMAT)


def _head(item: Item) -> Head:
    claim = plan = None
    # If any attribute of a claim or a plan exists, all must: the item was altered if one is missing. Ignoring half a
    # claim would let a second run begin; ignoring half a plan would lose a batch.
    if "ownerTok" in item or "owner" in item:
        claim = Claim(**_read(CLAIM, item))
        # Treat a lease that ends implausibly late, as in the year 9000, as over: it would block the job. That is safe,
        # because the fence, not the lease, prevents two runs from both committing.
        if not EARLIEST <= claim.lease_until <= claim.since + LONGEST_LEASE:
            claim = replace(claim, lease_until=claim.since)
    if "planId" in item or "plan" in item:
        stored = attribute_of(item, "plan", "M")
        plan = Plan(
            plan_id=_text(item, "planId"),
            contexts=_values_in(stored, "contexts", "contextTypes"),
            next=_values_in(stored, "next", "nextTypes"),
            **_read(PLAN, stored),
        )
    watermarks = _values_in(item, WATERMARKS, "types")
    return Head(job_id=item[HASH_KEY]["S"], watermarks=watermarks, claim=claim, plan=plan, **_read(HEAD, item))


def _log_entry(item: Item) -> LogEntry:
    version = _whole(item, "version")
    # Refuse an entry whose version differs from that in its key: reading a history by such versions might never end.
    if item[RANGE_KEY]["S"] != log_key(version):
        raise ImplausibleError(f"it says that it is version {version}")
    return LogEntry(
        job_id=item[HASH_KEY]["S"],
        version=version,
        watermarks=_values_in(item, WATERMARKS, "types"),
        change=_change(item),
    )


def _change(item: Item) -> Change:
    return Change(metrics=_values_in(item, "metrics", "metricTypes"), **_read(CHANGE, item))


def _last(item: Item, name: str) -> Change:
    return _change(attribute_of(item, name, "M") | {HASH_KEY: item[HASH_KEY]})


def _run(item: Item) -> dict[str, Any]:
    found: dict[str, Any] = {HASH_KEY: item[HASH_KEY]["S"], RANGE_KEY: item[RANGE_KEY]["S"]}
    if "version" not in item:
        return found | {"watermarks": _legacy_watermarks(item)}
    return found | {
        "watermarks": _values_in(item, WATERMARKS, "types"),
        "version": _whole(item, "version"),
        "status": _text(item, "status"),
        "committedAt": _moment_in(item, "committedAt"),
        "metrics": _values_in(item, "metrics", "metricTypes"),
    }


def _legacy_watermarks(item: Item) -> dict[str, Any]:
    """Return the watermarks of an item of the original class, and its other attributes, as one dict.

    Scripts could store watermarks in another attribute with `key=`, or add attributes. Every attribute must be kept.
    """
    others = {name: attribute for name, attribute in item.items() if name not in (HASH_KEY, RANGE_KEY, WATERMARKS)}
    if WATERMARKS not in item and not any("M" in attribute for attribute in others.values()):
        raise ValueError("no map of watermarks")
    found = values.decode(item[WATERMARKS]) if WATERMARKS in item else {}
    if others.keys() & found.keys():
        raise ValueError("a name that stands in the item and in its watermarks")
    return found | values.decode({"M": others})


def _text(item: Item, name: str) -> str:
    found: str = attribute_of(item, name, "S")
    return found


def _values_in(item: Item, name: str, types: str) -> dict[str, Any]:
    """Return the decoded map `name`; an error names the map, but never quotes the value that cannot be read."""
    found, kinds = {"M": attribute_of(item, name, "M")}, {"M": attribute_of(item, types, "M")}
    try:
        return values.decode(found, kinds)
    except ImplausibleError as error:
        raise ImplausibleError(f"{name}: {error}") from error
    except DAMAGE as error:
        # Show only the error's type: its text may quote the value of a watermark.
        raise ImplausibleError(f"{name} and {types} do not fit together ({type(error).__name__})") from error


def _json_in(item: Item, name: str) -> list[Any]:
    """Return a list, such as of a version's outputs, that is stored as one JSON text."""
    try:
        found = json.loads(_text(item, name))
    except (ValueError, RecursionError):
        raise ImplausibleError(f"{name} is not JSON") from None
    if not isinstance(found, list) or len(found) > MAX_OUTPUTS:
        raise ImplausibleError(f"{name} is not a list of up to {MAX_OUTPUTS:,} records")
    return found


def _records_of(read: Callable[[Any, str, str], T]) -> Callable[[Item, str], tuple[T, ...]]:
    def read_all(item: Item, name: str) -> tuple[T, ...]:
        job_id = item[HASH_KEY]["S"]
        return tuple(read(found, f"{name}[{at}]", job_id) for at, found in enumerate(_json_in(item, name)))

    return read_all


def _versions_in(item: Item, name: str) -> tuple[tuple[int, int], ...]:
    found = _json_in(item, name)
    for pair in found:
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(type(version) is int for version in pair)
        if not is_pair or not 0 <= pair[0] <= pair[1] <= MAX_COUNT:
            raise ImplausibleError(f"{name} is not a list of first and last versions")
    return tuple((first, last) for first, last in found)


def _epochs_in(item: Item, name: str) -> dict[str, int]:
    found = attribute_of(item, name, "M")
    return {_epoch(epoch, name): _whole(found, epoch) for epoch in found}


def _answers_in(item: Item, name: str) -> dict[str, dict[str, int]]:
    found = attribute_of(item, name, "M")
    by_epoch = {_epoch(epoch, name): attribute_of(found, epoch, "M") for epoch in found}
    return {epoch: {key: _whole(answered, key) for key in answered} for epoch, answered in by_epoch.items() if answered}


def _epoch(found: str, name: str) -> str:
    if len(found) > MAX_EPOCH or not re.fullmatch(EPOCH, found):
        raise ImplausibleError(f"{name} is not the name of an epoch: letters, digits, '.', '_' and '-'")
    return found


def _releases_in(item: Item, name: str) -> tuple[Release, ...]:
    found = [Fields(one, f"{name}[{at}]") for at, one in enumerate(_json_in(item, name))]
    texts = ("run_id", "who", "why", "token")
    return tuple(Release(at=one.utc("at"), **{name: one.text(name) for name in texts}) for one in found)


def _lease_in(item: Item, name: str) -> timedelta | None:
    """Return for how long each heartbeat renews the lease; None if the stored number of seconds is implausible.

    The length is only shown to operators and decides nothing, so a bad value does not make the head unreadable.
    """
    seconds = float(attribute_of(item, name, "N"))
    return timedelta(seconds=seconds) if 0 < seconds <= LONGEST_LEASE.total_seconds() else None


def _whole(item: Item, name: str) -> int:
    text = attribute_of(item, name, "N")
    # Accept at most 40 digits without a point, as DynamoDB returns whole numbers: longer texts are slow to parse.
    if not _WHOLE.fullmatch(text):
        raise ImplausibleError(f"{name} is not a whole number")
    found = int(text)
    if not 0 <= found <= MAX_COUNT:
        raise ImplausibleError(f"{name} is {found:,}")
    return found


def _moment_in(item: Item, name: str) -> datetime:
    return clock_time(_text(item, name), name)


# --- which attribute holds which field ------------------------------------------------------------


class _Codec(NamedTuple):
    """`write` turns a value into an attribute. `read` returns the value of the attribute of a given name in an item."""

    write: Callable[[Any], Attribute]
    read: Callable[[Item, str], Any]


class _Stored(NamedTuple):
    """An item's attribute for a field, omitted if the field equals `default`; without a default, always written."""

    attribute: str
    field: str
    codec: _Codec
    default: Any = ...


_TEXT = _Codec(lambda text: {"S": text}, _text)
_COUNT = _Codec(number, _whole)
_MOMENT = _Codec(_moment, _moment_in)
_EPOCH = _TEXT._replace(read=lambda item, name: _epoch(_text(item, name), name))
_OUTPUTS = _Codec(_outputs, _records_of(Output.from_record))
_RELEASES = _Codec(_releases, _releases_in)
CHANGE_COUNTS = tuple(_Stored(name, name, _COUNT) for name in ("fence", "runs", "failed"))
CHANGE = (
    _Stored("op", "op", _TEXT),
    _Stored("commitId", "commit_id", _TEXT),
    _Stored("at", "at", _MOMENT),
    _Stored("attempt", "attempt", _COUNT),
    *CHANGE_COUNTS,
    _Stored("byRun", "run_id", _TEXT, None),
    _Stored("planId", "plan_id", _TEXT, None),
    _Stored("why", "why", _TEXT, None),
    _Stored("who", "who", _TEXT, None),
    _Stored("previousRun", "previous_run_id", _TEXT, None),
    _Stored("startedAt", "started_at", _MOMENT, None),
    _Stored("outputs", "outputs", _OUTPUTS, ()),
    _Stored("releases", "releases", _RELEASES, ()),
)
CLAIM = (
    _Stored("owner", "run_id", _TEXT),
    _Stored("ownerTok", "token", _TEXT),
    _Stored("attempt", "attempt", _COUNT),
    _Stored("leaseUntil", "lease_until", _Codec(_time, lambda item, name: time_of(_text(item, name), name))),
    _Stored("claimedAt", "since", _MOMENT),
    _Stored("leaseSeconds", "lease", _Codec(lambda lease: {"N": str(lease.total_seconds())}, _lease_in), None),
)
PLAN = (_Stored("at", "at", _MOMENT), _Stored("later", "later", _MOMENT, None))
HEAD = (
    _Stored("epoch", "epoch", _EPOCH),
    _Stored("version", "version", _COUNT),
    _Stored("fence", "fence", _COUNT),
    _Stored("last", "last", _Codec(lambda change: {"M": _change_to_map(change)}, _last), None),
    _Stored("unpublished", "unpublished", _OUTPUTS, ()),
    _Stored("retracting", "retracting", _Codec(_outputs, _records_of(Retraction.from_record)), ()),
    _Stored("retracted", "retracted", _Codec(lambda pairs: {"S": json.dumps(pairs)}, _versions_in), ()),
    _Stored("epochs", "epochs", _Codec(_counts, _epochs_in), {}),
    _Stored("answers", "answers", _Codec(_answers, _answers_in), {}),
    _Stored("releases", "releases", _RELEASES, ()),
    # The fields below were added later without a new format: older versions of this package ignore them.
    _Stored("recent", "recent_text", _TEXT._replace(read=lambda item, name: kept_text(_text(item, name))), ""),
    _Stored("movedTo", "moved_to", _TEXT, None),
    _Stored("arrivingFrom", "arriving_from", _TEXT, None),
    _Stored("failure", "failure", _TEXT._replace(read=lambda item, name: _text(item, name)[:MAX_FAILURE_BYTES]), None),
    _Stored("logged", "logged", _COUNT, 0),
    _Stored("plannedAt", "planned_at", _MOMENT, None),
    _Stored("atTargets", "at_targets", _OUTPUTS, ()),
)
"""Fields of a head, except its watermarks, claim and plan, which take more than one attribute each."""


def _written(table: Sequence[_Stored], record: Any) -> Item:
    given = [(attribute, write, getattr(record, field), default) for attribute, field, (write, _), default in table]
    return {attribute: write(value) for attribute, write, value, default in given if value != default}


def _read(table: Sequence[_Stored], item: Item) -> dict[str, Any]:
    return {
        field: read(item, attribute) if default is ... or attribute in item else default
        for attribute, field, (_, read), default in table
    }
