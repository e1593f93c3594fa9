"""Every error of the package, grouped by what the caller does next. Pure.

Messages say what happened, with names, ids and counts, and then the remedy. They never contain
values of watermarks, credentials or connection strings. The facts are attributes of the error, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from shlex import quote
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

DAMAGE = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RecursionError, MemoryError,
    OSError,
)  # fmt: skip
"""Built-in errors that parsing raises for damaged data. Readers translate them, so that a user never sees a bare
OverflowError, and so that a list of jobs does not fail because of one damaged job."""


def rows_have(count: int) -> str:
    """Return a number of rows with a verb that agrees: "1 row has", "2 rows have"."""
    return "1 row has" if count == 1 else f"{count:,} rows have"


READ_AGAIN = (
    "read the whole table again: give on_loss='take' with write_disposition='merge', or run `watermarks reset "
    "{job_id!q} --context {context!q} --why TEXT`"
)
RESTORED = (
    "If the table was truncated or restored, read it again with `watermarks reset {job_id!q} --context {context!q} "
    "--why TEXT`, or go back with `watermarks rewind {job_id!q} --context {context!q} --to-version N --why TEXT`. If "
    "one row was far above the others"
)
PASSED = (
    f", so context {{context!r}} of job {{job_id!r}} would lose rows. {RESTORED}, or a transaction committed late, set "
    "the watermark back and merge what comes twice: `watermarks set {job_id!q} --context {context!q} value=VALUE --why "
    "TEXT`. To continue without these rows, run `watermarks set {job_id!q} --context {context!q} edge:null= --why "
    "TEXT`."
)
"""Parts of sentences that several messages share."""

REASONS = {
    # --- NothingThereError
    "unknown_glue_job": "Glue has no job {job_id!r} in region {region!r}. Check the name and the region.",
    "unplaced_run": (
        "Run {run_id!r} of job {job_id!r} never committed, and the commit before it is unknown: its start time is "
        "unknown, or the history of that time has expired. Name a run that history(job_id) lists, or pass the JobRuns "
        "that get_job_runs returns as job_runs=."
    ),
    "unknown_version": (
        "Version {version} of job {job_id!r} is not in its log, which is at version {current}: it never existed, or "
        "its log entry expired. history(job_id) lists the versions to go back to."
    ),
    "unknown_context": (
        "Job {job_id!r} has no watermark of rows under context {context!r}. It has: {known!l}. Check the name, run the "
        "job once, or call set_watermark."
    ),
    "no_cursor": (
        "Context {context!r} of job {job_id!r} is of kind {kind!r}, which has no cursor, so it has no ranges. Contexts "
        "that have one: {known!l}."
    ),
    # --- PlanConflictError
    "run_closed": (
        "run {run_id!r} is {how} already, so it cannot {verb}. Do this inside the `with` block of a new "
        "IncrementalJob, or in a new run of begin."
    ),
    # --- InvalidValueError
    "option": "Option {option!r}{detail}",
    "retracted": (
        "Version {version} of job {job_id!r} includes rows of versions {first} to {last}, whose output was deleted. "
        "{detail}"
    ),
    "too_many_ids": "Ids of context {context!r}: {detail}",
    "name_collision": "Fields {first!p} and {second!p} would both be {what}. Rename one of them first.",
    "reserved_name": "{name!r} is a reserved name (as are {reserved!l}). Rename it.",
    "merge_null": (
        "{count!n} NULL there, so the rows that they replace are unknown. Filter or fill them. Nothing was written."
    ),
    "merge_tie": (
        "Target {target!r}: {count!n} the same {keys!l}, {sequence_by!l} as a different row {where}, so the order of "
        "these rows is unknown. Add a column to sequence_by that orders them, such as the offset in the source's log. "
        "Nothing was written."
    ),
    "unfit_partition": (
        "Partition column {column!r}: {count!n} {value} there, which the target does not keep: readers get NULL, or "
        "nothing. Replace it, for example by 'unknown', or partition by another column. Nothing was written."
    ),
    "script": (
        "Job {job_id!r}: {location!r} is not in a place that this engine runs scripts from: {allowed!l}. Correct the "
        "job's definition, or add the script's folder to SparkSubmit(scripts=[...])."
    ),
    "argument": "Job {job_id!r}: a run may not have the argument {argument!r}: {detail}",
    "no_order": "Field {field!r} is of type {kind}, which has no order. Cast it to a string or leave it out.",
    "contexts_exist": (
        "Job {job_id!r} has the state of {contexts!c} sources ({contexts!l}), which add_watermark would delete: the "
        "next run would read everything again. Commit with the run instead (IncrementalJob, or begin, freeze and "
        "commit), or give add_watermark a job name of its own. To start over without sources, reset the job."
    ),
    "job_exists": (
        "Table {table_name!r} has a job {job_id!r} of its own, or a later version of it. Nothing was copied. Move that "
        "one away first: watermarks copy {job_id!q} --from {table_name!q} --to TABLE."
    ),
    # --- CredentialsError
    "no_region": "No AWS region is set. Pass region_name, or set AWS_DEFAULT_REGION or a profile's region.",
    # --- ConfigurationError
    "legacy_item": (
        "Item {run_id!r} of job {job_id!r} is of the original class and cannot be adopted. {detail} "
        "get_watermark_values returns its values. Pass those that the next run needs: adopt({job_id!r}, "
        "run_id={run_id!r}, watermarks={{...}})."
    ),
    "log_folder": "Folder {folder!r} of the logs {detail}. Correct that, or give SparkSubmit another logs=.",
    # --- SourceLostError
    "replaced": (
        "context {context!r} of job {job_id!r} remembers {before!r}, and rows below the watermark of another table "
        "would never be read. For another source, give it a transformation_ctx of its own. To read this table from the "
        "beginning, run `watermarks reset {job_id!q} --context {context!q} --why TEXT`. If it holds the same rows as "
        "before, as after a move, keep the watermark: `watermarks set {job_id!q} --context {context!q} source:null= "
        "--why TEXT`."
    ),
    "rolled_back": (
        "it was set back, and what context {context!r} of job {job_id!r} read last is no longer part of it. To "
        f"{READ_AGAIN}.{{detail}}"
    ),
    "expired": (
        "not all commits since the watermark of context {context!r} of job {job_id!r} can be read any more: snapshots "
        f"expired, or files were vacuumed. To miss no row, {READ_AGAIN}. Run the job more often than the table's "
        "history is cleaned up."
    ),
    "expired_plan": (
        "what the open plan of job {job_id!r} takes in context {context!r} is no longer complete: snapshots expired, "
        "or files were vacuumed. If nothing of it can be restored, run `watermarks discard-plan {job_id!q} --why "
        f"TEXT`, and {READ_AGAIN}. Keep the history of the table for longer than a run may wait."
    ),
    # --- SourceError
    "changed": (
        "context {context!r} remembers {before!r}. Give the new source a transformation_ctx of its own.{detail}"
    ),
    "behind": (
        "its {what} is behind the watermark of context {context!r}, so it went back, or a lagging replica answered. "
        "Rows would be lost. Read from the primary, or wait until it has caught up; after a restore of the source, "
        "rewind or reset the job."
    ),
    "last_row_behind": (
        "its last row is below rows that context {context!r} of job {job_id!r} has seen. Rows that come below the "
        f"watermark would never be read. If a lagging replica answered, read from the primary. {RESTORED} and is gone, "
        "continue past the last row: `watermarks set {job_id!q} --context {context!q} value=VALUE --why TEXT`. If rows "
        "are deleted there every day, give on_behind='warn'."
    ),
    "rows_behind": f"rows came below the watermark after it had passed them{PASSED}",
    "last_row_changed": f"the last row that was taken is gone or has other values{PASSED}",
    "all_unreadable": (
        "{detail} Nothing is set aside: check the rights of the job, the format, the schema and the options of the "
        "read."
    ),
    "all_set_aside": (
        "{detail} The files are set aside. The next run continues without them; to read them again: `watermarks files "
        'JOB --retry-all --why "…"`.'
    ),
    "snapshot_behind": (
        "its largest partition is before the one that context {context!r} of job {job_id!r} has taken: that one was "
        "deleted, or is not ready any more. Nothing is read, as an older snapshot would replace a newer one. Restore "
        "it, or start over with `watermarks reset {job_id!q} --context {context!q} --why TEXT`."
    ),
    "snapshot_unchanged": (
        "its largest partition is the one that context {context!r} has taken, with the same files. Run again when the "
        "next one is there. on_same='take' reads it once more, on_same='skip' returns nothing."
    ),
    "set_aside_full": (
        "{count:,} files would be set aside, and the limit is {limit:,}. Nothing is lost: fix the cause, or mark files "
        "as done with `watermarks files JOB --skip KEY --why TEXT`, then run the job again."
    ),
    "modified": (
        "known objects that have changed: {count:,}, such as {keys!k}. Find out who writes them, or use "
        'on_modified="take" or "skip".'
    ),
    "change_feed": "{detail}",
    "merge_on_read": (
        "a commit since the watermark marks rows as deleted beside their files (merge-on-read), and Iceberg makes no "
        "changes of that. Set write.delete.mode, write.update.mode and write.merge.mode to copy-on-write. For these "
        "commits give changes='append' with on_overwrite='take' and write_disposition='merge'."
    ),
    "format_version_1": (
        "it is of format version 1, whose commits have no numbers that order their changes. Set 'format-version'='2' "
        "on the table."
    ),
    "rewritten": (
        "commits since the watermark that delete or overwrite rows: {count:,} ({operations!l}), and context "
        "{context!r} reads appended rows only. To read them as changes, give changes='feed'; to leave them out, "
        "on_overwrite='skip'; to read the whole table again, on_overwrite='take' with write_disposition='merge'."
    ),
    # --- TargetError, TargetUnavailableError
    "retraction": (
        "the output of versions {first} to {last} could not be deleted. Job {job_id!r} reads their rows again, so the "
        "target would have them twice. Fix the cause named above; each run tries again."
    ),
    "taken": (
        "it holds {found!r}, which no job of this package wrote. Name an empty folder, or pass beside_others=True to "
        "let its readers see both."
    ),
    "layout": "{detail}",
    "other_format": (
        "format={format!r}, but {name!r} is {other}, and readers take all files for one format. Name another folder."
    ),
    "other_option": (
        "the option {option!r} is {now!r}, and {before!r} in the files there, and readers take all files alike. Write "
        "with the same option, or name another folder."
    ),
    "not_a_table": "it holds {found!r} and is not a {format} table. Name an empty folder, or convert it first.",
    "unfit_table": "{detail}",
    "refused": "{doing}: the database refuses it to this user ({shown}). {detail}.",
    "unreachable": (
        "{doing}: the database is unreachable or closed the connection ({shown}). Run again later: the plan stays."
    ),
    "locked": (
        "{doing}: another transaction holds a lock that it needs ({shown}). Find the transactions that are open for "
        "long, in pg_stat_activity (PostgreSQL) or information_schema.INNODB_TRX (MySQL, MariaDB), and end them, or "
        "let them end. Then run the job again."
    ),
}
"""The message of each reason: the fact, its cause and the remedy, with placeholders for the error's attributes.

