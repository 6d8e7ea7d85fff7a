"""Slices along one axis: what part of a tensor a value is."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.proof import Proof
from onnx_kvtool.symbolic.expression import Expr, integer

__all__ = ["TO_THE_END", "Cut", "cut_of"]

TO_THE_END = 2**31 - 1
"""What exporters write for an end, or more."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The slice `source[..., low:high, ...]` along an axis of `size`, whole along all others."""

    source: ir.Value
    low: Expr
    high: Expr
    size: Expr

    @property
    def is_head(self) -> bool:
        """Whether it begins with the first row."""
        return self.low.number == 0

    @property
    def is_tail(self) -> bool:
        """Whether it ends with the last row."""
        return self.high == self.size or (self.high.number or 0) >= TO_THE_END


def cut_of(proof: Proof, value: ir.Value, axis: int) -> Cut | None:
    """Return the slice of step 1 along `axis` that a value is; None for anything else."""
    node = value.producer()
    if node is None or node.domain != "" or node.op_type != "Slice":
        return None
    opset = node.version if node.version is not None else proof.opset
    view = NodeView(node, opset)
    source = node.inputs[0]
    shape = None if source is None else proof.maps.shape(source)
    if source is None or shape is None:
        return None
    starts, ends = _numbers(proof, view, "starts"), _numbers(proof, view, "ends")
    if starts is None or ends is None or len(starts) != 1 or len(ends) != 1:
        return None
    axes, steps = _numbers(proof, view, "axes"), _numbers(proof, view, "steps")
    place = 0 if axes is None else axes[0].number
    if place is None or place % len(shape) != axis:
        return None
    if steps is not None and steps[0].number != 1:
        return None
    size = shape[axis]
    return Cut(source, _from_front(starts[0], size), _from_front(ends[0], size), size)


def _from_front(place: Expr, size: Expr) -> Expr:
    """Return a place that is counted from the end of an axis as one from its start.

    A slice that begins before the axis begins with it; the result is shorter or longer than the
    cache then, so that nothing is proven of it.
    """
    return place + size if (place.number or 0) < 0 else place


def _numbers(proof: Proof, view: NodeView, name: str) -> tuple[Expr, ...] | None:
    """Return an operand of a Slice element by element; None when it is absent or unknown."""
    if name in view.facts.attributes:
        given = view.attribute(name)
        if not isinstance(given, tuple):
            return None
        return tuple(integer(n) for n in given if isinstance(n, int))
    if all(formal.name != name for formal in view.facts.inputs):
        return None
    value = view.input(name)
    return None if value is None else proof.maps.of(value).vector()
