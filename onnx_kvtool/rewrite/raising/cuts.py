"""Slices along one axis: what part of a tensor a value is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.proof import Proof
from onnx_kvtool.symbolic.expressions import Expr, integer

__all__ = ["TO_THE_END", "Cut", "Numbers", "bounds_along", "constants", "cut_of"]

TO_THE_END = 2**31 - 1
"""What exporters write for an end, or more."""

Numbers = Callable[[ir.Value], tuple[Expr, ...] | None]
"""Returns the elements of a vector; None where it does not know them."""


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
    source = view.required("data")
    shape = proof.maps.shape(source)
    if shape is None or axis >= len(shape):
        return None
    found = bounds_along(view, axis, len(shape), lambda value: proof.maps.of(value).vector())
    if found is None or found[1] is None:
        return None
    size = shape[axis]
    return Cut(source, _from_front(found[0], size), _from_front(found[1], size), size)


def bounds_along(
    view: NodeView, axis: int, rank: int, numbers: Numbers
) -> tuple[Expr, Expr | None] | None:
    """Return where a Slice starts and ends that cuts along one axis in steps of 1.

    Args:
        view: The Slice.
        axis: The axis, counted from the front.
        rank: Rank of what is cut.
        numbers: Says what the elements of an operand are.

    Returns:
        The end is None where it is not known. None for a Slice along another axis, or several, or
        where nobody knows along which and in what steps.
    """
    starts, ends, axes, steps = (
        _operand(view, name, numbers) for name in ("starts", "ends", "axes", "steps")
    )
    if starts is None or len(starts) != 1 or (ends is not None and len(ends) != 1):
        return None
    if axes is None or steps is None:
        return None
    place = axes[0].number if axes else 0
    if place is None or place % rank != axis or (steps and steps[0].number != 1):
        return None
    return starts[0], None if ends is None else ends[0]


def constants(value: ir.Value) -> tuple[Expr, ...] | None:
    """Return the elements of a vector of integers that are the same in every run; else None."""
    held = Folder().integers(value)
    return None if held is None or held.ndim != 1 else tuple(integer(int(n)) for n in held)


def _from_front(place: Expr, size: Expr) -> Expr:
    """Return a place that is counted from the end of an axis as one from its start.

    A slice that begins before the axis begins with it; the result is shorter or longer than the
    cache then, so that nothing is proven of it.
    """
    return place + size if (place.number or 0) < 0 else place


def _operand(view: NodeView, name: str, numbers: Numbers) -> tuple[Expr, ...] | None:
    """Return an operand of a Slice element by element: () if it is left out, None if unknown."""
    if name in view.facts.attributes:
        given = view.attribute(name)
        if given is None:
            return ()
        return tuple(map(integer, given)) if isinstance(given, tuple) else None
    if all(formal.name != name for formal in view.facts.inputs):
        return ()
    value = view.input(name)
    return () if value is None else numbers(value)