A reason has no class of its own because callers do not handle it separately. Its key never changes: logs, the command
line's JSON and the stored failure of a run contain it next to the class.
"""


class _Sentences(Formatter):
    """Formats messages. In a placeholder such as ``{known!l}``, the conversion `l` joins up to ten names.

    `p` joins a field's path, `k` joins quoted keys, `c` counts names, `n` writes 2 as '2 rows have', `q` shell-quotes.
    """

    OWN: Mapping[str, Callable[[Any], str]] = {
        "l": lambda names: ", ".join(list(names)[:10]) + (", …" if len(names) > 10 else "") or "none",
        "p": lambda fields: " > ".join(map(repr, fields)),
        "k": lambda keys: ", ".join(map(repr, keys)),
        "c": lambda names: f"{len(names):,}",
        "n": rows_have,
        "q": quote,
    }

    def convert_field(self, value: Any, conversion: Any) -> Any:
        own = self.OWN.get(conversion)
        return super().convert_field(value, conversion) if own is None else own(value)


class WatermarkError(Exception):
    """Root of all errors that this package raises on purpose.

    `reason` is a key of `REASONS` if the error was made with one, and otherwise empty. The facts in the message, such
    as a job's name, are attributes.
    """

    reason = ""
    _start = ""

    def __init__(self, detail: str = "", *, reason: str = "", **facts: Any) -> None:
        vars(self).update(facts)
        if reason:
            self.reason = reason
            detail = _Sentences().format(REASONS[reason], detail=detail, **facts)
        super().__init__(self._start.format(**facts) + detail)

    @property
    def kind(self) -> str:
        """The name of the class with the reason, such as "NothingThereError[unknown_version]"."""
        return type(self).__name__ + (f"[{self.reason}]" if self.reason in REASONS else "")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Let type checkers accept attributes such as `job_id`: `__init__` sets one for each of `facts`."""


