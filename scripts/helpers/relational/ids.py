"""Where the ids of a batch begin: blocks that never meet, over runs, contexts, rewinds and resets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from scripts.helpers.errors import SourceChangedError, TooManyIdsError
from scripts.helpers.protocol.fields import MAX_NUMBER, Fields

KIND = "ids"
SLOT_BITS, BUCKET_BITS, RANK_BITS = 4, 12, 25
"""An id is the version of its batch, the place of its context in the batch, a bucket of rows, and a count therein."""
BLOCK = 1 << (BUCKET_BITS + RANK_BITS)
STRIDE = BLOCK << SLOT_BITS
"""From one version to the next."""
MAX_ID = MAX_NUMBER
"""The largest number of a BIGINT."""


@dataclass(frozen=True)
class IdBlock:
    """The ids from `first` up to `first` + `BLOCK`, for the tables of one context in one batch.

    Attributes
    ----------
    first
        Fixed before a row is read. Above 0 for what is committed, below for what is not.
    context
        For messages.
    next_id, version
        What the bookmark keeps; None where nothing is kept.
    known
        Names of the tables of earlier batches.
    """

    first: int
    context: str
    next_id: int | None = None
    version: int | None = None
    known: tuple[str, ...] = ()

    @classmethod
    def of_batch(cls, context: str, version: int, slot: int, states: Mapping[str, Any]) -> IdBlock:
        """Return the block of a batch that will be committed.

        Only the version of a job never goes back, so it is what the blocks are counted by. What the
        bookmark remembers is how far above that a person has set them.

        Parameters
        ----------
        version
            That the commit makes.
        slot
            How many contexts of the batch have a block already.
        states
            What is committed, by context; None is nothing. All those of ids count, so that contexts stay apart.

        Raises
        ------
        SourceChangedError
            The context remembers something else than ids.
        TooManyIdsError
            The batch has 16 contexts with ids already; or no block is left, after four million versions.
        """
        _check_kind(context, states.get(context))
        above = [_above(state, version) for state in states.values() if _kind(state) == KIND]
        # The highest of all contexts: blocks of one that a person has set forward would meet those of another.
        base = max([0, *above]) + version * STRIDE
        if slot >= 1 << SLOT_BITS:
            raise TooManyIdsError(
                context, f"a batch has them for {1 << SLOT_BITS} contexts at most. Make a job of its own of the others."
            )
        # The whole stride has to fit, as further contexts of the batch take their blocks of it.
        if base + STRIDE > MAX_ID:
            raise TooManyIdsError(context, "no block of them is left. Continue in a job with another name.")
        return cls(base + slot * BLOCK, context, base + STRIDE, version, known_tables(states.get(context)))

    @classmethod
    def of_plan(cls, context: str, stored: Mapping[str, Any], state: Any) -> IdBlock:
        """Return the block that an inherited plan holds. SourceChangedError if it holds something else."""
        _check_kind(context, stored)
        return cls(stored["first_id"], context, known=known_tables(state))

    @classmethod
    def unsaved(cls, token: str, slot: int = 0, context: str = "", state: Any = None) -> IdBlock:
        """Return a block below 0, for what is never committed: one of four million, chosen by the token.

        Raises SourceChangedError if the context remembers something else than ids.
        """
        _check_kind(context, state)
        # From 1 on: with 0 the block would begin at 0 and above, among the ids that are committed.
        chosen = int.from_bytes(sha256(token.encode()).digest()[:8], "big") % (MAX_ID // STRIDE) + 1
        return cls((slot % (1 << SLOT_BITS)) * BLOCK - chosen * STRIDE, context, known=known_tables(state))

    @property
    def plan(self) -> dict[str, Any]:
        """What the plan of a batch keeps."""
        return {"kind": KIND, "first_id": self.first}

    def state_after(self, tables: Sequence[str]) -> dict[str, Any] | None:
        """Return what the bookmark keeps: where the ids of the next batch begin, and which tables there were."""
        if self.next_id is None:
            return None
        return {"kind": KIND, "next_id": self.next_id, "version": self.version, "tables": list(tables)}


def known_tables(state: Any) -> tuple[str, ...]:
    """Return the names of the tables that a state remembers; none where it has no list of them."""
    return tuple(state.get("tables") or ()) if isinstance(state, Mapping) else ()


def check_ids_state(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a state that is not one of `IdBlock.state_after`; a person may set `next_id` alone."""
    fields = Fields(stored, name)
    fields.whole("next_id", most=MAX_ID)
    fields.whole("version", None)
    fields.names("tables", ())


def check_ids_plan(stored: Mapping[str, Any], name: str) -> None:
    """Raise ImplausibleError for a plan that is not one of `IdBlock.plan`."""
    Fields(stored, name).whole("first_id", most=MAX_ID - BLOCK)


def _kind(state: Any) -> str:
    return str(state.get("kind")) if isinstance(state, Mapping) else type(state).__name__


def _check_kind(context: str, state: Any) -> None:
    if state is not None and _kind(state) != KIND:
        raise SourceChangedError(context, _kind(state), KIND)


def _above(state: Mapping[str, Any], version: int) -> int:
    """Return how far above those of its version the ids of a context are.

    All of a `next_id` counts where no version of this job wrote it.
    """
    next_id: int = state["next_id"]
    written = state.get("version")
    if written is None or written >= version:
        # Set by a person, or brought over from another job: no version of this job says how much was added.
        return next_id
    # A commit of version `written` left `(written + 1) * STRIDE` at least. What is more was set, and is kept.
    above: int = next_id - (written + 1) * STRIDE
    return max(0, above)
