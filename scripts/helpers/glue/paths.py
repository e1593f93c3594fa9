"""Turn Glue's ``paths`` into folders to list, without duplicates, and name the context of each folder's state."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import AccessRefusedError, InvalidValueError

if TYPE_CHECKING:
    from scripts.helpers.job import IncrementalJob

GLOB = "*?[{"
_SCHEME = re.compile(r"^(s3[an]?|file)://")
_TOKEN = re.compile(r"\[!?[^\]]+\]|\\.|.", re.DOTALL)
"""A part of a glob that stands for one character, a star, or a sign of alternatives; see `glob_to_regex`."""


def glue_option_error(option: str, detail: str) -> InvalidValueError:
    """Return the error for an option of Glue's readers or writers; `detail` follows its name: ``is missing``."""
    return InvalidValueError(f" {detail}", reason="option", option=option)


@dataclass(frozen=True)
class Folder:
    """A folder to list, and the globs that select files below it; an empty `include` selects all files."""

    base: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The folder's location in one spelling: ``s3://b/in/`` for both ``s3a://b/in/`` and ``s3://b/in/``."""
        scheme, separator, rest = self.base.partition("://")
        if not separator or scheme == "file":
            return os.path.abspath(rest or scheme).rstrip("/") + "/"
        return re.sub("^s3a?$", "s3", scheme) + "://" + rest

    @property
    def options(self) -> dict[str, Any]:
        """Return `include` and `exclude` as options of `FileOptions`; an empty one is left out."""
        named = {"include": list(self.include), "exclude": list(self.exclude)}
        return {name: globs for name, globs in named.items() if globs}

    def with_globs_of(self, other: Folder) -> Folder:
        """Return a folder with the files of this folder and of `other`, which must have the same location."""
        both = (*self.include, *other.include) if self.include and other.include else ()
        return replace(self, include=tuple(dict.fromkeys(both)))

    def covers(self, other: Folder) -> bool:
        """Return whether `other` is below this folder, and `include` here selects all files that `other` selects."""
        from scripts.helpers.files.rules import glob_to_regex

        if other.place == self.place or not other.place.startswith(self.place):
            return False
        below = other.place[len(self.place) :]
        wanted = {below + glob for glob in other.include or ("**",)}
        deep = (glob for glob in self.include if glob.endswith("**"))
        return (
            not self.include
            or wanted <= set(self.include)
            or any(re.fullmatch(glob_to_regex(glob), f"{below}x") for glob in deep)
        )


def folders(
    paths: Sequence[str],
    *,
    recurse: bool,
    exclusions: Sequence[str] = (),
    is_single_file: Callable[[str], bool] = lambda path: False,
) -> list[Folder]:
    """Return the folders of Glue's ``paths``, in their order.

    Paths in the same folder, such as several files, become one. A path is left out if another path
    includes all of its files, so no file is read twice.

    Parameters
    ----------
    is_single_file
        A function that returns whether a path without a dot in its last name is a file; see `is_single_file`.

    Raises
    ------
    InvalidValueError
        A path is a glob.
    """
    found: dict[str, Folder] = {}
    for path in paths:
        folder = _folder(path, recurse, exclusions, is_single_file)
        there = found.get(folder.place)
        found[folder.place] = folder if there is None else there.with_globs_of(folder)
    return [folder for folder in found.values() if not any(other.covers(folder) for other in found.values())]


def is_single_file(path: str) -> bool:
    """Look up whether a path is a file: Glue and Hadoop write files without a dot in the name: ``part-r-00000``.

    An empty object counts as the marker of a folder. Where S3 refuses to show the object, the path counts as a folder.
    """
    # Imported here, because listing needs pyarrow.
    from scripts.helpers.listing.listing import Lister, ListingOptions, Location

    head, _, last = path.rpartition("/")
    location = Location.parse(f"{head}/")
    if location.is_local:
        return os.path.isfile(location.prefix + last)
    try:
        return any(Lister(location, None, ListingOptions()).look_at_each([last]).column("size").to_pylist())
    except AccessRefusedError:
        return False


