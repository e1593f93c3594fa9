"""One parametrised job under many names in the table. Pure."""

from __future__ import annotations

from scripts.helpers.coverage import served_by
from scripts.helpers.errors import InvalidIdError
from scripts.helpers.ids import check_job_id

SEPARATOR = "@@"


def split_name(name: str) -> tuple[str, str | None]:
    """Return the job's own name and its namespace of its name in the table.

    >>> split_name("repairs@@north"), split_name("repairs")
    (('repairs', 'north'), ('repairs', None))
    """
    job_id, _, namespace = name.partition(SEPARATOR)
    return job_id, namespace or None


def name_in_table(job_id: str, namespace: str | None) -> str:
    """Return the name that a job has in the table: ``job@@namespace``, or its own without a namespace.

    No two pairs have the same name, so runs in different namespaces share nothing: not the lease, not
    the watermarks, not the history.

    Raises
    ------
    InvalidIdError
        A name could be read in two ways, or a namespace is not of the characters of job names.

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
