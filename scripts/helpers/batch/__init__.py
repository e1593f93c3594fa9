"""One run from its plan to its commit, for any kind of source and in any mode.

Must not depend on Glue's names or who started the run.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.batch.modes import Mode as Mode
    from scripts.helpers.batch.publishing import after_restore as after_restore

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "modes": ["Mode"],
        "publishing": ["after_restore"],
    },
)