def _folder(path: str, recurse: bool, exclusions: Sequence[str], is_single_file: Callable[[str], bool]) -> Folder:
    """Return the folder to list for a path, and the globs below it.

    A path such as ``in/a.csv`` may be a file or a folder. So its parent ``in/`` is listed, with the globs ``a.csv``
    and ``a.csv/*``. The parent is also listed for a file without a dot. Without ``recurse`` Spark's rule applies:
    read the files in the folder itself, and those in folders called ``name=value``.
    """
    if set(path.partition("://")[2] or path) & set(GLOB):
        raise glue_option_error(
            "paths", f"has {path!r}, which is a glob. Give the folder, and leave out by exclusions."
        )
    base, name = path.rstrip("/") + "/", ""
    head, _, last = path.rpartition("/")
    if last and head and not head.endswith("/") and ("." in last or is_single_file(path)):
        base, name = head + "/", last
    below = ["**"] if recurse else ["*", "*=*/**"]
    include = [name, *(f"{name}/{glob}" for glob in below)] if name else below
    left_out = [glob for text in exclusions for glob in _relative(text, base)]
    return Folder(base, () if include == ["**"] else tuple(include), tuple(left_out))


def _relative(glob: str, base: str) -> list[str]:
    """Return [b/in/*.tmp, *.tmp] for b/in/*.tmp and base s3://b/in/: globs may start at the base or the bucket."""
    from scripts.helpers.files.rules import check_glob

    check_glob(glob)
    whole = _SCHEME.sub("", glob)
    found = {whole: None}
    for character in _SCHEME.sub("", base):
        found = {rest: None for one in found for rest in _after(one, character)}
    return [*({glob: None} if whole == glob else {}) | found]


def _after(glob: str, character: str) -> Iterator[str]:
    """Yield each glob that can remain once a glob has matched one character: ``in/*`` and ``i`` -> ``n/*``."""
    from scripts.helpers.files.rules import glob_to_regex

    if glob.startswith("*"):
        star = "**" if glob.startswith("**") else "*"
        if re.fullmatch(glob_to_regex(star), character):
            yield glob
        yield from _after(glob[len(star) :], character)
    elif glob.startswith("{"):
        for one in _alternatives(glob):
            yield from _after(one, character)
    elif glob:
        (token, *_) = _TOKEN.findall(glob)
        if re.fullmatch(glob_to_regex(token), character):
            yield glob[len(token) :]


def _alternatives(glob: str) -> Iterator[str]:
    """Yield one glob for each alternative in the braces at the start of a glob: ``{a,b}/*`` -> ``a/*``, ``b/*``."""
    depth, ends = 0, [0]
    for token in _TOKEN.finditer(glob):
        depth += (token[0] == "{") - (token[0] == "}")
        if (token[0] == "," and depth == 1) or not depth:
            ends.append(token.start())
        if not depth:
            rest = glob[token.end() :]
            for one in (glob[start + 1 : end] for start, end in pairwise(ends)):
                # Put empty braces between two stars that would meet here: `**` means more than `*` twice.
                yield one + ("{}" if one.endswith("*") and rest.startswith("*") else "") + rest
            return


# --- contexts ----------------------------------------------------------------------------------------


def folder_contexts(job: IncrementalJob | None, context: str, folders: Sequence[str]) -> list[str | None]:
    """Return the name under which each folder's state is stored; None if the source is not tracked.

    The folder that was read first keeps the context's own name, wherever it is in the list, and even if it
    is removed from the list. Each other folder gets the name with a hash appended.
    """
    if job is None or not context:
        return [None] * len(folders)
    from scripts.helpers.listing.listing import Location

    places = [Location.parse(folder).name for folder in folders]
    hashed = [f"{context}#{sha256(place.encode()).hexdigest()[:8]}" for place in places]
    owner = _source(job, context)
    if owner in places:
        return [context if place == owner else name for place, name in zip(places, hashed, strict=True)]
    known = [_source(job, name) is not None for name in hashed]
    if all(known) or (owner is not None and any(known)):
        return list(hashed)
    first = known.index(False)
    return [context if index == first else name for index, name in enumerate(hashed)]


def _source(job: IncrementalJob, context: str) -> str | None:
    """Return a context's source folder: in the open plan, else its current state, else that at ``job_bookmark_to``."""
    run = job.run
    until = getattr(run, "until", None)
    for known in (run.planned(context), run.state(context), until(context) if until is not None else None):
        if isinstance(known, Mapping) and known.get("kind") != "nothing":
            return str(known.get("source", known.get("kind")))
    return None
