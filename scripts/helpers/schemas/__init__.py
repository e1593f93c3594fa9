"""The columns of sources: what they were at each version, what changed since, and what a job does about it.

May not know: where rows or files come from, or how a state is stored. Pure, but for `arrow`, which needs a table of
pyarrow or pandas, and `spark`, which needs a DataFrame.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.schemas.kept import schemas_of as schemas_of
    from scripts.helpers.schemas.policy import OnSchemaChange as OnSchemaChange
    from scripts.helpers.schemas.policy import decide as decide

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "kept": ["schemas_of"],
        "policy": ["OnSchemaChange", "decide"],
    },
)
