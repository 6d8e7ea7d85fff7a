"""What a host feeds to a model with growing caches and to its fixed form, and what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.inputs.padding import covering_mask, dead_rows, tokens_of
from onnx_kvtool.runtime.inputs.plan import InputPlan
from onnx_kvtool.runtime.inputs.stepping import rows_of
from onnx_kvtool.runtime.inputs.symbols import kinds_of
from onnx_kvtool.runtime.inputs.values import moderate
from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.runtime.verification.growing.pair import GrowingPair
from onnx_kvtool.runtime.verification.growing.rows import FixedCache

__all__ = ["FixedHost", "GrowingHost", "PaddingHost", "query_axes"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GrowingHost:
    """The host of the model whose caches grow: it reads no rows of padding.

    Attributes:
        pair: The models.
        axes: By output, its axes of sequences and of new rows, where the model names them.
    """

    pair: GrowingPair
    axes: Mapping[str, tuple[int, int]]

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the inputs of the model."""
        return {name: value for name, value in inputs.items() if name != self.pair.counter.name}

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs with zeros for all rows that hold no token.

        A right model may compute anything there, and hands the rows of caches on to nobody but
        attention, which a mask keeps from looking at them.
        """
        return _live(self.pair.plan, self.axes, inputs, outputs)


@dataclass(frozen=True, slots=True)
class PaddingHost:
    """The host of a model that is told what is padding, and keeps its caches as it is.

    Attributes:
        plan: What its inputs mean.
        axes: By output, its axes of sequences and of new rows, where the model names them.
    """

    plan: InputPlan
    axes: Mapping[str, tuple[int, int]]

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the inputs as they are."""
        return dict(inputs)

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs with zeros for all rows that hold no token."""
        return _live(self.plan, self.axes, inputs, outputs)


def _live(
    plan: InputPlan,
    axes: Mapping[str, tuple[int, int]],
    inputs: Mapping[str, Array],
    outputs: Arrays,
) -> Arrays:
    """Return outputs with zeros for all rows that hold no token."""
    _, length = rows_of(plan, inputs)
    tokens = tokens_of(plan, inputs, length)
    if tokens is None:
        return outputs
    dead = dead_rows(plan, inputs, length)
    caches = {pair.present: pair.axis for pair in plan.pairs}
    live = dict(outputs)
    for name, value in outputs.items():
        if name in caches:
            live[name] = _without(value, _empty(plan, tokens, value, caches[name]), 0, caches[name])
        elif dead is not None:
            live[name] = _without(value, dead[0], *axes.get(name, (0, 1)))
    return live


def _empty(plan: InputPlan, tokens: Mask, cache: Array, axis: int | None) -> Mask:
    """Return which rows of a cache hold no token.

    A cache with fewer rows than there are holds the last ones. Of one with more rows the others
    are not in use where tokens are counted: GroupQueryAttention hands out zeros.
    """
    rows, total = 0 if axis is None else cache.shape[axis], tokens.shape[-1]
    if rows < total:
        return ~tokens[:, total - rows :] if rows else ~tokens
    rest = np.full((len(tokens), rows - total), plan.is_counted)
    return np.concatenate([~tokens, rest], axis=-1)


def _without(value: Array, dead: Mask, batch: int, axis: int | None) -> Array:
    """Return a value with zeros for dead rows; for all of it if these cannot be told."""
    if not dead.any():
        return value
    rank, sequences = value.ndim, dead.shape[0]
    if rank <= batch or value.shape[batch] != sequences:
        return np.zeros_like(value)
    if axis is None or rank <= axis or axis <= batch:
        gone = dead.any(axis=-1)
    elif value.shape[axis] == dead.shape[-1]:
        order = [1] * rank
        order[batch], order[axis] = dead.shape
        return np.where(dead.reshape(order), np.zeros((), value.dtype), value)
    elif value.shape[axis] == 1:  # of the last row only
        gone = dead[:, -1]
    else:
        gone = dead.any(axis=-1)
    order = [1] * rank
    order[batch] = sequences
    return np.where(gone.reshape(order), np.zeros((), value.dtype), value)


@dataclass(frozen=True, slots=True)
class FixedHost:
    """The host of the fixed form: it keeps caches in buffers of their capacity.

    Attributes:
        pair: The models.
        reader: Reads what was given back as the other model would have given it.
    """

    pair: GrowingPair
    reader: GrowingHost

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the inputs of the fixed form.

        Rows that are not in use are zeros as long as none is, and drawn numbers afterwards: nobody
        may read them.
        """
        before, _ = rows_of(self.pair.plan, inputs)
        fed = dict(inputs)
        for number, cache in enumerate(self.pair.caches):
            rows = inputs[cache.past]
            fed[cache.past] = cache.fixed(rows, before, self._rest(cache, rows, before, number))
        mask = covering_mask(self.pair.plan)
        if mask is not None and self.pair.mask_columns is not None:
            # Of a mask that is longer A reads no more where it keeps no more rows.
            old = inputs[mask.name][:, : self.pair.mask_columns]
            missing = max(self.pair.mask_columns - old.shape[-1], 0)
            fed[mask.name] = np.pad(old, [(0, 0), (0, missing)])
        if not self.pair.is_counter_fed:
            del fed[self.pair.counter.name]
        return fed

    def _rest(self, cache: FixedCache, rows: Array, before: int, number: int) -> Array:
        shape = list(rows.shape)
        shape[cache.axis] = cache.capacity
        if not before:
            return np.zeros(shape, rows.dtype)
        spec = next(s for s in self.pair.plan.inputs if s.name == cache.past)
        return moderate(np.random.default_rng([before, number]), spec.dtype, tuple(shape))

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs with caches of the rows that are in use, as the other model has them.

        A cache of another shape than it went in with stays as it is.
        """
        before, length = rows_of(self.pair.plan, inputs)
        read = dict(outputs)
        for cache in self.pair.caches:
            value, past = outputs[cache.present], inputs[cache.past]
            shape = list(past.shape)
            shape[cache.axis] = cache.capacity
            is_past_the_end = not cache.is_circular and before + length > cache.capacity
            if list(value.shape) == shape and not is_past_the_end:
                read[cache.present] = cache.kept(value, before + length)
        return self.reader.outputs(inputs, read)


def query_axes(
    plan: InputPlan, shapes: Mapping[str, tuple[object, ...] | None]
) -> dict[str, tuple[int, int]]:
    """Return the axes of sequences and of new rows of the outputs of which A names them."""
    kinds = kinds_of(plan)
    found: dict[str, tuple[int, int]] = {}
    for name, shape in shapes.items():
        of = [kinds.get(dim) if isinstance(dim, str) else None for dim in shape or ()]
        if of.count("batch") == 1 and of.count("length") == 1:
            found[name] = of.index("batch"), of.index("length")
    return found
