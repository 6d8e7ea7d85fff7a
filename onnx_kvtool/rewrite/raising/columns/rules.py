"""The wide form of the outputs of one node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.walk import maker, read_values, upwards
from onnx_kvtool.emit.forms import where
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.columns.wide import (
    Rule,
    Stuck,
    Wide,
    Widened,
    from_front,
    gathered,
    is_grown,
    limited,
    looked_up,
    scattered,
    sliced,
    viewed,
)
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Size
from onnx_kvtool.symbolic.dimensions import dims_of


def rule_of(node: ir.Node, *, joined: bool) -> Rule:
    """Return the rule for a node. Raise Stuck if there is none.

    `joined`: it reads or gives elements that stand behind the rows in use.
    """
    kinds = traits(node)
    rule = _RULES.get(node.op_type)
    if rule is None and Trait.ELEMENTWISE in kinds and Trait.RANDOM not in kinds:
        rule = _elementwise
    elif rule is None and Trait.REDUCES in kinds:
        rule = _reduced
    if rule is None or (joined and rule not in _ANY_ORDER):
        what = "knows its rows by their number" if rule else "may look at all rows in use"
        raise Stuck(f"`{node.op_type}` {what}")
    return rule


def _elementwise(view: NodeView, state: Widened) -> Wide:
    """Compute the same with wide operands, if no axis of one has the length by chance."""
    output = state.sizes(view.node.outputs[0])
    for number, value in enumerate(view.node.inputs):
        if value is None:
            continue
        sizes = state.sizes(value)
        _fits(value, sizes, output)
        divides = view.node.op_type in ("Div", "Mod") and number == 1
        if divides and is_grown(sizes) and state.dtype(value) in SIZE_TYPES:
            raise Stuck("integers are divided by what rows that are not in use may have as 0")
    return state.again(view)


def _fits(value: ir.Value, sizes: Sequence[Size], result: Sequence[Size]) -> None:
    """Refuse a value if an axis is neither 1 long nor certainly as long as that of the result.

    `sizes` may have the sizes of the result for axes that the value does not have.
    """
    for axis, (size, whole) in enumerate(zip(sizes[::-1], result[::-1], strict=False), 1):
        differ = size is None or whole is None or min(size, whole) < 0
        if differ and size not in (1, whole):
            raise Stuck(
                f"axis {len(sizes) - axis} of `{value.name}` is {_long(size, value, -axis)} and"
                f" that of the result {_long(whole)}"
            )


def _long(size: Size, value: ir.Value | None = None, axis: int = 0) -> str:
    dims = None if value is None else dims_of(value)
    if size is None:
        name = dims[axis] if dims else None
        return "of unknown length" if name is None else f"`{name}` long"
    if size >= 0:
        return f"{size} long"
    return "as long as the rows in use" if size == GROWN else "longer than the rows in use"


_NEUTRAL = {
    "LogSoftmax": -math.inf,
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSum": 0,
    "ReduceLogSumExp": -math.inf,
    "ReduceMax": -math.inf,
    "ReduceMin": math.inf,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
    "Softmax": -math.inf,
}
"""The neutral number of each operator that reduces an axis."""


def _reduced(view: NodeView, state: Widened) -> Wide:
    """Reduce or normalize axes, with the neutral number for all rows that are not in use."""
    data, *rest = view.node.inputs
    assert data is not None
    axes: Sequence[int] | None = state.folder.listed(rest[0] if rest else None)
    if "axis" in view.facts.attributes:
        axis, rank = view.integer("axis"), len(state.sizes(data))
        axes = [axis] if view.node.op_type in _NEUTRAL else range(axis % rank, rank)
    if axes is None:
        raise Stuck(f"`{view.node.op_type}` has no constant axes")
    return state.again(view, _neutral(view, data, axes, state), *rest)


def _neutral(view: NodeView, data: ir.Value, axes: Sequence[int], state: Widened) -> ir.Value:
    """Return the operand of a reduction, with the neutral number for rows that are not in use."""
    sizes = state.sizes(data)
    grown = [axis % len(sizes) for axis in axes if is_grown([sizes[axis]])]
    filler = _NEUTRAL.get(view.node.op_type)
    if not grown:
        return state.of(data)
    if filler is None or len(grown) > 1:
        raise Stuck(f"`{view.node.op_type}` makes one element of all rows in use")
    return state.hidden(data, grown[0], filler)


def _product(view: NodeView, state: Widened) -> Wide:
    """Multiply matrices; in a sum over rows those that are not in use add 0.

    The sum goes over the last axis of the left operand and the last but one of the right operand.
    """
    a, b = view.operands("A", "B")
    output = state.sizes(view.node.outputs[0])
    sizes = [state.sizes(value) for value in (a, b)]
    if min(map(len, sizes)) < 2:
        raise Stuck("`MatMul` multiplies vectors")
    _fits(a, (*sizes[0][:-1], output[-1]), output)
    _fits(b, (*sizes[1][:-2], output[-2], sizes[1][-1]), output)
    summed = sizes[0][-1], sizes[1][-2]
    if not is_grown(summed):
        return state.again(view)
    if summed[0] != summed[1]:
        raise Stuck("`MatMul` multiplies the rows in use with others")
    # Rows of a cache start as zeros, so that moved ones are finite.
    rows = state.of(b) if _is_stored(b, state) else state.hidden(b, len(sizes[1]) - 2, 0)
    return state.again(view, state.hidden(a, len(sizes[0]) - 1, 0), rows)


def _is_stored(value: ir.Value, state: Widened) -> bool:
    """Return whether a value is the rows of a cache, moved at most."""

    def moved(node: ir.Node) -> ir.Value | None:
        kinds = traits(node)
        return node.inputs[0] if Trait.MOVES in kinds or Trait.VIEW in kinds else None

    return any(one in state.grown.caches for one, _ in upwards(value, moved))


def _tiled(view: NodeView, state: Widened) -> Wide:
    data, repeats = view.operands("input", "repeats")
    sizes, known = state.sizes(data), state.folder.listed(repeats)
    if known is None or any(
        is_grown([size]) and times != 1 for size, times in zip(sizes, known, strict=True)
    ):
        raise Stuck("`Tile` repeats the rows in use")
    return state.again(view)


def _parts(view: NodeView, state: Widened) -> Wide:
    if is_grown([state.sizes(view.required("input"))[view.integer("axis")]]):
        raise Stuck("`Split` divides the rows in use")
    return state.again(view)


def _topmost(view: NodeView, state: Widened) -> Wide:
    """Take the largest rows; of equal ones the first, so that hidden rows come last."""
    data, count = view.operands("X", "K")
    axis, sizes = view.integer("axis"), state.sizes(data)
    if not is_grown([sizes[axis]]):
        return state.again(view)
    filler = -math.inf if view.integer("largest") else math.inf
    return state.again(view, state.hidden(data, axis % len(sizes), filler), count)


def _written(view: NodeView, state: Widened) -> Wide:
    """Write the same elements, at places counted from the front."""
    data, places, updates = view.operands("data", "indices", "updates")
    if is_grown((*state.sizes(places), *state.sizes(updates))):
        raise Stuck("`ScatterElements` writes as many elements as there are rows in use")
    if is_grown([state.sizes(data)[view.integer("axis")]]):
        places = from_front(places, state.em.op("Squeeze", state.count), state.em)
    return state.again(view, state.of(data), places, updates)


def _turned(view: NodeView, state: Widened) -> Wide:
    first = view.node.inputs[0]
    assert first is not None
    before, after = state.sizes(first), state.sizes(view.node.outputs[0])
    if any(before.count(n) != after.count(n) for n in (*before, *after) if is_grown([n])):
        raise Stuck("the rows in use are taken for one")
    return state.again(view)


def _filled(view: NodeView, state: Widened) -> Wide:
    shape = state.em.constant(state.target(view.node.outputs[0]), "shape")
    return state.again(view, shape)


def _expanded(view: NodeView, state: Widened) -> Wide:
    source, output = view.required("input"), view.node.outputs[0]
    _fits(source, state.sizes(source), state.sizes(output))
    shape = state.em.constant(state.target(output), "shape")
    return state.again(view, state.of(source), shape)


def _reshaped(view: NodeView, state: Widened) -> Wide:
    """Reshape the axes before and behind the rows in use, each side by itself.

    If an earlier Reshape joined the rows with another axis, start from its input.
    """
    after = state.sizes(view.node.outputs[0])
    for value, _ in upwards(view.required("data"), viewed):
        before = state.grown.shapes.get(value, ())
        if is_grown(before) and value in state.wide and _keeps_rows(before, after):
            shape = state.target(view.node.outputs[0])
            if before == after or 0 in shape:
                break
            return state.again(view, state.of(value), state.em.constant(shape, "shape"))
    else:
        raise Stuck("the rows in use are joined with another axis")
    if before != after:
        raise Stuck("a size is 0")
    return state.em.op("Identity", state.of(value))


def _keeps_rows(before: Sequence[Size], after: Sequence[Size]) -> bool:
    """Return whether a Reshape keeps the number of elements on each side of the rows in use."""
    if before == after:
        return True
    rows = [size for size in (*before, *after) if is_grown([size])]
    if before.count(GROWN) != 1 or rows != [GROWN, GROWN]:
        return False
    here, there = before.index(GROWN), after.index(GROWN)
    for parts in ((before[:here], after[:there]), (before[here + 1 :], after[there + 1 :])):
        numbers = [[size for size in part if size is not None] for part in parts]
        known = sum(map(len, numbers)) == sum(map(len, parts))
        if not known or math.prod(numbers[0]) != math.prod(numbers[1]):
            return False
    return True


def _counted(view: NodeView, state: Widened) -> Wide:
    start, _, delta = view.node.inputs
    step, dtype = state.folder.listed(delta), state.dtype(view.node.outputs[0])
    if start is None or step is None or dtype not in SIZE_TYPES:
        raise Stuck("the steps of `Range` are not constant integers")
    steps = np.arange(state.capacity, dtype=np.int64) * step[0]
    return state.em.op("Add", start, steps.astype(dtype.numpy()))


def _summed(view: NodeView, state: Widened) -> Wide:
    """Sum from the front."""
    data, axis = view.operands("x", "axis")
    known, sizes = state.folder.listed(axis), state.sizes(data)
    if known is None:
        raise Stuck("the axis of `CumSum` is not constant")
    if is_grown([sizes[known[0]]]) and view.integer("reverse"):
        raise Stuck("`CumSum` begins at the last of the rows in use")
    return state.again(view)


def _joined(view: NodeView, state: Widened) -> Wide:
    """Join values along other axes than that of the rows in use, or behind the rows."""
    axis = view.integer("axis")
    values = read_values(view.node)
    whole = state.sizes(view.node.outputs[0])[axis]
    parts = [state.sizes(value)[axis] for value in values]
    if whole == GROWN and len(values) == 2 and parts[1] is not None and parts[1] > 0:
        return _filled_before(values[0], values[1], axis % len(state.sizes(values[1])), state)
    if is_grown([whole, *parts]):
        rest = [size for size in parts[1:] if size is not None and size >= 0]
        if parts[0] != GROWN or len(rest) < len(parts) - 1 or whole != LONGER - sum(rest):
            raise Stuck("the rows in use are joined with others")
    return state.again(view)


def _filled_before(first: ir.Value, last: ir.Value, axis: int, state: Widened) -> ir.Value:
    """Put new rows behind earlier rows that all have one number."""
    node, em, sizes = maker(first, "ConstantOfShape"), state.em, state.sizes(last)
    if node is None:
        raise Stuck("the rows in use are joined with others")
    given = node.attributes.get("value")
    dtype = state.dtype(last)
    filler = 0 if given is None else given.as_tensor().numpy().item()
    count = sizes[axis]
    assert isinstance(count, int)
    keys = np.arange(state.capacity, dtype=np.int64)
    place = em.op("Sub", keys, em.op("Sub", state.count, [count]))
    rows = em.op("Gather", state.of(last), limited(place, (0, count - 1), state), axis=axis)
    column = em.op("Reshape", place, [-1, *[1] * (len(sizes) - 1 - axis)])
    is_new = em.op("GreaterOrEqual", column, [0])
    number = em.constant(np.array(filler).astype(dtype.numpy()))
    return where(em, is_new, rows, number)


def _kept(view: NodeView, state: Widened) -> Wide:
    """Compute the same with wide operands."""
    return state.again(view)


_RULES: Mapping[str, Rule] = {
    "Concat": _joined,
    "ConstantOfShape": _filled,
    "CumSum": _summed,
    "Expand": _expanded,
    "Gather": gathered,
    "GatherND": looked_up,
    "LayerNormalization": _reduced,
    "LogSoftmax": _reduced,
    "MatMul": _product,
    "RMSNormalization": _reduced,
    "Range": _counted,
    "Reshape": _reshaped,
    "ScatterElements": _written,
    "ScatterND": scattered,
    "Slice": sliced,
    "Softmax": _reduced,
    "Split": _parts,
    "Squeeze": _turned,
    "Tile": _tiled,
    "TopK": _topmost,
    "Transpose": _turned,
    "Trilu": _kept,
    "Unsqueeze": _turned,
}

_ANY_ORDER: tuple[Rule, ...] = (
    *(_elementwise, _expanded, _filled, _joined, _parts, _product, _reduced, _tiled),
    *(_turned, sliced),
)
"""Rules that do not depend on the position of an element along an axis."""
