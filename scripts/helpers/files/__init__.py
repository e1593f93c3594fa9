"""Find the new objects of a listing, and record the objects that batches have taken in the state of a bookmark.

Must not depend on the head of a job. The state is passed in and returned as a map, in which large parts are blobs.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.files.bookmark import FileBookmark as FileBookmark
    from scripts.helpers.files.delta import FileDelta as FileDelta
    from scripts.helpers.files.explanation import Explanation as Explanation
    from scripts.helpers.files.partition_delta import Partition as Partition
    from scripts.helpers.files.partition_delta import PartitionDelta as PartitionDelta
    from scripts.helpers.files.rules import FileOptions as FileOptions
    from scripts.helpers.files.set_aside import RETRY as RETRY
    from scripts.helpers.files.set_aside import SKIP as SKIP
    from scripts.helpers.files.spark import SparkFileDelta as SparkFileDelta
    from scripts.helpers.files.states import FilesState as FilesState

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "bookmark": ["FileBookmark"],
        "delta": ["FileDelta"],
        "explanation": ["Explanation"],
        "partition_delta": ["Partition", "PartitionDelta"],
        "rules": ["FileOptions"],
        "set_aside": ["RETRY", "SKIP"],
        "spark": ["SparkFileDelta"],
        "states": ["FilesState"],
    },
)
