"""What a person may do about a job: rewind, reset, set, discard, adopt, examine, and move it to another table.

May not know: sources and sinks. A decision is one conditional write on the head, kept in the history with who
and why.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.decisions.copying import copy_job as copy_job
    from scripts.helpers.decisions.doctor import Finding as Finding

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "copying": ["copy_job"],
        "doctor": ["Finding"],
    },
)