# --- it does not exist: start from the beginning, or check the name ---------------------------


class NothingThereError(WatermarkError, LookupError):
    """The job, run, version or context does not exist, or not yet."""

    def __str__(self) -> str:
        """Return the message itself, because a KeyError would quote it."""
        return Exception.__str__(self)


class UnknownJobError(NothingThereError, IndexError, KeyError):
    """The table holds nothing under this job name.

    Scripts for the original class catch IndexError when they look up the latest run, KeyError when they name one.
    """

    def __init__(self, job_id: str, table_name: str) -> None:
        self.job_id, self.table_name = job_id, table_name
        super().__init__(
            f"Table {table_name!r} holds nothing for job {job_id!r}. Check the name; "
            "a job appears there with its first run."
        )


class NoWatermarkError(NothingThereError, IndexError):
    """The job exists, but no run has committed, as in a first run. Scripts for the original class catch IndexError."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"Job {job_id!r} has not committed a watermark yet. On a first run read everything, then commit."
        )


class UnknownRunError(NothingThereError, KeyError):
    """The job exists, but the run never committed, or has expired. Scripts for the original class catch a KeyError."""

    def __init__(self, job_id: str, run_id: str) -> None:
        self.job_id, self.run_id = job_id, run_id
        super().__init__(
            f"Run {run_id!r} of job {job_id!r} has no watermark: it never committed, or its item expired. "
            "history(job_id) lists the runs that have one."
        )


class UnknownWatermarkError(NothingThereError, KeyError):
    """The run has stored no value under this name."""

    def __init__(self, job_id: str, name: str, known: Sequence[str]) -> None:
        self.job_id, self.name, self.known = job_id, name, tuple(known)
        super().__init__(
            f"Job {job_id!r} has stored no {name!r}. It has stored: {', '.join(known) or 'nothing'}. Read a name that "
            "create_watermark_item(job_id=..., run_id=..., NAME=value) was given."
        )


# --- another run owns the job: try again later --------------------------------------------------


class RunInProgressError(WatermarkError):
    """Another run holds the job's lease."""

    def __init__(self, job_id: str, owner: str, lease_until: datetime) -> None:
        self.job_id, self.owner, self.lease_until = job_id, owner, lease_until
        super().__init__(
            f"Run {owner!r} works on job {job_id!r}; its lease ends at {lease_until.isoformat()}. "
            "Start again after that, or under the same run id if this is a retry of that run. If it is dead: "
            f"watermarks release {quote(job_id)} --why TEXT."
        )


