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
class IdsState:
    """What the bookmark keeps of a context of ids.

    Attributes
    ----------
    next_id
        Where the ids of the next batch begin. A person may set it, and nothing else.
    version
        The version of the job whose commit wrote it.
    tables
        Names of the tables that there have been.
    """

    next_id: int
    version: int | None = None
    tables: tuple[str, ...] = ()

    @classmethod
    def read(cls, stored: Any, name: str) -> IdsState:
        """Read what `to_store` wrote; ImplausibleError for anything else."""
        fields = Fields(stored, name)
        return cls(
            fields.whole("next_id", most=MAX_ID), fields.whole("version", None), fields.names("tables", ())
        )  # fmt: skip

    def to_store(self) -> dict[str, Any]:
        """Return it as it is stored."""
        return {"kind": KIND, "next_id": self.next_id, "version": self.version, "tables": list(self.tables)}

    def above(self, version: int) -> int:
        """Return how far above those of its version the ids are.

        All of a `next_id` counts where no version of this job wrote it.
        """
        if self.version is None or self.version >= version:
            # Set by a person, or brought over from another job: no version of this job says how much was added.
            return self.next_id
        # A commit left `(version + 1) * STRIDE` at least. What is more was set, and is kept.
        return max(0, self.next_id - (self.version + 1) * STRIDE)


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
        before = _state_in(context, states.get(context))
        above = [IdsState.read(state, name).above(version) for name, state in states.items() if _kind(state) == KIND]
        # The highest of all contexts: blocks of one that a person has set forward would meet those of another.
        base = max([0, *above]) + version * STRIDE
        if slot >= 1 << SLOT_BITS:
            raise TooManyIdsError(
                context, f"a batch has them for {1 << SLOT_BITS} contexts at most. Make a job of its own of the others."
            )
        # The whole stride has to fit, as further contexts of the batch take their blocks of it.
        if base + STRIDE > MAX_ID:
            raise TooManyIdsError(context, "no block of them is left. Continue in a job with another name.")
        return cls(base + slot * BLOCK, context, base + STRIDE, version, before.tables)

    @classmethod
    def of_plan(cls, context: str, stored: Mapping[str, Any], state: Any) -> IdBlock:
        """Return the block that an inherited plan holds. SourceChangedError if it holds something else."""
        _check_kind(context, stored)
        return cls(planned_first(stored, context), context, known=_state_in(context, state).tables)

    @classmethod
    def unsaved(cls, token: str, slot: int = 0, context: str = "", state: Any = None) -> IdBlock:
        """Return a block below 0, for what is never committed: one of four million, chosen by the token.

        Raises SourceChangedError if the context remembers something else than ids.
        """
        known = _state_in(context, state).tables
        # From 1 on: with 0 the block would begin at 0 and above, among the ids that are committed.
        chosen = int.from_bytes(sha256(token.encode()).digest()[:8], "big") % (MAX_ID // STRIDE) + 1
        return cls((slot % (1 << SLOT_BITS)) * BLOCK - chosen * STRIDE, context, known=known)

    @property
    def plan(self) -> dict[str, Any]:
        """What the plan of a batch keeps."""
        return {"kind": KIND, "first_id": self.first}

    def state_after(self, tables: Sequence[str]) -> dict[str, Any] | None:
        """Return what the bookmark keeps: where the ids of the next batch begin, and which tables there were."""
        return None if self.next_id is None else IdsState(self.next_id, self.version, tuple(tables)).to_store()


def planned_first(stored: Any, name: str) -> int:
    """Return the first id of a block that `IdBlock.plan` wrote; ImplausibleError for anything else."""
    first: int = Fields(stored, name).whole("first_id", most=MAX_ID - BLOCK)
    return first


def _kind(state: Any) -> str:
    return str(state.get("kind")) if isinstance(state, Mapping) else type(state).__name__


def _check_kind(context: str, state: Any) -> None:
    if _kind(state) != KIND:
        raise SourceChangedError(context, _kind(state), KIND)


def _state_in(context: str, state: Any) -> IdsState:
    """Return the state of a context, or of one that has none; SourceChangedError if it remembers something else."""
    if state is None:
        return IdsState(0)
    _check_kind(context, state)
    return IdsState.read(state, context)
