"""Nested rows as related tables, whose ids go on over runs.

May not know: where the rows come from and where the tables go.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.relational.relations import Relations as Relations
    from scripts.helpers.relational.relations import untracked as untracked

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "relations": ["Relations", "untracked"],
    },
)