# --- refused because stale: stop, and let the scheduler start a new run ---------------------------


class StaleError(WatermarkError):
    """The caller's view of the job is out of date; nothing was changed."""


class FencedError(StaleError):
    """Another run or an operator took the job from this run, which can no longer change anything."""

    def __init__(self, job_id: str, run_id: str, fence: int, current_fence: int) -> None:
        self.job_id, self.run_id, self.fence, self.current_fence = job_id, run_id, fence, current_fence
        super().__init__(
            f"Run {run_id!r} of job {job_id!r} has fence {fence}, the job is at {current_fence}: "
            "another run took over, or somebody released the job. Stop this run; the next one finishes the same plan."
        )


class PlanConflictError(StaleError):
    """The call is not allowed with the open plan or in the state of the run; nothing was changed."""

    _start = "Job {job_id!r}: "

    def __init__(self, job_id: str, detail: str = "", **facts: Any) -> None:
        super().__init__(detail, job_id=job_id, **facts)


# --- outcome unknown: delete nothing, run again ---------------------------------------------------


class CommitUnknownError(WatermarkError):
    """The store did not confirm whether the commit took effect."""

    def __init__(self, job_id: str, run_id: str) -> None:
        self.job_id, self.run_id = job_id, run_id
        super().__init__(
            f"The store did not say whether run {run_id!r} of job {job_id!r} was committed. "
            "Delete no output. Run the job again: it finds out, and replays the plan if necessary."
        )


# --- bad value: correct the input -------------------------------------------------------------------


class InvalidValueError(WatermarkError, ValueError):
    """A value or an option is invalid; nothing was changed."""


class InvalidIdError(InvalidValueError):
    """A job name, run id or context name breaks the rules for names."""


class TooLargeError(InvalidValueError):
    """A value or an item exceeds its size limit."""

    def __init__(self, what: str, size: int, limit: int, remedy: str) -> None:
        self.what, self.size, self.limit = what, size, limit
        super().__init__(f"{what}: {size:,} bytes, and the limit is {limit:,}. {remedy}")


class CursorError(InvalidValueError):
    """A cursor column is missing, has a wrong or changed type, or holds NULLs."""

    def __init__(self, column: str, detail: str) -> None:
        self.column = column
        super().__init__(f"Cursor column {column!r}: {detail}")


class BoundsError(InvalidValueError):
    """The bounds of a backfill are invalid, or the rows between them must not be read."""

    def __init__(self, context: str, detail: str) -> None:
        self.context = context
        super().__init__(f"Bounds of {context!r}: {detail}")


class KeyColumnError(InvalidValueError):
    """No key is given, or a key column is missing, has a wrong type, or holds values without an order, such as NULL."""

    _start = "Key column {column!r}: "

    def __init__(self, column: str, detail: str = "", **facts: Any) -> None:
        super().__init__(detail, column=column, **facts)


# --- bad configuration: fix the set-up ---------------------------------------------------------------


class ConfigurationError(WatermarkError):
    """The set-up is wrong: table, credentials, permissions, versions, a source or a target."""


class UnsupportedVersionError(ConfigurationError):
    """Python or Spark is older than the oldest version that this package runs on."""

    def __init__(self, what: str, found: str, oldest: str, remedy: str) -> None:
        self.what, self.found, self.oldest = what, found, oldest
        super().__init__(f"This is {what} {found}, and glue-watermarks needs {what} {oldest} or newer. {remedy}")


