"""One run from its plan to its commit, whatever its sources are, and in whichever mode.

May not know: Glue's names, and who started the run.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.batch.leftovers import examine_targets, publish_waiting
    from scripts.helpers.batch.modes import Mode
    from scripts.helpers.batch.witness import after_restore

__all__ = [
    "Mode",
    "after_restore",
    "examine_targets",
    "publish_waiting",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "leftovers": ["examine_targets", "publish_waiting"],
        "modes": ["Mode"],
        "witness": ["after_restore"],
    },
)
