"""The wide form of the outputs of one node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.walk import maker, read_values, upwards
from onnx_kvtool.emit.forms import where
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
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
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes


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


def _elementwise(view: Widened) -> Wide:
    """Compute the same with wide operands, if no axis of one has the length by chance."""
    output = view.after
    for number, value in enumerate(view.node.inputs):
        if value is None:
            continue
        sizes = view.sizes(value)
        _fits(value, sizes, output)
        divides = view.node.op_type in ("Div", "Mod") and number == 1
        if divides and is_grown(sizes) and view.dtype(value) in SIZE_TYPES:
            raise Stuck("integers are divided by what rows that are not in use may have as 0")
    return view.again()


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


def _reduced(view: Widened) -> Wide:
    """Reduce or normalize axes, with the neutral number for all rows that are not in use."""
    data, *rest = view.node.inputs
    assert data is not None
    axes: Sequence[int] | None = view.folder.listed(rest[0] if rest else None)
    if "axis" in view.facts.attributes:
        axis, rank = view.integer("axis"), len(view.sizes(data))
        axes = [axis] if view.node.op_type in _NEUTRAL else range(axis % rank, rank)
    if axes is None:
        raise Stuck(f"`{view.node.op_type}` has no constant axes")
    sizes, filler = view.sizes(data), _NEUTRAL.get(view.node.op_type)
    grown = [axis % len(sizes) for axis in axes if is_grown([sizes[axis]])]
    if not grown:
        return view.again(view.of(data), *rest)
    if filler is None or len(grown) > 1:
        raise Stuck(f"`{view.node.op_type}` makes one element of all rows in use")
    return view.again(view.hidden(data, grown[0], filler), *rest)


def _product(view: Widened) -> Wide:
    """Multiply matrices; in a sum over rows those that are not in use add 0.

    The sum goes over the last axis of the left operand and the last but one of the right operand.
    """
    a, b = view.operands("A", "B")
    output = view.after
    sizes = [view.sizes(value) for value in (a, b)]
    if min(map(len, sizes)) < 2:
        raise Stuck("`MatMul` multiplies vectors")
    _fits(a, (*sizes[0][:-1], output[-1]), output)
    _fits(b, (*sizes[1][:-2], output[-2], sizes[1][-1]), output)
    summed = sizes[0][-1], sizes[1][-2]
    if not is_grown(summed):
        return view.again()
    if summed[0] != summed[1]:
        raise Stuck("`MatMul` multiplies the rows in use with others")
    # Rows of a cache start as zeros, so that moved ones are finite.
    rows = view.of(b) if _is_stored(b, view) else view.hidden(b, len(sizes[1]) - 2, 0)
    return view.again(view.hidden(a, len(sizes[0]) - 1, 0), rows)


def _is_stored(value: ir.Value, view: Widened) -> bool:
    """Return whether a value is the rows of a cache, moved at most."""

    def moved(node: ir.Node) -> ir.Value | None:
        kinds = traits(node)
        return node.inputs[0] if Trait.MOVES in kinds or Trait.VIEW in kinds else None

    return any(one in view.grown.caches for one, _ in upwards(value, moved))


def _tiled(view: Widened) -> Wide:
    data, repeats = view.operands("input", "repeats")
    sizes, known = view.sizes(data), view.folder.listed(repeats)
    if known is None or any(
        is_grown([size]) and times != 1 for size, times in zip(sizes, known, strict=True)
    ):
        raise Stuck("`Tile` repeats the rows in use")
    return view.again()


def _parts(view: Widened) -> Wide:
    if is_grown([view.sizes(view.required("input"))[view.integer("axis")]]):
        raise Stuck("`Split` divides the rows in use")
    return view.again()


def _topmost(view: Widened) -> Wide:
    """Take the largest rows; of equal ones the first, so that hidden rows come last."""
    data, count = view.operands("X", "K")
    axis, sizes = view.integer("axis"), view.sizes(data)
    if not is_grown([sizes[axis]]):
        return view.again()
    filler = -math.inf if view.integer("largest") else math.inf
    return view.again(view.hidden(data, axis % len(sizes), filler), count)


def _written(view: Widened) -> Wide:
    """Write the same elements, at places counted from the front."""
    data, places, updates = view.operands("data", "indices", "updates")
    if is_grown((*view.sizes(places), *view.sizes(updates))):
        raise Stuck("`ScatterElements` writes as many elements as there are rows in use")
    if is_grown([view.sizes(data)[view.integer("axis")]]):
        places = from_front(places, view.em.op("Squeeze", view.count), view.em)
    return view.again(view.of(data), places, updates)


def _turned(view: Widened) -> Wide:
    first = view.node.inputs[0]
    assert first is not None
    before, after = view.sizes(first), view.after
    if any(before.count(n) != after.count(n) for n in (*before, *after) if is_grown([n])):
        raise Stuck("the rows in use are taken for one")
    return view.again()


def _filled(view: Widened) -> Wide:
    return view.again(view.shape())


def _expanded(view: Widened) -> Wide:
    source = view.required("input")
    _fits(source, view.sizes(source), view.after)
    return view.again(view.of(source), view.shape())


def _reshaped(view: Widened) -> Wide:
    """Reshape the axes before and behind the rows in use, each side by itself.

    If an earlier Reshape joined the rows with another axis, start from its input.
    """
    after = view.after
    for value, _ in upwards(view.required("data"), viewed):
        before = view.grown.shapes.get(value, ())
        if is_grown(before) and value in view.wide and _keeps_rows(before, after):
            if 0 in view.target(view.node.outputs[0]):
                raise Stuck("a size is 0")
            return view.again(view.of(value), view.shape())
    raise Stuck("the rows in use are joined with another axis")


def _keeps_rows(before: Sequence[Size], after: Sequence[Size]) -> bool:
    """Return whether a Reshape keeps the number of elements on each side of the rows in use."""
    if before == after:
        return True
    rows = [size for size in (*before, *after) if is_grown([size])]
    if before.count(GROWN) != 1 or rows != [GROWN, GROWN]:
        return False
    here, there = before.index(GROWN), after.index(GROWN)
    for parts in ((before[:here], after[:there]), (before[here + 1 :], after[there + 1 :])):
        old, new = map(fixed_sizes, parts)
        if old is None or new is None or math.prod(old) != math.prod(new):
            return False
    return True


def _counted(view: Widened) -> Wide:
    start, _, delta = view.node.inputs
    step, dtype = view.folder.listed(delta), view.dtype(view.node.outputs[0])
    if start is None or step is None or dtype not in SIZE_TYPES:
        raise Stuck("the steps of `Range` are not constant integers")
    steps = np.arange(view.capacity, dtype=np.int64) * step[0]
    return view.em.op("Add", start, steps.astype(dtype.numpy()))


def _summed(view: Widened) -> Wide:
    """Sum from the front."""
    data, axis = view.operands("x", "axis")
    known, sizes = view.folder.listed(axis), view.sizes(data)
    if known is None:
        raise Stuck("the axis of `CumSum` is not constant")
    if is_grown([sizes[known[0]]]) and view.integer("reverse"):
        raise Stuck("`CumSum` begins at the last of the rows in use")
    return view.again()


def _joined(view: Widened) -> Wide:
    """Join values along other axes than that of the rows in use, or behind the rows."""
    axis = view.integer("axis")
    values = read_values(view.node)
    whole = view.after[axis]
    parts = [view.sizes(value)[axis] for value in values]
    if whole == GROWN and len(values) == 2 and parts[1] is not None and parts[1] > 0:
        return _filled_before(view)
    if is_grown([whole, *parts]):
        rest = [size for size in parts[1:] if size is not None and size >= 0]
        if parts[0] != GROWN or len(rest) < len(parts) - 1 or whole != LONGER - sum(rest):
            raise Stuck("the rows in use are joined with others")
    return view.again()


def _filled_before(view: Widened) -> ir.Value:
    """Put new rows behind earlier rows that all have one number."""
    first, last = read_values(view.node)
    node, em, sizes = maker(first, "ConstantOfShape"), view.em, view.sizes(last)
    axis = view.integer("axis") % len(sizes)
    if node is None:
        raise Stuck("the rows in use are joined with others")
    given = node.attributes.get("value")
    dtype = view.dtype(last)
    filler = 0 if given is None else given.as_tensor().numpy().item()
    count = sizes[axis]
    assert isinstance(count, int)
    keys = np.arange(view.capacity, dtype=np.int64)
    place = em.op("Sub", keys, em.op("Sub", view.count, [count]))
    rows = em.op("Gather", view.of(last), limited(place, (0, count - 1), view), axis=axis)
    column = em.op("Reshape", place, [-1, *[1] * (len(sizes) - 1 - axis)])
    is_new = em.op("GreaterOrEqual", column, [0])
    number = em.constant(np.array(filler).astype(dtype.numpy()))
    return where(em, is_new, rows, number)


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
    "Trilu": Widened.again,
    "Unsqueeze": _turned,
}

_ANY_ORDER: tuple[Rule, ...] = (
    *(_elementwise, _expanded, _filled, _joined, _parts, _product, _reduced, _tiled),
    *(_turned, sliced),
)
"""Rules that do not depend on the position of an element along an axis."""