class NotOffGlueError(ConfigurationError, AttributeError):
    """The script uses a part of Glue's library that works only on Glue: this package has no substitute for it."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        super().__init__(f"{what} is Glue's own and not here. {remedy}")


class JobMovedError(ConfigurationError):
    """The job was moved to another table, or is still being copied from one. It cannot run or change here."""

    def __init__(self, job_id: str, table_name: str, moved_to: str) -> None:
        self.job_id, self.table_name, self.moved_to = job_id, table_name, moved_to
        super().__init__(
            f"Job {job_id!r} is not in table {table_name!r}: it is in {moved_to}. Give its script that table. If "
            "`watermarks copy` was interrupted between the two, run it again in the same direction."
        )


class TableNotFoundError(ConfigurationError):
    """The DynamoDB table does not exist in this account and region, or the table's file does not exist."""

    def __init__(self, table_name: str, region: str | None, file: str | None = None) -> None:
        self.table_name, self.region, self.file = table_name, region, file
        where, command = f"DynamoDB table {table_name!r} in region {region!r}", "`terraform apply` in terraform/"
        if file is not None:
            where = f"table {table_name!r}: no file {file!r}"
            command = f"`watermarks create-table --table {quote(table_name)}`"
        super().__init__(
            f"There is no {where}. Make it with {command}, or for local use with Watermarks(...).create_table()."
        )


class TableSchemaError(ConfigurationError):
    """The table has other keys than this package needs, or its file is not a table of this package."""

    def __init__(self, table_name: str, detail: str = "") -> None:
        self.table_name = table_name
        keys = (
            "has another key schema. It needs hash key 'jobName' (S) and range key 'runId' (S): see terraform/main.tf"
        )
        super().__init__(f"Table {table_name!r} {detail or keys}.")


class CredentialsError(ConfigurationError):
    """AWS credentials or a region are missing, or AWS does not accept them."""


class AccessRefusedError(ConfigurationError):
    """AWS accepts the credentials but refuses an action (``s3:GetObject``), or the file system does (``write``)."""

    def __init__(self, action: str, resource: str) -> None:
        self.action, self.resource = action, resource
        # Only actions of AWS contain a colon, as in ``s3:GetObject``. Actions of the file system are single words.
        super().__init__(
            f"AWS refuses {action} on {resource!r}. Allow it in the role's policy."
            if ":" in action
            else f"The file system refuses to {action} {resource!r}. Check the rights of the user that runs the job, "
            "and whether the disk is full or read-only."
        )


class AmbiguousHistoryError(ConfigurationError):
    """The job has several items of the class that this package replaces, and their order is unknown."""

    def __init__(self, job_id: str, run_ids: Sequence[str]) -> None:
        self.job_id, self.run_ids = job_id, tuple(run_ids)
        shown = ", ".join(run_ids[:10]) + (", …" if len(run_ids) > 10 else "")
        super().__init__(
            f"Job {job_id!r} has {len(run_ids)} items of the original class, and random run ids have no order: "
            f"{shown}. Find the last successful run (Glue's get_job_runs shows start times), "
            "then call adopt(job_id, run_id=...)."
        )


class NewerFormatError(ConfigurationError):
    """The item was written by a newer version of this package."""

    def __init__(self, job_id: str, found: int, known: int) -> None:
        self.job_id, self.found, self.known = job_id, found, known
        super().__init__(
            f"Job {job_id!r} is stored in format {found}; this version knows up to {known} and will not write. "
            "Upgrade glue-watermarks."
        )


class CorruptItemError(ConfigurationError):
    """An item of the table is damaged: it was altered by hand or by another program."""

    def __init__(self, job_id: str, range_key: str, detail: str) -> None:
        self.job_id, self.range_key, self.detail = job_id, range_key, detail
        remedy = "Restore it from a backup."
        if range_key == "~latest":
            remedy = (
                "`watermarks reset` and `rewind` repair a state, and `discard-plan` an open plan. If these end with "
                "this error, restore the item from a backup, or make it from the log: "
                f"`watermarks doctor {quote(job_id)} --from-log --why TEXT`."
            )
        super().__init__(f"Item {range_key!r} of job {job_id!r} is not readable: {detail}. {remedy}")


class SourceError(ConfigurationError):
    """A source cannot be listed or read."""

    _start = "Source {source!r}: "

    def __init__(self, source: str, detail: str = "", **facts: Any) -> None:
        super().__init__(detail, source=source, **facts)


class TargetError(ConfigurationError):
    """A target cannot be written to, or does not allow this way of writing."""

    _start = "Target {target!r}: "

    def __init__(self, target: str, detail: str = "", **facts: Any) -> None:
        super().__init__(detail, target=target, **facts)


