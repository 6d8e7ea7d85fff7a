"""Sizes that the cache protocol is about, once every name in the shapes has a size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.core.quantity import binary_bytes
from onnx_kvtool.runtime.errors import CannotDraw, TooLarge
from onnx_kvtool.runtime.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.runtime.inputs.roles import Write
from onnx_kvtool.runtime.inputs.symbols import kinds_of
from onnx_kvtool.runtime.memory import available_memory
from onnx_kvtool.symbolic.dimensions import evaluate

__all__ = ["Layout"]

_TIMES = 5
"""How often the inputs of a run stand in memory: both models have outputs, among them caches as
large as the inputs, and so has a model that is run once more to see what is rounding; one layer
at a time makes more of them (4.4 were measured)."""


class Layout:
    """The shapes of a model's inputs for given sizes.

    Args:
        plan: The model's inputs.
        sizes: The size of every name in their shapes.
        length: New rows, where no shape tells.
        memory: Bytes that a run may take; None for what the machine has left.

    Attributes:
        shapes: The shape of every input.
        length: sequence_length: new rows per sequence.
        past: Rows that growing caches hold already; 0 without such a cache.

    Raises:
        CannotDraw: If a dimension has no size or a negative one.
        TooLarge: If a run would take more memory than there is for it.
    """

    def __init__(
        self,
        plan: InputPlan,
        sizes: Mapping[str, int],
        length: int,
        memory: int | None = None,
    ) -> None:
        self._plan = plan
        self._kinds = kinds_of(plan)
        self.shapes = {spec.name: _shape(spec, sizes) for spec in plan.inputs}
        _check_size(plan, self.shapes, memory)
        self.length = next(self._lengths(), length)
        growing = [pair for pair in plan.pairs if pair.kind != "fixed" and pair.axis is not None]
        self.past = next((self.shapes[p.past][p.axis] for p in growing if p.axis is not None), 0)

    def _lengths(self) -> Iterator[int]:
        """Yield what the inputs say of the number of new rows, the surest first."""
        for spec in self._plan.with_role("update"):
            if spec.uses.update_axis is not None:
                yield self.shapes[spec.name][spec.uses.update_axis]
        for spec in self._plan.with_role("token_ids"):
            yield from self.shapes[spec.name][-1:]
        for spec in self._plan.with_role("position_ids"):
            yield from self.shapes[spec.name][-1:] if len(spec.shape) > 1 else ()
        for spec in self._plan.inputs:
            for axis, dim in enumerate(spec.shape):
                if isinstance(dim, str) and self._kinds.get(dim) == "length":
                    yield self.shapes[spec.name][axis]

    def capacity(self, write: Write) -> int | None:
        """Return max_sequence_length of a TensorScatter; None when it is not known."""
        pair = write.cache
        if pair is not None and pair.axis is not None and pair.past in self.shapes:
            return self.shapes[pair.past][pair.axis]
        return write.capacity

    def last_start(self, spec: InputSpec) -> int | None:
        """Return the last value of `spec` that leaves room for the new rows; None if unknown."""
        last = []
        for write in spec.uses.writes:
            capacity = self.capacity(write)
            if write.mode == "linear" and capacity is not None:
                last.append(capacity - write.offset - self.length)
        if spec.role == "position_ids" and spec.uses.rows is not None:
            last.append(spec.uses.rows - self.length)
        return min(last, default=None)

    def valid_limit(self, spec: InputSpec) -> int | None:
        """Return the largest valid length that `spec` may give; None when it is not known."""
        if spec.uses.capacity is not None:
            return spec.uses.capacity
        writes = [write for other in self._plan.inputs for write in other.uses.writes]
        known = (self.capacity(write) for write in writes)
        return min((size for size in known if size is not None), default=None)

    def is_sequence(self, spec: InputSpec) -> bool:
        """Return whether the last dimension of `spec` counts new rows, not sequences."""
        if not spec.shape:
            return False
        dim = spec.shape[-1]
        if isinstance(dim, str) and self._kinds.get(dim) in ("length", "batch"):
            return self._kinds[dim] == "length"
        return len(spec.shape) > 1 or self.shapes[spec.name][-1] == self.length


def _shape(spec: InputSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape: list[int] = []
    for axis, dim in enumerate(spec.shape):
        try:
            size = evaluate(dim, sizes)
        except (KeyError, ZeroDivisionError) as error:
            raise CannotDraw(
                f"dimension {axis} of input `{spec.name}` has no size: `{dim}`"
            ) from error
        if size < 0:
            raise CannotDraw(f"dimension {axis} of input `{spec.name}` would be {size}: `{dim}`")
        shape.append(size)
    return tuple(shape)


def _check_size(plan: InputPlan, shapes: Mapping[str, tuple[int, ...]], memory: int | None) -> None:
    bits = sum(_bits(spec.dtype) * math.prod(shapes[spec.name]) for spec in plan.inputs)
    needed = _TIMES * bits // 8
    if needed < _NEGLIGIBLE or (most := available_memory() if memory is None else memory) is None:
        return
    if needed > most:
        raise TooLarge(
            f"a run would take about {binary_bytes(needed)} of memory, "
            f"expected at most {binary_bytes(most)}",
            help="bind the dimensions of inputs to small sizes with `--dim NAME=INT`",
            needed=needed,
        )


_NEGLIGIBLE = 1 << 20
"""Bytes of which no system is asked whether it has them."""

_NARROW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def _bits(dtype: ir.DataType) -> int:
    """Return the bits of an element in memory; a short Python string takes about 64 bytes.

    An element of 16 bits is computed in 32 bits as well, to see what is rounding.
    """
    if dtype in _NARROW:
        return 16 + 32
    return 8 * 64 if dtype == ir.DataType.STRING else max(dtype.bitwidth, 8)
