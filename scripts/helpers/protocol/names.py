"""Names and ids: the rules for jobs, runs, contexts, namespaces, jobs of backfills, and the batch id. Pure."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256

from scripts.helpers.errors import InvalidIdError, InvalidValueError

JOB_ID_RULE = r"[A-Za-z0-9][A-Za-z0-9 ._/:@=+-]{0,254}"
"""Printable ASCII that IAM's ``dynamodb:LeadingKeys`` can match: no wildcards, no control characters."""

ANY_JOB_ID = r"(?s:.{1,2048})"
"""Any job name that a table can hold, for calls without the table's rule. DynamoDB limits a hash key to 2,048 bytes."""
SCHEME = "sqlite:"
MAX_NAME = 255
"""Characters of a job name or a run id: Glue's limit."""
_DERIVED = re.compile(r"(.+)-(?:backfill|coverage)-[0-9a-f]{16}", re.DOTALL)
_GLUE_RUN_ID = re.compile(r"(jr_[0-9a-f]+)(?:_attempt_([0-9]+))?")
_RUN_ID = re.compile(r"[\x22-\x7d][\x20-\x7e]{0,254}")
PRINTABLE_REMEDY = "It must be 1 to 255 printable ASCII characters, the first not '!', '~' or a space"
_READABLE_RUN_ID = re.compile(r"[^!~].{0,1023}", re.DOTALL)
"""Any text that is not a key of this package; DynamoDB limits a range key to 1,024 bytes."""


def is_file(table_name: str) -> bool:
    """Return whether a table's name refers to a file, such as ``sqlite:watermarks.db``."""
    if not isinstance(table_name, str):
        raise InvalidValueError(f"The table's name is of type {type(table_name).__name__}. Pass a text.")
    return table_name.startswith(SCHEME)


def check_job_id(job_id: str, rule: str = JOB_ID_RULE) -> str:
    """Return a job name unchanged if it matches the regular expression `rule`; otherwise raise InvalidIdError."""
    return _check(
        "Job name", job_id, re.compile(rule),
        f"It must match {rule}. If the table has such jobs already, widen the rule: Watermarks(job_id_rule=...)",
    )  # fmt: skip


def check_run_id(run_id: str) -> str:
    """Return a run id of 1 to 255 printable ASCII characters unchanged; it may not begin with ``!``, ``~`` or space."""
    return _check("Run id", run_id, _RUN_ID, PRINTABLE_REMEDY)


def check_readable_run_id(run_id: str) -> str:
    """Return a run id unchanged if it can be looked up; InvalidIdError for ``!…`` and ``~…``, keys of other items."""
    return _check("Run id", run_id, _READABLE_RUN_ID, "It must be text that starts with neither '!' nor '~'")


def same_run(owner: str, run_id: str) -> bool:
    """Return whether a run may take the job from its owner: it has the owner's run id, or is Glue's retry of that run.

    Glue names the retries of ``jr_<hexadecimal digits>`` ``..._attempt_1``, ``..._attempt_2``. A retry may take the
    job from an earlier attempt, but not from a later one. Run ids of any other form must be equal.
    """
    before, after = _GLUE_RUN_ID.fullmatch(owner), _GLUE_RUN_ID.fullmatch(run_id)
    if owner == run_id or before is None or after is None:
        return owner == run_id
    return before[1] == after[1] and int(before[2] or 0) <= int(after[2] or 0)


def check_context(context: str) -> str:
    """Return a `transformation_ctx` unchanged if it would be a valid run id; otherwise raise InvalidIdError."""
    return _check("Context", context, _RUN_ID, PRINTABLE_REMEDY)


def _check(what: str, text: str, rule: re.Pattern[str], remedy: str) -> str:
    if not isinstance(text, str):
        raise InvalidIdError(f"{what} must be a str, not {type(text).__name__}.")
    if not rule.fullmatch(text):
        shown = repr(text if len(text) <= 80 else text[:77] + "...")
        raise InvalidIdError(f"{what} {shown} ({len(text)} characters) is not allowed. {remedy}.")
    return text


def new_token() -> str:
    """Make a random token that identifies one write of this package."""
    return secrets.token_hex(8)


def new_epoch() -> str:
    """Make the name of a new epoch: random, so that a recreated table never repeats a batch id.

    With 64 random bits, even thousands of jobs, such as the slices of a backfill, never get the same name.
    """
    return "e" + secrets.token_hex(8)


def is_epoch(text: str) -> bool:
    """Return whether a text has the form of an epoch's name. Runs without bookmarks use a name of another form."""
    return re.fullmatch("e[0-9a-f]{8,16}", text) is not None


def new_run_id() -> str:
    """Make a run id in the format of Glue's ids, for jobs that run elsewhere."""
    return "jr_" + secrets.token_hex(32)


@dataclass(frozen=True)
class BatchId:
    """The key of a batch for an idempotent sink: the same for every attempt at one plan.

    ``str()`` returns a text that is safe in a path: epoch and version, the version in fixed width.

    >>> str(BatchId("parking", "e1f00ba42", 3))
    'e1f00ba42-0000000003'
    """

    job_id: str
    epoch: str
    version: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.version:010d}"


def derived_id(job_id: str, kind: str, *parts: str) -> str:
    """Return the name of a job that serves `job_id`, such as a slice of its backfill: `job_id`, `kind` and a hash.

    A long `job_id` is cut at its end and not at its start, because IAM policies may allow jobs by how a name begins.
    """
    suffix = f"-{kind}-{sha256(repr((job_id, *parts)).encode()).hexdigest()[:16]}"
    return job_id[: MAX_NAME - len(suffix)] + suffix


def served_by(job_id: str) -> str | None:
    """Return the `job_id` in a name that `derived_id` made, cut at its end if it was long; None for any other name."""
    found = _DERIVED.fullmatch(job_id) if len(job_id) <= MAX_NAME else None
    return found[1] if found else None


SEPARATOR = "@@"


def split_name(name: str) -> tuple[str, str | None]:
    """Return the job's own name and its namespace, from its name in the table.

    >>> split_name("repairs@@north"), split_name("repairs")
    (('repairs', 'north'), ('repairs', None))
    """
    job_id, _, namespace = name.partition(SEPARATOR)
    return job_id, namespace or None


def name_in_table(job_id: str, namespace: str | None) -> str:
    """Return a job's name in the table: ``job@@namespace``, or the job's own name without a namespace.

    Two different pairs never have the same name, so runs in different namespaces share no lease, no
    watermarks and no history.

    Raises
    ------
    InvalidIdError
        The joined name would be ambiguous, or a namespace has characters that job names may not have.

    Examples
    --------
    >>> name_in_table("repairs", "north"), name_in_table("repairs", None)
    ('repairs@@north', 'repairs')
    """
    if not namespace:
        if isinstance(job_id, str) and SEPARATOR in job_id and served_by(job_id) is None:
            raise InvalidIdError(
                f"Job name {job_id!r} has {SEPARATOR!r} in it, which parts a job from its namespace. Give the part "
                "behind it as namespace=."
            )
        return job_id
    check_job_id(job_id)
    check_job_id(namespace)
    if SEPARATOR in job_id or SEPARATOR in namespace or job_id.endswith("@"):
        raise InvalidIdError(
            f"Job name {job_id!r} and namespace {namespace!r} cannot be joined by {SEPARATOR!r} without doubt. Rename "
            "the one that has it, or the job whose name ends with '@'."
        )
    return f"{job_id}{SEPARATOR}{namespace}"
