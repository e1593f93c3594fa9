"""Files that could not be read: kept by key in the state of their source, with the reason, until a person decides.

Pure, and without pyarrow: the command reads and changes the list where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.errors import InvalidValueError, LedgerError, SetAsideFullError
from scripts.helpers.listing.paths import is_plain
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.fields import MAX_NUMBER, Fields
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.protocol.values import Spilled

MAX_SET_ASIDE = 1_000
"""Files of one source that are set aside at once. More of them are no bad files, but a cause that all files share."""
MAX_LIST_BYTES = 8 * 1024 * 1024
"""Most text that a list may unfold to: keys have 1,024 bytes at most, and their JSON a few times as many."""

WAITING, RETRY, SKIP = "waiting", "retry", "skip"
"""What was decided of a file: nothing yet; the next batch looks at it and takes it; it counts as done."""

PACKED = (bytes, Blob, Spilled)
"""What packed bytes are: those of the state itself, or those in chunks beside it."""
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)
YEAR_1, YEAR_9999 = ((end.replace(tzinfo=timezone.utc) - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))
"""Microseconds since 1970 that a file may be stamped with."""

GONE_REASON = "it is not there any more"


@dataclass(frozen=True)
class SetAside:
    """One file that was set aside: its identity when it was planned, why, and by which version and run."""

    key: str
    etag: str | None
    version_id: str | None
    size: int
    modified: datetime
    reason: str
    version: int
    run_id: str
    decision: str = WAITING

    def is_of(self, row: Mapping[str, Any]) -> bool:
        """Tell whether an object as it is listed is the one that was set aside."""
        if self.version_id is not None and row["version_id"] is not None and self.version_id != "null":
            return bool(self.version_id == row["version_id"])
        return bool(self.etag == row["etag"] and self.size == row["size"])


def entry_of(row: Mapping[str, Any], reason: str, version: int, run_id: str) -> SetAside:
    """Make the entry of an object that a listing or a plan shows."""
    return SetAside(row["key"], row["etag"], row["version_id"], row["size"], row["modified"], reason, version, run_id)


def set_aside_of(state: Mapping[str, Any] | None, source: str = "") -> dict[str, SetAside]:
    """Return what a state of files has set aside, by key; LedgerError if the list is damaged."""
    stored = (state or {}).get("set_aside")
    if stored is None:
        return {}
    source = source or str((state or {}).get("source", ""))
    try:
        check_set_aside(Fields(state, "state"))
        data = stored["data"]
        found = unpack_json(data.data if isinstance(data, Blob) else data, MAX_LIST_BYTES)
        entries = {
            entry.key: entry
            for one in Fields({"data": found}, "set_aside").maps("data", MAX_SET_ASIDE)
            if (entry := _from_json(one))
        }
        if len(found) != stored["count"]:
            raise ValueError("the count differs")
        # Buckets have keys with empty components, which are set aside since Spark cannot take them.
        outside = [key for key in entries if not is_plain(key, literal=True)]
    except ValueError as error:
        raise LedgerError(
            source,
            f"its list of files that are set aside is damaged ({error}). Restore the job's item from a backup.",
        ) from error
    if outside:
        detail = f"has the key {outside[0]!r}, which leads out of the source. Restore the job's item from a backup."
        raise LedgerError(source, f"its list of files that are set aside {detail}")
    return entries


def check_set_aside(state: Fields) -> None:
    """Raise ImplausibleError for a list of a state that is not one of `as_state`; what is packed is not looked at."""
    if "set_aside" in state:
        fields = state.map("set_aside")
        for count in ("count", RETRY, SKIP):
            fields.whole(count, 0, most=MAX_SET_ASIDE)
        fields.of("data", PACKED, "bytes")


def as_state(entries: Mapping[str, SetAside], source: str) -> dict[str, Any] | None:
    """Return what a state stores of a list; None of an empty one. SetAsideFullError if it is too long."""
    if not entries:
        return None
    if len(entries) > MAX_SET_ASIDE:
        raise SetAsideFullError(source, len(entries), MAX_SET_ASIDE)
    rows = [_as_json(entry) for _, entry in sorted(entries.items())]
    # Counts beside the list: whoever shows a state need not unpack it.
    counts = {"count": len(rows)}
    for decision in (RETRY, SKIP):
        decided_so = sum(entry.decision == decision for entry in entries.values())
        if decided_so:
            counts[decision] = decided_so
    return {**counts, "data": Blob(pack_json(rows))}


def with_list(state: Mapping[str, Any], entries: Mapping[str, SetAside]) -> dict[str, Any]:
    """Return a state with another list."""
    others = {name: value for name, value in state.items() if name != "set_aside"}
    stored = as_state(entries, str(state.get("source", "")))
    return others if stored is None else {**others, "set_aside": stored}


def decided(state: Mapping[str, Any], keys: Iterable[str], decision: str) -> dict[str, Any]:
    """Return a state after a person's decision about some files; the next batch does what follows from it.

    Parameters
    ----------
    keys
        As the list has them: relative to the source.
    decision
        RETRY or SKIP.

    Raises
    ------
    InvalidValueError
        A key is not on the list.
    """
    entries = set_aside_of(state)
    keys = list(dict.fromkeys(keys))
    unknown = [key for key in keys if key not in entries]
    if unknown:
        raise InvalidValueError(
            f"{unknown[0]!r} is not set aside in source {state.get('source')!r}, which has "
            f"{len(entries)} such files. List them with `watermarks files JOB --set-aside`."
        )
    return with_list(state, {**entries, **{key: replace(entries[key], decision=decision) for key in keys}})


def _as_json(entry: SetAside) -> dict[str, Any]:
    found = asdict(entry)
    found["modified"] = (entry.modified - EPOCH) // MICROSECOND
    return found


def _from_json(fields: Fields) -> SetAside:
    since_1970 = fields.whole("modified", least=YEAR_1, most=YEAR_9999) * MICROSECOND
    return SetAside(
        fields.of("key", str, "a text"), fields.of("etag", str, "a text", None),
        fields.of("version_id", str, "a text", None), fields.whole("size", most=MAX_NUMBER),
        EPOCH + since_1970, fields.of("reason", str, "a text"),
        fields.whole("version"), fields.of("run_id", str, "a text"), fields.one_of("decision", (WAITING, RETRY, SKIP)),
    )  # fmt: skip
