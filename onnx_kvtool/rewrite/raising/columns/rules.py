"""The wide form of the outputs of one node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.walk import maker, read_values, upwards
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import where
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Grown, Size
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.expressions import ZERO, coordinate, integer
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.simplification import Facts, interval

# What rules share.


def is_grown(sizes: Sequence[Size]) -> bool:
    """Return whether an axis is to be as long as the caches, or longer."""
    return any(size is not None and size < 0 for size in sizes)


def behind(size: int) -> int:
    """Return how many elements stand behind the rows in use along an axis of a size below 0."""
    return max(LONGER - size, 0)


class Stuck(Exception):
    """No wide form is known; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class Widened:
    """A graph as a rule sees it.

    Attributes:
        em: Where to build.
        grown: Which values are as long as the rows in use.
        wide: Their wide forms.
        capacity: Rows of a cache, C.
        count: The rows in use, (1,), int64.
        folder: Knows what is constant.
    """

    em: Emitter
    grown: Grown
    wide: Mapping[ir.Value, ir.Value]
    capacity: int
    count: ir.Value
    folder: ConstantFolder

    def sizes(self, value: ir.Value) -> tuple[Size, ...]:
        """Return the sizes of a value.

        Raises:
            Stuck: If its rank is unknown.
        """
        found = self.grown.shapes.get(value)
        if found is not None:
            return found
        dims = [dim for dim in dims_of(value) or (None,) if isinstance(dim, int)]
        if value.shape is None or len(dims) != len(value.shape):
            raise Stuck(f"the shape of `{value.name}` is unknown")
        return tuple(dims)

    def of(self, value: ir.Value) -> ir.Value:
        """Return a value, in its wide form where it is as long as the rows in use."""
        return self.wide.get(value, value) if is_grown(self.grown.shapes.get(value, ())) else value

    def dtype(self, value: ir.Value) -> ir.DataType:
        """Return the element type of a value, or that it is unknown."""
        return value.dtype or self.grown.types.get(value) or ir.DataType.UNDEFINED

    def maps(self) -> IndexMaps:
        """Return the elements of wide values, at the sizes of the result."""
        return IndexMaps(self.em.opset, SizeEqualities([*self.grown.dims.items()]))

    def target(self, value: ir.Value) -> list[int]:
        """Return the shape of the wide form of a value.

        Raises:
            Stuck: If a size is no number.
        """
        found = []
        for size in self.sizes(value):
            if size is None:
                raise Stuck(f"a size of `{value.name}` has no known number")
            found.append(self.capacity + behind(size) if size < 0 else size)
        return found

    def hidden(self, value: ir.Value, axis: int, filler: float) -> ir.Value:
        """Return the wide form of a value, with a number for all rows that are not in use.

        Raises:
            Stuck: If it is unknown which rows are in use.
        """
        em, sizes, wide = self.em, self.sizes(value), self.of(value)
        size = sizes[axis]
        if size is None or size == LONGER:
            raise Stuck(f"`{value.name}` has rows that may or may not be in use")
        numbers = np.arange(self.capacity + behind(size), dtype=np.int64)
        numbers[self.capacity :] = -1  # which stand behind the rows in use, and are before any
        keys = em.constant(numbers.reshape(-1, *[1] * (len(sizes) - 1 - axis)), "keys")
        in_use = em.once(
            ("rows in use", keys, self.count),
            lambda: em.op("Less", keys, self.count, hint="in_use"),
        )
        dtype = self.dtype(value)
        if dtype == ir.DataType.UNDEFINED:
            raise Stuck(f"the type of `{value.name}` is unknown")
        if dtype == ir.DataType.BOOL:
            filler = filler > 0
        elif dtype.is_integer():
            limits = np.iinfo(dtype.numpy())
            filler = int(min(max(filler, limits.min), limits.max))
        held = em.constant(np.array(filler).astype(dtype.numpy()), "hidden")
        return where(em, in_use, wide, held, hint="hidden")

    def again(self, view: NodeView, *inputs: ir.Value | None) -> tuple[ir.Value, ...]:
        """Add the same node with other inputs: by default with the wide forms of its own."""
        node = view.node
        inputs = inputs or tuple(None if v is None else self.of(v) for v in node.inputs)
        dtypes = [self.dtype(output) for output in node.outputs]
        new = self.em.multi(node.op_type, *inputs, dtypes=dtypes)
        made = new[0].producer()
        assert made is not None
        for attribute in node.attributes.values():
            made.attributes[attribute.name] = attribute
        return new


