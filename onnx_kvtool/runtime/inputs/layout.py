"""Sizes that the cache protocol is about, once every name in the shapes has a size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.core.quantity import binary_bytes
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.inputs.expressions import evaluate
from onnx_kvtool.runtime.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.runtime.inputs.roles import Write
from onnx_kvtool.runtime.inputs.symbols import kinds_of

__all__ = ["Layout"]

_LARGEST = 512 << 20
"""Bytes that all inputs of a run may take. A run needs a few times as much: both models have their
outputs, among them caches as large as the inputs."""


class Layout:
    """The shapes of a model's inputs for given sizes.

    Args:
        plan: The model's inputs.
        sizes: The size of every name in their shapes.
        length: New rows, where no shape tells.

    Attributes:
        shapes: The shape of every input.
        length: sequence_length: new rows per sequence.
        past: Rows that growing caches hold already; 0 without such a cache.

    Raises:
        CannotDraw: If a dimension has no size or a negative one, or all inputs together are
            absurdly large.
    """

    def __init__(self, plan: InputPlan, sizes: Mapping[str, int], length: int) -> None:
        self._plan = plan
        self._kinds = kinds_of(plan)
        self.shapes = {spec.name: _shape(spec, sizes) for spec in plan.inputs}
        _check_size(plan, self.shapes)
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


def _check_size(plan: InputPlan, shapes: Mapping[str, tuple[int, ...]]) -> None:
    total = sum(_bits(spec.dtype) * math.prod(shapes[spec.name]) for spec in plan.inputs) // 8
    if total > _LARGEST:
        raise CannotDraw(
            f"the inputs would take {binary_bytes(total)}, "
            f"expected at most {binary_bytes(_LARGEST)}",
            help="bind their dimensions to small sizes with `--dim NAME=INT`",
        )


def _bits(dtype: ir.DataType) -> int:
    """Return the bits of an element in memory; a short Python string takes about 64 bytes."""
    return 8 * 64 if dtype == ir.DataType.STRING else dtype.bitwidth
