"""`FileBookmark` finds out which objects of a listing are new."""

from scripts.helpers.files.bookmark import FileBookmark

__all__ = ["FileBookmark"]
