"""One run from its plan to its commit, whatever its sources are, and in whichever mode.

May not know: Glue's names, and who started the run.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.batch.leftovers import examine_targets
    from scripts.helpers.batch.modes import Mode

__all__ = [
    "Mode",
    "examine_targets",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "leftovers": ["examine_targets"],
        "modes": ["Mode"],
    },
)
