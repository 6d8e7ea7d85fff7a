"""The wide form of what one node gives."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.element_type import SIZE_TYPES
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.columns.lookups import gathered, looked_up, scattered, sliced
from onnx_kvtool.rewrite.raising.columns.state import Rule, Stuck, Widened, is_grown
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Size

__all__ = ["rule_of"]


def rule_of(node: ir.Node) -> Rule:
    """Return the rule for a node.

    Raises:
        Stuck: If there is none.
    """
    rule = _RULES.get(node.op_type)
    if rule is not None:
        return rule
    kinds = traits(node)
    if Trait.ELEMENTWISE in kinds and Trait.RANDOM not in kinds:
        return _elementwise
    if Trait.REDUCES in kinds:
        return _reduced
    raise Stuck(f"`{node.op_type}` may look at all rows in use")


def _elementwise(view: NodeView, state: Widened) -> ir.Value:
    """Compute the same of wide operands, if no axis of one is as long by chance."""
    output = state.sizes(view.node.outputs[0])
    for number, value in enumerate(view.node.inputs):
        sizes = () if value is None else state.sizes(value)
        for size, whole in zip(sizes[::-1], output[::-1], strict=False):
            if _differ(size, whole):
                raise Stuck(f"`{value.name if value else ''}` has an axis of another size")
        divides = view.node.op_type in ("Div", "Mod") and number == 1
        if divides and is_grown(sizes) and value is not None and state.dtype(value) in SIZE_TYPES:
            raise Stuck("integers are divided by what rows that are not in use may have as 0")
    return state.again(view, *(None if v is None else state.of(v) for v in view.node.inputs))


def _differ(size: Size, whole: Size) -> bool:
    """Return whether an axis is not broadcast, and may be of another size than in the result."""
    return size != 1 and size != whole and (size is None or whole is None or min(size, whole) < 0)


def _reduced(view: NodeView, state: Widened) -> ir.Value:
    """Reduce axes that are not as long as the rows in use."""
    data = view.node.inputs[0]
    axes = view.input("axes") if len(view.node.inputs) > 1 else None
    known = None if axes is None else state.folder.integers(axes)
    if data is None or known is None:
        raise Stuck(f"`{view.node.op_type}` has no constant axes")
    sizes = state.sizes(data)
    if any(is_grown([sizes[int(axis)]]) for axis in known.ravel()):
        raise Stuck(f"`{view.node.op_type}` makes one element of all rows in use")
    return state.again(view, state.of(data), axes)


def _turned(view: NodeView, state: Widened) -> ir.Value:
    first, *rest = view.node.inputs
    assert first is not None
    before, after = state.sizes(first), state.sizes(view.node.outputs[0])
    if any(before.count(size) != after.count(size) for size in (GROWN, LONGER)):
        raise Stuck("the rows in use are taken for one")
    return state.again(view, state.of(first), *rest)


def _filled(view: NodeView, state: Widened) -> ir.Value:
    shape = state.em.constant(state.target(view.node.outputs[0]), "shape")
    return state.again(view, shape)


def _expanded(view: NodeView, state: Widened) -> ir.Value:
    source, output = view.required("input"), view.node.outputs[0]
    for size, whole in zip(state.sizes(source)[::-1], state.sizes(output)[::-1], strict=False):
        if _differ(size, whole):
            raise Stuck(f"`{source.name}` has an axis of another size")
    shape = state.em.constant(state.target(output), "shape")
    return state.again(view, state.of(source), shape)


def _reshaped(view: NodeView, state: Widened) -> ir.Value:
    """Reshape what lies before and behind the rows in use, each by itself."""
    data, output = view.required("data"), view.node.outputs[0]
    before, after = state.sizes(data), state.sizes(output)
    if before == after:
        return state.em.op("Identity", state.of(data), dtype=state.dtype(data))
    if before.count(GROWN) != 1 or after.count(GROWN) != 1 or LONGER in (*before, *after):
        raise Stuck("the rows in use are joined with another axis")
    here, there = before.index(GROWN), after.index(GROWN)
    for parts in ((before[:here], after[:there]), (before[here + 1 :], after[there + 1 :])):
        numbers = [[size for size in part if size is not None] for part in parts]
        known = sum(map(len, numbers)) == sum(map(len, parts))
        if not known or math.prod(numbers[0]) != math.prod(numbers[1]):
            raise Stuck("the rows in use are joined with another axis")
    shape = state.target(output)
    if 0 in shape:
        raise Stuck("a size is 0")
    return state.again(view, state.of(data), state.em.constant(shape, "shape"))


def _counted(view: NodeView, state: Widened) -> ir.Value:
    start, _, delta = (value for value in view.node.inputs)
    output = view.node.outputs[0]
    step = None if delta is None else state.folder.integers(delta)
    dtype = state.dtype(output)
    if start is None or step is None or dtype not in SIZE_TYPES:
        raise Stuck("the steps of `Range` are not constant integers")
    steps = np.arange(state.capacity, dtype=np.int64) * int(step.ravel()[0])
    numbers = state.em.constant(steps.astype(dtype.numpy()), "steps")
    return state.em.op("Add", start, numbers, dtype=dtype)


def _summed(view: NodeView, state: Widened) -> ir.Value:
    """Sum from the front, where what is added last is not looked at before."""
    data, axis = view.required("x"), view.required("axis")
    known = state.folder.integers(axis)
    sizes = state.sizes(data)
    if known is None:
        raise Stuck("the axis of `CumSum` is not constant")
    if is_grown([sizes[int(known.ravel()[0])]]) and view.integer("reverse"):
        raise Stuck("`CumSum` begins at the last of the rows in use")
    return state.again(view, state.of(data), axis)


def _joined(view: NodeView, state: Widened) -> ir.Value:
    axis = view.integer("axis")
    values = [value for value in view.node.inputs if value is not None]
    for value in values:
        sizes = state.sizes(value)
        if is_grown([sizes[axis], state.sizes(view.node.outputs[0])[axis]]):
            raise Stuck("the rows in use are joined with others")
    return state.again(view, *map(state.of, values))


def _triangle(view: NodeView, state: Widened) -> ir.Value:
    return state.again(view, state.of(view.required("input")), view.input("k"))


_RULES: Mapping[str, Rule] = {
    "Concat": _joined,
    "ConstantOfShape": _filled,
    "CumSum": _summed,
    "Expand": _expanded,
    "Gather": gathered,
    "GatherND": looked_up,
    "Range": _counted,
    "Reshape": _reshaped,
    "ScatterND": scattered,
    "Slice": sliced,
    "Squeeze": _turned,
    "Transpose": _turned,
    "Trilu": _triangle,
    "Unsqueeze": _turned,
}