class TargetAheadError(TargetError):
    """A target has recorded batches of a job that are not in the table of watermarks, such as after a restore.

    Attributes
    ----------
    ahead
        The first and the last version that the table lacks, by epoch: a new epoch starts after each restore.
    by_script
        Whether only the job's own script can connect to the target, so that the remedy is a call in Python.
    """

    def __init__(self, job_id: str, target: str, ahead: Mapping[str, tuple[int, int]], *, by_script: bool) -> None:
        self.job_id, self.ahead, self.by_script = job_id, dict(ahead), by_script
        found = [_versions_text(*versions) for versions in self.ahead.values()]
        if by_script:
            take, keep = (f"after_restore(…, sinks=[…], retract={retract}, why=…)" for retract in (True, False))
        else:
            command = f"watermarks doctor {quote(job_id)} --after-restore --target {quote(target)} --why TEXT"
            take, keep = f"{command} --retract", f"{command} --keep"
        super().__init__(
            target,
            f"it has recorded {' and '.join(found)} of job {job_id!r}, and the table of watermarks does not know them: "
            "that table was restored from a backup, was lost, or is another one than before. Nothing was written: the "
            "rows would come a second time. If the table is another one, name the right one. Otherwise take these "
            f"batches back, and their rows are read again: {take}. Or keep them: {keep}. Their rows are read again as "
            "well, so that is right only if the target merges by key, or if you have deleted the rows by hand.",
        )


class RowsMissingError(TargetError):
    """A target lacks rows that a restored table of watermarks counts as loaded.

    Attributes
    ----------
    versions
        The first and the last version whose rows are missing.
    present
        The version of the job in the restored table.
    back_to
        The last version whose rows, and all earlier rows, are at the target; 0 for none.
    """

    def __init__(self, job_id: str, target: str, versions: tuple[int, int], *, present: int, back_to: int) -> None:
        self.job_id, self.versions, self.present, self.back_to = job_id, versions, present, back_to
        super().__init__(
            target,
            f"it has no rows of {_versions_text(*versions)} of job {job_id!r}, and the restored table of watermarks "
            "counts them as loaded. They were taken back after the backup, or deleted by hand, and the next run would "
            f"not read them again. Nothing was changed. To read them again, repeat this with --back-to {back_to} "
            f"(in Python, back_to={back_to}). If the rows are there under other names, or are not to come again, "
            f"repeat it with --back-to {present}.",
        )


def how_to_read_text(column: str) -> str:
    """Return a hint for error messages: to get a CSV column of numbers as text, pass its type as `dtype`."""
    return f' Rows of read_pandas("csv") have the type that dtype={{"{column}": "string"}} names there.'


class TargetSchemaError(TargetError):
    """The rows' columns do not fit the target table."""

    def __init__(
        self, target: str, missing: Sequence[str], unknown: Sequence[str], changed: Mapping[str, tuple[str, str]],
        remedy: str = "Select and cast what the table has, or alter the table first.",
    ) -> None:  # fmt: skip
        self.missing, self.unknown, self.changed = tuple(missing), tuple(unknown), dict(changed)
        found = [f"the rows lack {_shown(missing)}"] if missing else []
        found += [f"the table lacks {_shown(unknown)}"] if unknown else []
        found += [f"{name!r} is {rows} in the rows and {table} in the table" for name, (rows, table) in changed.items()]
        self.found = "; ".join(found)
        as_text = next((name for name, kinds in self.changed.items() if "string" in kinds), None)
        if as_text is not None:
            mistaken = "If the table has numbers by mistake, write to another one"
            remedy += f"{how_to_read_text(as_text)} {mistaken}, or: watermarks reset JOB --retract --why …"
        super().__init__(target, f"the rows do not fit the table: {self.found}. {remedy} Nothing is written.")


class MissingConnectorError(ConfigurationError):
    """The package or jar for a format of files or tables is not installed."""

    def __init__(self, format: str, remedy: str) -> None:
        self.format = format
        super().__init__(f"The connector for format={format!r} is not installed. {remedy}")