Wide = ir.Value | tuple[ir.Value, ...]
"""The wide form of the only output of a node, or of each output."""

Rule = Callable[[NodeView, Widened], Wide]


# Scatters, slices and gathers.


def scattered(view: NodeView, state: Widened) -> Wide:
    """Write at the same indices, if no index depends on the rows.

    Otherwise each element must be written at its own place, and the result is the updates.
    """
    data, indices, updates = view.operands("data", "indices", "updates")
    depth, sizes, given = state.sizes(indices)[-1] or 0, state.sizes(data), state.sizes(updates)
    outer, inner = given[: depth - len(sizes)], given[depth - len(sizes) :]
    places = (*state.sizes(indices), *sizes[:depth], *outer)
    if 0 < depth < len(sizes) and inner == sizes[depth:] and not is_grown(places):
        return state.again(view, state.of(data), indices, state.of(updates))
    shape = state.target(data)
    targets = state.target(updates), state.target(indices)
    is_plain = view.attribute("reduction") in (None, "none")
    if not is_plain or targets != (shape, [*shape, len(shape)]):
        raise Stuck("`ScatterND` does not write all elements")
    held = state.maps().of(state.of(indices))
    for axis, size in enumerate(shape):
        place = held.component(axis)
        own = ZERO if size == 1 else coordinate(axis)
        if place is None or place.element != own:
            raise Stuck("`ScatterND` is not known to write each element at its own place")
    return state.em.op("Identity", state.of(updates))


def sliced(view: NodeView, state: Widened) -> Wide:
    """Cut along one axis after the other."""
    data, output = view.required("data"), view.node.outputs[0]
    before, after = state.sizes(data), state.sizes(output)
    starts, ends = view.operands("starts", "ends")
    axes, steps = view.input("axes"), view.input("steps")
    which = [*range(len(before))] if axes is None else state.folder.listed(axes)
    stride = [] if steps is None else state.folder.listed(steps)
    if not which or stride is None:
        raise Stuck("the axes of `Slice` are not constant")
    if {*stride} - {1}:
        raise Stuck("`Slice` does not take one row after the other")
    value = state.of(data)
    for number, axis in enumerate(which):
        limits = [
            limit if len(which) == 1 else _element(limit, number, state) for limit in (starts, ends)
        ]
        sizes = before[axis], after[axis]
        value = _cut(value, axis % len(before), sizes, (limits[0], limits[1]), state)
    return state.em.op("Identity", value)


def _element(vector: ir.Value, number: int, state: Widened) -> ir.Value:
    known = state.folder.listed(vector)
    if known is not None:
        return state.em.constant([known[number]], "limit")
    return state.em.op("Gather", vector, [number])


def _cut(
    value: ir.Value,
    axis: int,
    sizes: tuple[Size, Size],
    limits: tuple[ir.Value, ir.Value],
    state: Widened,
) -> ir.Value:
    """Cut a value along one axis; `sizes` are those of the axis before and after, in the source."""
    em, (before, after), (start, end) = state.em, sizes, limits
    first = next(iter(state.folder.listed(start) or ()), None)
    if after == GROWN and first == 0:
        if before in (GROWN, LONGER):
            return value
        if before is None:
            raise Stuck("it is unknown how many rows the table has that `Slice` cuts")
        if 0 <= before < state.capacity:
            raise Stuck(
                f"a table of {before} rows is shorter than the caches of {state.capacity} rows"
            )
        return em.op("Slice", value, start, [state.capacity], [axis])
    if after == GROWN and before is not None and before > 0:
        # As many rows as are in use, from anywhere: those behind them stand for no row.
        place = _from_front(start, em.constant([before], "rows"), em)
        first_row = em.op("Max", place, [0])
        rows = em.op("Add", first_row, np.arange(state.capacity, dtype=np.int64))
        there = em.op("Min", rows, [before - 1])
        return em.op("Gather", value, there, axis=axis)
    if after == GROWN:
        raise Stuck("`Slice` does not begin with the first of the rows in use")
    if before is not None and before <= LONGER:
        if before == after and first == 0:
            return value
        raise Stuck("`Slice` cuts what is of no known length")
    if before == GROWN:
        if after is None:
            raise Stuck("it is unknown how many rows `Slice` takes")
        place = _from_front(start, state.count, em)
        rows = em.op("Add", place, np.arange(after, dtype=np.int64))
        return em.op("Gather", value, rows, axis=axis)
    return em.op("Slice", value, start, end, [axis])


