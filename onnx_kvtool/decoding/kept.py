"""The caches of a decoder between its steps: where each lies, and how much room it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.decoding.bound import BoundSession, Buffer
from onnx_kvtool.verification.inputs.interface import CachePair

__all__ = ["Form", "Hold", "KeptCaches"]


Form = Literal["growing", "fixed", "contrib", "none"]


class Hold:
    """A cache and how it is held.

    Attributes:
        pair: Its two ends.
        is_contrib: Whether an operator of onnxruntime keeps it.
        is_counted: Whether GroupQueryAttention keeps it, which writes into what it reads.
        is_shared: Whether past and present are one buffer.
        wraps: Whether rows past its end go to its begin.
    """

    def __init__(self, pair: CachePair, cache: Cache | None) -> None:
        self.pair = pair
        self.is_contrib = cache is not None and "::" in (cache.location.op or "")
        self.is_counted = pair.operator == "group_query_attention" and pair.axis is not None
        fits = pair.kind == "fixed" and cache is not None and cache.in_place.possible
        self.is_shared = fits or self.is_counted
        self.wraps = pair.kind == "fixed" and (pair.mode == "circular" or cache is None)


class KeptCaches:
    """Buffers of all caches of one decoder.

    Args:
        session: The decoder, which makes them.
        holds: How each is held.
    """

    def __init__(self, session: BoundSession, holds: Sequence[Hold]) -> None:
        self._session = session
        self._holds = holds
        self._rooms: dict[str, int] = {}
        self._buffers: dict[str, Buffer] = {}
        self._spare: dict[str, Buffer] = {}

    @property
    def form(self) -> Form:
        """How they are kept; see `Decoder`."""
        if any(hold.is_contrib for hold in self._holds):
            return "contrib"
        if any(hold.pair.kind != "fixed" for hold in self._holds):
            return "growing"
        return "fixed" if self._holds else "none"

    @property
    def in_place(self) -> bool:
        """Whether every cache is written where it lies; False without a cache."""
        return bool(self._holds) and all(hold.is_shared for hold in self._holds)

    @property
    def are_counted(self) -> bool:
        """Whether GroupQueryAttention keeps one, in as many rows as the caller gives it."""
        return any(hold.is_counted for hold in self._holds)

    def empty(self, shapes: Mapping[str, tuple[int, ...]], room: int) -> None:
        """Make all anew, of zeros, and without rows where they grow.

        Args:
            shapes: Of each past, by its name.
            room: Rows where the model fixes none.
        """
        self._rooms, self._buffers, self._spare = {}, {}, {}
        for hold in self._holds:
            shape, pair = list(shapes[hold.pair.past]), hold.pair
            if hold.is_counted and pair.axis is not None:
                shape[pair.axis] = room
            if pair.axis is not None and (hold.is_counted or pair.kind == "fixed"):
                if not hold.wraps:
                    self._rooms[pair.past] = shape[pair.axis]
            elif pair.axis is not None:
                shape[pair.axis] = 0
            self._buffers[pair.past] = self._session.zeros(pair.past, tuple(shape))
            if not hold.is_shared and pair.kind == "fixed":
                self._spare[pair.past] = self._session.zeros(pair.past, tuple(shape))

    def check_room(self, used: int, new: int) -> None:
        """Refuse new rows behind those in use where they find no room.

        Raises:
            UsageError: If a cache has fewer rows.
        """
        for past, room in self._rooms.items():
            if used + new > room:
                raise UsageError(
                    f"cache `{past}` has {room} rows, {used} of them in use, and there are"
                    f" {new} new ones",
                    help="take a shorter prompt or fewer steps",
                )

    @property
    def pasts(self) -> Mapping[str, Buffer]:
        """What the next step reads, by the names of inputs."""
        return self._buffers

    @property
    def targets(self) -> dict[str, Buffer]:
        """What it writes into, by the names of outputs; those that are left out make their own."""
        into = {}
        for hold in self._holds:
            if hold.is_shared:
                into[hold.pair.present] = self._buffers[hold.pair.past]
            elif hold.pair.past in self._spare:
                into[hold.pair.present] = self._spare[hold.pair.past]
        return into

    def take(self, made: Mapping[str, Buffer]) -> None:
        """Let the presents of a step, by their names, be the pasts of the next."""
        for hold in self._holds:
            past = hold.pair.past
            if past in self._spare:
                self._spare[past] = self._buffers[past]
            self._buffers[past] = made[hold.pair.present]

    def lengthen(self, length: int) -> None:
        """Let caches that grow have `length` rows; those that are new are zeros."""
        for hold in self._holds:
            if hold.pair.past in self._rooms or hold.wraps or hold.pair.axis is None:
                continue
            old = self._buffers[hold.pair.past].read()
            shape = list(old.shape)
            shape[hold.pair.axis] = length
            grown = self._session.zeros(hold.pair.past, tuple(shape))
            rows = [slice(None)] * old.ndim
            rows[hold.pair.axis] = slice(old.shape[hold.pair.axis])
            grown.write(tuple(rows), old)
            self._buffers[hold.pair.past] = grown