class NoJvmError(ConfigurationError):
    """The call needs Spark's JVM in this process, but the session is one of Spark Connect, which has none."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what} needs a Spark session with a JVM, and this one is of Spark Connect. {remedy}")


def retracting(job_id: str, version: int) -> str:
    """Return the command that deletes the output of a version and of later versions from their targets."""
    decision = f"rewind {quote(job_id)} --to-version {version - 1}" if version > 1 else f"reset {quote(job_id)}"
    return f"watermarks {decision} --retract --why TEXT"


class UnpublishedError(WatermarkError):
    """A batch is committed, but readers of its target do not see all of it yet. Nothing is lost."""

    def __init__(self, job_id: str, version: int, target: str, remedy: str = "") -> None:
        self.job_id, self.version, self.target = job_id, version, target
        remedy = remedy or (
            "If its cause is over (a lock, a missing right, a full disk), the next run publishes it, and so does "
            f"watermarks doctor {quote(job_id)} --publish. If the target refuses the rows, change the target first, as "
            f"the cause says. If it can never take them: {retracting(job_id, version)}."
        )
        super().__init__(
            f"Job {job_id!r}: version {version} is committed, but not all of it is at {target!r} yet. {remedy}"
        )


class TargetUnavailableError(TargetError):
    """A target database is down, too busy or closed the connection, or another transaction holds a lock.

    The open transaction is rolled back. With the reason ``locked``, `is_deadlock` is True if both transactions waited
    for each other; the rollback has ended that. Otherwise the other transaction held its lock for longer than the
    database lets a transaction wait.
    """


class UnprovenError(TargetError):
    """A record of output, or its staged data, may not belong to the job: somebody altered it. Nothing is changed."""

    def __init__(self, target: str, version: int, detail: str) -> None:
        self.version, self.detail = version, detail
        super().__init__(
            target,
            f"what is recorded of version {version} is left as it is: {detail}. Somebody altered the job's item, or "
            "what it staged. Restore the item from a backup, and check who may write there.",
        )


def _again(version: int) -> str:
    """Return the remedy if only a part of a batch may be at its target: take that part back, and run the job again."""
    return f"Take back what did arrive, `{retracting('JOB', version)}`, and run the job again."


class StagedFilesLostError(TargetError):
    """The staged output of a committed batch is gone, and is not at the target either."""

    def __init__(self, target: str, version: int, names: Sequence[str], *, is_table: bool = False) -> None:
        self.version, self.names, self.is_table = version, list(names), is_table
        shown = ", ".join(self.names[:3]) + (" …" if len(self.names) > 3 else "")
        gone = f"{len(self.names)} staged files of version {version} are gone ({shown}). Something else deleted them,"
        text = f"{gone} such as a lifecycle rule."
        if is_table:
            gone = f"staging table {shown!r} of version {version} is gone, and the batch is not in the target."
            text = f"{gone} Something else dropped it."
        super().__init__(target, f"{text} {_again(version)}")


class SourceLostError(SourceError):
    """Rows after the watermark can no longer be read: the table was replaced or set back, or its history is gone.

    For a table that is read by its versions, `on_loss` decides whether a run raises this or reads the whole table.
    """


class SchemaChangedError(SourceError):
    """A source's columns differ from those of an earlier batch, which the call's `on_schema_change` does not allow.

    `columns` are the changed columns, and `policy` is that `on_schema_change`. Nothing is read or written.
    """

    def __init__(self, source: str, context: str | None, changes: Sequence[tuple[str, str]], policy: str) -> None:
        self.context, self.changes, self.policy = context, list(changes), policy
        self.columns = tuple(column for column, _ in changes)
        told = "; ".join(text for _, text in changes[:5])
        more = f"; and {len(changes) - 5:,} more" if len(changes) > 5 else ""
        refused = (
            "To take new columns, pass on_schema_change='add'; to leave them out, 'warn'. "
            if policy == "raise" else
            f"on_schema_change={policy!r} keeps types, so that no value is lost in a cast. "
        )  # fmt: skip
        super().__init__(
            source,
            f"its columns are not those that context {context!r} keeps: {told}{more}. Nothing was read. {refused}"
            "To continue with the columns as they are now, run once with on_schema_change='take': the next runs keep "
            "those.",
        )


class Advice(NamedTuple):
    """The remedies that error messages end with, one for each problem. The defaults name options of `FileDelta.read`.

    `keep` and `retype` are for values of a wrong type, `csv` and `json` for records that cannot be parsed, `decode` for
    a wrong encoding, `rename` for columns whose names differ only by case, `part` for files with different columns.
    """

    keep: str = (
        "Spark would make it NULL. To keep it as JSON read with rescue=True, to have NULL with mode='PERMISSIVE'."
    )
    retype: str = "If the type is wrong, pass schema=, or run once with on_schema_change='take'."
    csv: str = "If a backslash escapes quotes, pass escape='\\\\'; if values have line ends, multiLine=True."
    json: str = "If a record has line ends, pass multiLine=True."
    decode: str = "Pass encoding=, such as 'ISO-8859-1'."
    rename: str = "Rename one, or spell it in schema= as the files do. To keep the others, read with rescue=True."
    part: str = "Read them apart: delta.split."


ADVICE_OF_READ = Advice()
ADVICE = ContextVar("ADVICE", default=ADVICE_OF_READ)
"""The remedies that each MisfitError names: those for `read`, unless `advice_in_errors` has set others."""


@contextmanager
def advice_in_errors(advice: Advice) -> Iterator[None]:
    """Make errors raised inside the block name the remedies in `advice`, not the default ones for `FileDelta.read`."""
    token = ADVICE.set(advice)
    try:
        yield
    finally:
        ADVICE.reset(token)


class MisfitError(SourceError):
    """A value does not fit the type `type_name` of its column `column`, or a record cannot be read.

    For a record, `column` is None, `reason` is one of the constants of this class, and `type_name` is the format if the
    record cannot be parsed. `detail` is the text of the problem, with its place if known, and the remedy.
    """

    UNPARSED, ENCODING, CASE = "unparsed", "encoding", "case"

    def __init__(
        self, source: str, column: str | None, type_name: str, reason: str = UNPARSED, detail: str = ""
    ) -> None:
        advice = ADVICE.get()
        self.column, self.type_name = column, type_name
        self.reason = "" if column is not None else reason
        of_format = {"csv": advice.csv, "json": advice.json}.get(type_name, "")
        what, *told = {
            "": (f"column {column!r} has a value that is not of type {type_name}", advice.keep, advice.retype),
            self.UNPARSED: ("a record cannot be parsed", advice.keep, of_format),
            self.ENCODING: ("a text is not in the encoding of the read, UTF-8 by default", advice.decode),
            self.CASE: (f"names of columns differ only by case: {type_name}", advice.rename),
        }[self.reason]
        self.what = detail or what
        text = detail or " ".join([f"{what}.", *filter(None, told)])
        # Store the text if `advice_in_errors` set its remedies: Spark raises a copy of this error after that block.
        self.detail = detail if advice is ADVICE_OF_READ else text
        super().__init__(source, text)


class ChangedObjectError(SourceError):
    """Objects in the plan were overwritten or deleted after they were planned."""

    def __init__(self, source: str, overwritten: Sequence[str], deleted: Sequence[str]) -> None:
        self.overwritten, self.deleted = tuple(overwritten), tuple(deleted)
        found = [f"{how}: {_shown(keys)}" for how, keys in (("overwritten", overwritten), ("deleted", deleted)) if keys]
        super().__init__(
            source,
            f"objects changed since they were planned ({'; '.join(found)}). Discard the plan, and the next run makes a "
            "new one: watermarks discard-plan JOB --why TEXT. Or leave them to the next batch with on_changed='skip'.",
        )


class UnreadableObjectError(SourceError):
    """S3 or the file system refuses to return an object."""

    def __init__(self, source: str, key: str, cause: str, remedy: str) -> None:
        self.key, self.cause, self.remedy = key, cause, remedy
        super().__init__(source, f"key {key!r} cannot be read ({cause}). {remedy}")


class FileContentError(SourceError):
    """A file cannot be read because of its content."""

    def __init__(self, source: str, key: str, format: str, cause: str) -> None:
        self.key, self.format, self.cause = key, format, cause
        super().__init__(
            source,
            f"key {key!r} cannot be read as {format}: {cause}. Upload it again, or check the options of the read.",
        )


class UnreadableFilesError(SourceError):
    """Files of an open plan cannot be read. They are now set aside: removed from the plan, and listed in the state.

    `reasons` maps the key of each such file to the reason. The next run takes the other files of the batch.
    """

    def __init__(self, source: str, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        first = next(iter(self.reasons), "")
        super().__init__(
            source,
            f"set aside {_files(len(reasons))} that could not be read: {_shown(sorted(reasons))} "
            f"({self.reasons.get(first)}). Run the job again: it takes the rest of the batch. "
            "`watermarks files JOB --set-aside` lists them.",
        )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _versions_text(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"


def _shown(keys: Sequence[str]) -> str:
    return ", ".join(repr(key) for key in keys[:10]) + (f", … {len(keys):,} in all" if len(keys) > 10 else "")


class ArchivedObjectError(SourceError):
    """New objects are archived, so they cannot be read."""

    def __init__(self, source: str, keys: Sequence[str], count: int) -> None:
        self.keys, self.count = list(keys), count
        super().__init__(
            source,
            f"{count:,} new objects are archived, such as {', '.join(map(repr, keys))}. Restore them and use "
            'on_archived="take", or use on_archived="skip". An archive tier of '
            "INTELLIGENT_TIERING shows only when it is read: restore such objects, or leave them out with exclude.",
        )


class SourceUnavailableError(SourceError):
    """A source database or bucket is down, too busy or closed the connection; nothing was changed."""

    def __init__(self, source: str, cause: str) -> None:
        self.cause = cause
        super().__init__(
            source, f"it is unreachable or closed the connection ({cause}). Run again later: nothing is lost."
        )


class LedgerError(SourceError):
    """A file of a ledger (the files that a bookmark has taken) is missing, was altered, or has a newer format."""


# --- store unavailable: try again later ----------------------------------------------------------------


class StoreUnavailableError(WatermarkError):
    """DynamoDB or the table's file could not be reached, or refused every try. Whether a change was made is unknown."""

    def __init__(self, table_name: str, action: str, cause: str, remedy: str = "Try again later.") -> None:
        self.table_name, self.action, self.cause = table_name, action, cause
        super().__init__(f"{action} on table {table_name!r} failed: {cause}. {remedy}")


class JobArgumentError(WatermarkError, RuntimeError):
    """Job arguments are reserved by Glue, or exclude each other. Also a RuntimeError, which awsglue raises for this."""


class MissingOptionsError(JobArgumentError, TypeError):
    """`getResolvedOptions` was called without the names of the options. Also a TypeError, which awsglue raises here."""

    def __init__(self) -> None:
        super().__init__(
            "getResolvedOptions needs the names of the job's arguments as well: getResolvedOptions(sys.argv, "
            "['JOB_NAME']). JOB_RUN_ID is in the result without being named."
        )
