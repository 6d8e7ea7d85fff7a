"""Where a step begins: how many rows of every cache are in use before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.element_type import dtype_name
from onnx_kvtool.rewrite.raise_report import InputAdded
from onnx_kvtool.rewrite.raising.assumptions import Assumptions
from onnx_kvtool.rewrite.raising.growing.growth import Growth
from onnx_kvtool.rewrite.raising.growing.sizes import Sizes
from onnx_kvtool.rewrite.raising.growing.window import Rolling
from onnx_kvtool.rewrite.raising.stage import token_count
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.expressions import Element, Expr, Extent, integer, variable

__all__ = ["Position", "position_of"]

_MEANING = "tokens before this step, which is how many rows of each cache are in use"


@dataclass(frozen=True, slots=True)
class Position:
    """How many rows of every cache are in use before a step.

    Attributes:
        start: That number, from inputs of the model.
        proof: Why it is that number.
        assumed: The assumption that this rests on.
        added: The input that says it, where none did; it is not part of the graph yet.
        whole: The size that is granted to be that of the past and the new tokens.
    """

    start: Expr
    proof: str
    assumed: str | None = None
    added: ir.Value | None = None
    whole: Expr | None = None

    @property
    def report(self) -> InputAdded | None:
        """What is said of the added input."""
        if self.added is None:
            return None
        assert self.added.dtype is not None
        dtype = dtype_name(self.added.dtype)
        return InputAdded(self.added.name or "", dtype, (1,), _MEANING)


def position_of(
    model: ir.Model,
    growths: Sequence[Growth | Rolling],
    sizes: Sizes,
    assumptions: Assumptions,
    *,
    by_size: bool = True,
) -> Position:
    """Find an input that says where a step begins, or make one up.

    An input says so by a size: one whose name is that of the past, with what the step adds, or one
    that is granted to be both. What the elements of an input are, no model can promise.
    A size says nothing where all caches are windows, which stop to grow, and none does that is
    about to be fixed.

    Args:
        model: The model.
        growths: Its caches that grow, or roll.
        sizes: What is known of its sizes.
        assumptions: What is granted.
        by_size: Whether a size of an input may say so.

    Raises:
        Unproven: If an input is granted to cover the past and what a step adds to it is unknown.
    """
    granted = assumptions.values.get("covers-past", frozenset())
    for value in model.graph.inputs:
        if by_size and value.name in granted and sizes.lengths:
            return _granted(value, growths, sizes)
    for value, axis in sizes.inputs():
        rest = sizes.behind(value, axis) if by_size else None
        if rest is not None:
            dim = (dims_of(value) or ())[axis]
            start = variable(Extent(value, integer(axis))) - rest
            return Position(start, f"`{value.name}` is `{dim}` long, by its declaration")
    added = token_count(model)
    start = variable(Element(added, (integer(0),)))
    text = f"the new input `{added.name}` says how many tokens came before"
    return Position(start, text, None, added)


def _granted(value: ir.Value, growths: Sequence[Growth | Rolling], sizes: Sizes) -> Position:
    dims = dims_of(value)
    if not dims:
        raise Unproven("unknown-rank", f"the rank of `{value.name}` is unknown or 0")
    steps = {sizes.step(end) for g in growths for end in g.ends if end.node is not None}
    step = steps.pop()
    if step is None or steps:
        raise Unproven(
            "step-unknown",
            f"no input says how many rows a step adds, so `{value.name}` does not say how many "
            "were there before",
        )
    mask = sizes.knowledge.shapes[value][-1]
    start = variable(Extent(value, integer(len(dims) - 1))) - step
    text = f"`{value.name}` is as long as the past and the new tokens"
    return Position(start, text, f"covers-past:{value.name}", whole=mask)
