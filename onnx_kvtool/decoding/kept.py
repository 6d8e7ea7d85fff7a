"""The inputs of a decoder, and its caches between steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import enumerated
from onnx_kvtool.decoding.bound import BoundSession, Buffer
from onnx_kvtool.runtime.sessions import Array, Arrays, accelerator
from onnx_kvtool.symbolic.dimensions import names_in
from onnx_kvtool.verification.inputs.cases import Case
from onnx_kvtool.verification.inputs.drawing import Counters
from onnx_kvtool.verification.inputs.interface import CachePair
from onnx_kvtool.verification.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.verification.inputs.symbols import Layout, sizes_for
from onnx_kvtool.verification.inputs.values import moderate

# The inputs of a step, beside the caches.


class Feeder:
    """Makes the inputs of steps; all sequences have the same number of tokens, without padding.

    Args:
        plan: The plan of the inputs of the model.
        batch: Number of sequences.
        capacity: Rows of fixed caches of symbolic size; None if there are none.
        dims: Sizes of other symbolic dimensions of inputs.
        given: Inputs by name that the caller gives, for every step; positions are those of the
            prompt.
        prompt: Tokens of the prompt, in all its parts; None for those of the step.

    Attributes:
        embeddings: Name of the input for hidden states of tokens; None if the model takes tokens,
            or if the name is unknown.

    Raises:
        UsageError: If the model has no input of a given name, or the decoder makes it itself.
    """

    def __init__(
        self,
        plan: InputPlan,
        batch: int,
        capacity: int | None,
        dims: Mapping[str, int],
        given: Mapping[str, npt.ArrayLike] | None = None,
        prompt: int | None = None,
    ) -> None:
        self._prompt = prompt
        self._plan = plan
        self._batch = batch
        kinds = plan.kinds
        rooms = [name for name, kind in kinds.items() if kind == "capacity"]
        self._dims = {**({} if capacity is None else dict.fromkeys(rooms, capacity)), **dims}
        self._given = {name: self._checked(name, value) for name, value in (given or {}).items()}
        self.embeddings = self._embeddings()

    def _checked(self, name: str, value: npt.ArrayLike) -> Array:
        """Return an input that the caller gives, in its element type."""
        spec = next((spec for spec in self._plan.inputs if spec.name == name), None)
        why = None
        if spec is None:
            why = "the model has no such input"
        elif spec.role in ("past_cache", "token_ids") or spec is self._plan.covering_mask:
            why = "the decoder gives its tokens, caches and mask itself"
        if spec is None or why is not None:
            specs = self._plan.with_role("free", "position_ids", "attention_mask")
            known = [one.name for one in specs if one is not self._plan.covering_mask]
            raise UsageError(
                f"`{name}` is no input that you can give: {why}",
                help=f"inputs that you can give: {enumerated(known) or 'none'}",
            )
        array = np.asarray(value)
        if len(spec.shape) != array.ndim:
            raise UsageError(f"`{name}` is of shape {array.shape}, expected {spec.shape}")
        return np.ascontiguousarray(array, spec.dtype.numpy())

    def _embeddings(self) -> str | None:
        specs = [
            spec
            for spec in self._plan.with_role("free")
            if len(spec.shape) == 3
            and spec.dtype.is_floating_point()
            and spec.name not in self._given
        ]
        named = [spec for spec in specs if "embed" in spec.name.lower()] or specs
        is_known = len(named) == 1 and not self._plan.with_role("token_ids")
        return named[0].name if is_known else None

    @property
    def drawn(self) -> list[str]:
        """Names of the inputs whose meaning is unknown, and that the caller does not give."""
        free = [spec.name for spec in self._plan.with_role("free")]
        return [name for name in free if name not in self._given and name != self.embeddings]

    def keep(self, given: Mapping[str, Array]) -> None:
        """Feed these at every step from now on."""
        self._given.update(given)

    def layout(self, before: int, length: int) -> Layout:
        """Return the shapes of all inputs of a step of `length` tokens after `before` others.

        Raises:
            CannotDraw: If a dimension has no size or a negative one.
        """
        case = Case("a step", self._batch, length, before, "zero", padding="none")
        sizes = sizes_for(self._plan, case, self._dims)
        others = [spec for spec in self._plan.inputs if spec.role in ("token_ids", "past_cache")]
        taken = {name for spec in others for dim in spec.shape for name in names_in(dim)}
        for spec in self._plan.inputs:
            if spec.name in self._given and spec.role != "position_ids":
                pairs = zip(spec.shape, self._given[spec.name].shape, strict=True)
                sizes.update({str(dim): size for dim, size in pairs if dim not in taken})
        return Layout(self._plan, sizes, length)

    def feeds(self, tokens: Array, before: int, count: int | None = None) -> Arrays:
        """Return the inputs of a step without its caches.

        Args:
            tokens: (B, S), the new tokens of each sequence; or (B, S, E), their hidden states.
            before: Number of tokens before the step.
            count: Number of tokens without their padding; None for all.

        Raises:
            UsageError: If the model has an input that kvtool cannot make.
        """
        batch, length = tokens.shape[:2]
        layout = self.layout(before, length)
        sizes = (size for shape in layout.shapes.values() for size in shape[:2])
        starts = np.full(max(sizes, default=batch), before)
        counters = Counters(self._plan, layout, starts, starts, starts + length, before)
        return {
            spec.name: self._value(spec, counters, tokens, count)
            for spec in self._plan.inputs
            if spec.role != "past_cache"
        }

    def _value(
        self, spec: InputSpec, counters: Counters, tokens: Array, count: int | None
    ) -> Array:
        shape = counters.layout.shapes[spec.name]
        if (given := self._given.get(spec.name)) is not None:
            if spec.role != "position_ids":
                return given
            expected = *shape[:-1], self._prompt or shape[-1]
            if given.shape != expected:
                raise UsageError(f"`{spec.name}` is of shape {given.shape}, expected {expected}")
            return _positions(given, shape, counters.before or 0)
        if spec.name == self.embeddings and tokens.ndim == 3:
            return np.ascontiguousarray(tokens, spec.dtype.numpy())
        values: npt.NDArray[np.generic] | None = counters.value(spec)
        if spec.role == "token_ids":
            if tokens.size != math.prod(shape):
                raise UsageError(
                    f"there are tokens of shape {tokens.shape}, and input `{spec.name}` takes"
                    f" {shape}"
                )
            values = tokens.reshape(shape)
        elif spec.role == "attention_mask":
            is_told = count is not None and self._plan.with_role("past_length", "write_indices")
            used = count if count is not None and is_told else tokens.shape[1]
            values = _mask(shape, int(counters.starts[0]), tokens.shape[1], used)
        elif values is None:
            if spec.name.lower().endswith("mask"):
                raise UsageError(
                    f"input `{spec.name}` is a mask of {spec.dtype.name}, and it is"
                    " unknown which elements hide a row",
                    help="bench a model whose mask has integers or booleans, or none",
                )
            number = self._plan.inputs.index(spec)
            return moderate(np.random.default_rng([0, number]), spec.dtype, shape)
        return np.ascontiguousarray(values, spec.dtype.numpy())


def _positions(prompt: Array, shape: tuple[int, ...], before: int) -> Array:
    """Return the positions of a step: those of the prompt, then those after its largest.

    Args:
        prompt: (..., B, S) or (S,): the positions of the prompt, of all parts.
        shape: (..., B, L) or (L,).
        before: Tokens before the step.
    """
    parts = tuple(axis for axis in range(prompt.ndim) if axis != prompt.ndim - 2)
    next_ones = prompt.max(axis=parts, keepdims=True) + 1
    places, length = before + np.arange(shape[-1]), prompt.shape[-1]
    known = prompt[..., np.minimum(places, length - 1)]
    new = np.where(places < length, known, next_ones + (places - length))
    return np.ascontiguousarray(np.broadcast_to(new, shape), prompt.dtype)


def _mask(shape: tuple[int, ...], before: int, length: int, used: int) -> npt.NDArray[np.int64]:
    """Return a mask with ones for the rows in use; with an axis of queries, up to each query.

    The last axis counts rows: those in use, or those of a fixed cache.

    Args:
        shape: The shape of the mask.
        before: Tokens before the step.
        length: New rows.
        used: New rows with tokens, if another input says where they go.
    """
    rows = np.arange(shape[-1]) if shape else np.zeros((), np.int64)
    seen = rows < before + used
    if len(shape) > 2 and shape[-2] == length:
        seen = rows <= before + np.arange(length)[:, None]
    return np.broadcast_to(seen, shape).astype(np.int64)


# The caches of a decoder between its steps: their buffers, and their room.


Form = Literal["growing", "fixed", "contrib", "none"]


class Hold:
    """A cache and its kind of buffer.

    Attributes:
        pair: Its past and its present.
        is_contrib: Whether an operator of onnxruntime keeps it.
        is_counted: Whether GroupQueryAttention keeps it, which updates its past in place.
        is_shared: Whether past and present share a buffer.
        wraps: Whether rows beyond its end go to its start.
        keeps_rows: Whether it has a fixed number of rows, which are never moved.
    """

    def __init__(self, pair: CachePair, cache: Cache | None) -> None:
        if pair.axis is None and cache is not None:
            pair = replace(pair, axis=cache.axis, mode=cache.mode)
        self.pair = pair
        self.is_contrib = cache is not None and "::" in (cache.location.op or "")
        self.is_counted = pair.operator == "group_query_attention" and pair.axis is not None
        fits = pair.kind == "fixed" and cache is not None and cache.in_place.possible
        fits = fits and accelerator() is None  # which may read a past after it is written
        self.is_shared = fits or self.is_counted
        self.wraps = pair.kind == "fixed" and (pair.mode == "circular" or cache is None)
        self.keeps_rows = pair.kind == "fixed" and pair.axis is not None and pair.mode == "linear"


def in_place(holds: Sequence[Hold]) -> bool:
    """Return whether there are caches, and each of them is updated in place."""
    return bool(holds) and all(hold.is_shared for hold in holds)


class KeptCaches:
    """The buffers of all caches of one decoder.

    Args:
        session: The loaded decoder.
        holds: The caches.
    """

    def __init__(self, session: BoundSession, holds: Sequence[Hold]) -> None:
        self._session = session
        self._holds = holds
        self._rooms: dict[str, int] = {}
        self._buffers: dict[str, Buffer] = {}
        self._spare: dict[str, Buffer] = {}

    @property
    def form(self) -> Form:
        """The form of the caches; see `Decoder`."""
        if any(hold.is_contrib for hold in self._holds):
            return "contrib"
        if any(hold.pair.kind != "fixed" for hold in self._holds):
            return "growing"
        return "fixed" if self._holds else "none"

    @property
    def are_counted(self) -> bool:
        """Whether GroupQueryAttention keeps one, with as many rows as the caller wants."""
        return any(hold.is_counted for hold in self._holds)

    def empty(self, shapes: Mapping[str, tuple[int, ...]], room: int) -> None:
        """Make all buffers anew, with zeros; growing caches have no rows."""
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
        """Refuse new rows that do not fit behind those in use.

        Raises:
            UsageError: If a cache has fewer rows.
        """
        for past, room in self._rooms.items():
            if used + new > room:
                raise UsageError(
                    f"cache `{past}` has {room} rows, {used} of them in use, and there are"
                    f" {new} new ones",
                    help="use a shorter prompt or fewer steps",
                )

    @property
    def room(self) -> float:
        """Rows of the smallest cache with a fixed number of rows; infinity without one."""
        return min(self._rooms.values(), default=math.inf)

    @property
    def pasts(self) -> Mapping[str, Buffer]:
        """The buffers that the next step reads, by input."""
        return self._buffers

    @property
    def targets(self) -> dict[str, Buffer]:
        """The buffers that the next step writes, by output; other outputs get new ones."""
        into = {}
        for hold in self._holds:
            past = hold.pair.past
            target = self._buffers[past] if hold.is_shared else self._spare.get(past)
            if target is not None:
                into[hold.pair.present] = target
        return into

    def take(self, made: Mapping[str, Buffer]) -> None:
        """Make the presents of a step, by name, the pasts of the next."""
        for hold in self._holds:
            past = hold.pair.past
            if past in self._spare:
                self._spare[past] = self._buffers[past]
            self._buffers[past] = made[hold.pair.present]

    def lengthen(self, length: int) -> None:
        """Give growing caches `length` rows; new rows are zeros."""
        for hold in self._holds:
            if hold.pair.past in self._rooms or hold.wraps or hold.pair.axis is None:
                continue
            old = self._buffers[hold.pair.past].read()
            shape = list(old.shape)
            shape[hold.pair.axis] = length
            grown = self._session.zeros(hold.pair.past, tuple(shape))
            grown.write(tuple(map(slice, old.shape)), old)
            self._buffers[hold.pair.past] = grown
