"""What a host feeds to a model with growing caches and to its fixed form, and what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.inputs.padding import covering_mask, dead_rows
from onnx_kvtool.runtime.inputs.stepping import rows_of
from onnx_kvtool.runtime.inputs.symbols import kinds_of
from onnx_kvtool.runtime.inputs.values import moderate
from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.runtime.verification.growing.pair import FixedCache, GrowingPair

__all__ = ["FixedHost", "GrowingHost"]

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
        """Return the inputs as they are."""
        return dict(inputs)

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs with zeros for all rows that hold no token.

        A right model may compute anything there, and hands the rows of caches on to nobody but
        attention, which a mask keeps from looking at them.
        """
        _, length = rows_of(self.pair.plan, inputs)
        dead = dead_rows(self.pair.plan, inputs, length)
        if dead is None:
            return outputs
        caches = {pair.present: pair.axis for pair in self.pair.plan.pairs}
        live: Arrays = {}
        for name, value in outputs.items():
            if name in caches:
                live[name] = _without(value, dead[1], 0, caches[name])
            elif name in self.axes:
                live[name] = _without(value, dead[0], *self.axes[name])
            else:
                live[name] = _without(value, dead[0], 0, 1)
        return live


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
            fed[cache.past] = self._buffer(cache, inputs[cache.past], before, number)
        mask = covering_mask(self.pair.plan)
        if mask is not None and self.pair.mask_columns is not None:
            old = inputs[mask.name]
            missing = max(self.pair.mask_columns - old.shape[-1], 0)
            fed[mask.name] = np.pad(old, [(0, 0), (0, missing)])
        if (count := self.pair.past_length) is not None:
            shape = [dim if isinstance(dim, int) else 1 for dim in count.shape]
            fed[count.name] = np.full(shape, before, count.dtype.numpy())
        return fed

    def _buffer(self, cache: FixedCache, rows: Array, before: int, number: int) -> Array:
        shape = list(rows.shape)
        shape[cache.axis] = cache.capacity
        if before:
            spec = next(s for s in self.pair.plan.inputs if s.name == cache.past)
            buffer = moderate(np.random.default_rng([before, number]), spec.dtype, tuple(shape))
        else:
            buffer = np.zeros(shape, rows.dtype)
        in_use = _first(rows.ndim, cache.axis, rows.shape[cache.axis])
        buffer[in_use] = rows
        return buffer

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs with caches of the rows that are in use.

        A cache of another shape than it went in with stays as it is.
        """
        before, length = rows_of(self.pair.plan, inputs)
        read = dict(outputs)
        for cache in self.pair.caches:
            value, past = outputs[cache.present], inputs[cache.past]
            shape = list(past.shape)
            shape[cache.axis] = cache.capacity
            if list(value.shape) == shape:
                read[cache.present] = value[_first(value.ndim, cache.axis, before + length)]
        return self.reader.outputs(inputs, read)


def _first(rank: int, axis: int, count: int) -> tuple[slice, ...]:
    return tuple(slice(count) if index == axis else slice(None) for index in range(rank))


def query_axes(
    pair: GrowingPair, shapes: Mapping[str, tuple[object, ...] | None]
) -> dict[str, tuple[int, int]]:
    """Return the axes of sequences and of new rows of the outputs of which A names them."""
    kinds = kinds_of(pair.plan)
    found: dict[str, tuple[int, int]] = {}
    for name, shape in shapes.items():
        of = [kinds.get(dim) if isinstance(dim, str) else None for dim in shape or ()]
        if of.count("batch") == 1 and of.count("length") == 1:
            found[name] = of.index("batch"), of.index("length")
    return found