def gathered(view: NodeView, state: Widened) -> Wide:
    """Look up rows; indices of rows that are not in use are limited to the table."""
    data, indices = view.operands("data", "indices")
    sizes = state.sizes(data)
    axis = view.integer("axis") % len(sizes)
    places, table = state.of(indices), state.of(data)
    if sizes[axis] == LONGER:
        raise Stuck("`Gather` looks up what is of no known length")
    if sizes[axis] == GROWN:
        if is_grown(state.sizes(indices)):
            raise Stuck("`Gather` takes as many rows as are in use from these")
        known = state.folder.listed(places)
        if known is None or any(number < 0 for number in known):
            places = _from_front(places, state.em.op("Squeeze", state.count), state.em)
    elif is_grown(state.sizes(indices)):
        size = sizes[axis]
        if size is None and set(sizes) <= {None, 1} and axis == 0:
            table, size = _flattened(data, len(sizes), state)
            places = _in_flattened(places, size // state.capacity, state)
        if size is None or size < 1:
            raise Stuck(f"the size of `{data.name}` is unknown")
        places = _limited(places, (-size, size - 1), state)
    return state.again(view, table, places)


def _limited(places: ir.Value, limits: tuple[int, int], state: Widened) -> ir.Value:
    dtype = state.dtype(places).numpy()
    low, high = (np.array(n).astype(dtype) for n in limits)
    return state.em.op("Max", state.em.op("Min", places, high), low)


def viewed(node: ir.Node) -> ir.Value | None:
    """Return the input that a node reshapes; None for any other node."""
    is_view = node.domain == "" and Trait.VIEW in traits(node)
    return node.inputs[0] if is_view and node.inputs else None


def _flattened(data: ir.Value, rank: int, state: Widened) -> tuple[ir.Value, int]:
    """Return the wide form of flattened rows in use, and its number of rows."""
    for value, _ in upwards(data, viewed):
        sizes = state.grown.shapes.get(value, ())
        if GROWN not in sizes or value not in state.wide:
            continue
        here = sizes.index(GROWN)
        numbers = [size for size in sizes[:here] if size is not None and size > 0]
        if len(numbers) == here and set(sizes[here + 1 :]) <= {1}:
            count = math.prod(numbers) * state.capacity
            shape = [count, *[1] * (rank - 1)]
            return state.em.op("Reshape", state.of(value), shape), count
    raise Stuck(f"the size of `{data.name}` is unknown")


def _in_flattened(places: ir.Value, sequences: int, state: Widened) -> ir.Value:
    """Return places in the wide form, given those in sequences of the rows in use."""
    em, count = state.em, state.count
    every = em.op("Mul", count, [sequences])
    place = _from_front(places, every, em)
    sequence = em.op("Div", place, count)
    row = em.op("Sub", place, em.op("Mul", sequence, count))
    return em.op("Add", em.op("Mul", sequence, [state.capacity]), row)


def looked_up(view: NodeView, state: Widened) -> Wide:
    """Look up elements by tuples of coordinates and constants, all of them within the data."""
    data, indices = view.operands("data", "indices")
    sizes, tuples = state.target(data), state.of(indices)
    depth = state.sizes(indices)[-1]
    if view.integer("batch_dims") != 0 or depth is None or depth < 1:
        raise Stuck("`GatherND` looks up each sequence by itself")
    shape = state.target(indices)
    held, facts = state.maps().of(tuples), Facts(tuple(map(integer, shape)))
    for axis in range(depth):
        place = held.component(axis)
        element = None if place is None else place.element
        low, high = (-1, 0) if element is None else interval(element, facts)
        if low < 0 or high >= sizes[axis]:
            raise Stuck("`GatherND` is not known to look up elements that are there")
    return state.again(view, state.of(data), tuples)


def _from_front(places: ir.Value, count: ir.Value, em: Emitter) -> ir.Value:
    """Return places as int64, counted from the front where they were counted from the end.

    The end of the rows in use is not the end of the wide form.
    """
    wide = em.op("Cast", places, to=7)
    return em.op("Where", em.op("Less", wide, 0), em.op("Add", wide, count), wide)


def rule_of(node: ir.Node, *, joined: bool) -> Rule:
    """Return the rule for a node.

    Args:
        node: The node.
        joined: Whether it reads or gives elements that stand behind the rows in use.

    Raises:
        Stuck: If there is none.
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
        places = _from_front(places, state.em.op("Squeeze", state.count), state.em)
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
    rows = em.op("Gather", state.of(last), _limited(place, (0, count - 1), state), axis=axis)
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
