"""How the scales of QuantizeLinear and DequantizeLinear lie over the input, as nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import one_number, unsqueeze
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.emit.sizes import positions
from onnx_kvtool.ops.quantization import scale_misfit
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["Layout", "layout_of"]


@dataclass(frozen=True, slots=True)
class Layout:
    """One scale for the tensor, for each index of an axis, or for each block along it.

    Blocks that divide the axis get a dimension of their own, (.., blocks, block_size, ..), against
    which a scale of (.., blocks, 1, ..) broadcasts: nothing of the size of the input is made of
    the scale, and runtimes know the form. Where the sizes do not allow that, the scale is
    repeated for each index of its block.

    Attributes:
        em: Where to build.
        x: The input.
        axis: The axis from the front; None per tensor.
        block: Elements per block along `axis`; 0 without blocks.
        split: Target of the Reshape that parts the blocks; None where they are not parted.
        joined: Target of the Reshape back.
    """

    em: Emitter
    x: ir.Value
    axis: int | None
    block: int = 0
    split: tuple[int, ...] | None = None
    joined: tuple[int, ...] = ()

    def grouped(self, x: ir.Value | None = None) -> ir.Value:
        """Return the input, or `x` in its place, in the shape in which it is computed with."""
        return self._reshaped(self.x if x is None else x, self.split)

    def restored(self, result: ir.Value) -> ir.Value:
        """Return a result in the shape of the input."""
        return self._reshaped(result, None if self.split is None else self.joined)

    def spread(self, values: ir.Value) -> ir.Value:
        """Return a scale or a zero point in a shape that broadcasts against `grouped`."""
        dtype = values.dtype or ir.DataType.UNDEFINED
        if self.axis is None:
            return one_number(self.em, values, self.x)
        if self.split is not None:
            return unsqueeze(self.em, values, [self.axis + 1])
        dims = dims_of(self.x) or ()
        if self.block:
            index = positions(self.em, dims[self.axis], self.x, self.axis, place=0, rank=1)
            of_block = self.em.op("Div", index, self.em.constant(self.block, "block_size"))
            return self.em.op(
                "Gather", values, of_block, attributes={"axis": self.axis}, dtype=dtype
            )
        target = [1] * len(dims)
        target[self.axis] = -1
        return self.em.op("Reshape", values, self.em.constant(target, "shape"), dtype=dtype)

    def _reshaped(self, value: ir.Value, target: Sequence[int] | None) -> ir.Value:
        if target is None:
            return value
        shape = self.em.constant(list(target), "shape")
        return self.em.op("Reshape", value, shape, dtype=value.dtype or ir.DataType.UNDEFINED)


def layout_of(em: Emitter, view: NodeView, x: ir.Value, scale: ir.Value) -> Layout:
    """Return how the scale of a node lies over its input.

    Raises:
        Refusal: If what is known does not tell, or the scale has another rank or other sizes than
            the specification demands.
    """
    dims, shape = dims_of(x), dims_of(scale)
    if shape is None or (shape and dims is None):
        raise Refusal(
            "unknown-rank",
            f"whether `{scale.name}` is one number or one for each index of the axis is unknown",
            help="declare the shapes of the input and of the scale",
        )
    axis = view.integer("axis") if "axis" in view.facts.attributes else 0
    block = view.integer("block_size") if "block_size" in view.facts.attributes else 0
    zero = next((view.input(f.name) for f in view.facts.inputs if "zero" in f.name), None)
    problem = scale_misfit(dims, shape, dims_of(zero), axis, block, (_name(scale), _name(zero)))
    if problem is not None:
        help = problem.help or "check the node in the exporter; `kvtool check` finds every one"
        raise Refusal("scale-shape", problem.text, help=help)
    if (not block and shape in ((), (1,))) or dims is None:
        return Layout(em, x, None)
    axis = counted_axis(axis, len(dims))
    if not block:
        return Layout(em, x, axis)
    return Layout(em, x, axis, block, *_targets(dims, axis, block))


def _targets(
    dims: Sequence[Dim], axis: int, block: int
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Return the shapes that part the blocks and join them again; None where none can say it."""
    size, behind = dims[axis], dims[axis + 1 :]
    after = [dim for dim in behind if isinstance(dim, int)]
    if not isinstance(size, int) or size % block or 0 in dims or len(after) < len(behind):
        return None, ()
    # A zero takes over the size at the same place, which behind the axis is another one; -1 would
    # fail where a size is 0.
    before = [0] * axis
    return (*before, size // block, block, *after), (*before, size, *after)


def _name(value: ir.Value | None) -> str:
    return "" if value is None else value.name or ""
