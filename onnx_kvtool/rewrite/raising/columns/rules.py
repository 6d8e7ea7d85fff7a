"""The wide form of what one node gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Grown, Size
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.expressions import coordinate, integer
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.simplification import Facts, interval

# What a rule is given that writes the wide form of what a node gives.


def is_grown(sizes: Sequence[Size]) -> bool:
    """Return whether an axis is to be as long as the caches."""
    return GROWN in sizes or LONGER in sizes


class Stuck(Exception):
    """No wide form is known; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class Widened:
    """What a rule is given.

    Attributes:
        em: Where to build.
        grown: What is known of values.
        wide: Wide forms of values that are as long as the rows in use.
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
        """Return what wide values hold, at the sizes of the result."""
        return IndexMaps(self.em.opset, SizeEqualities([*self.grown.dims.items()]))

    def target(self, value: ir.Value) -> list[int]:
        """Return the shape of the wide form of a value.

        Raises:
            Stuck: If a size is no number.
        """
        found = []
        for size in self.sizes(value):
            if size is None:
                raise Stuck(f"a size of `{value.name}` is not known as a number")
            found.append(self.capacity if size < 0 else size)
        return found

    def again(self, view: NodeView, *inputs: ir.Value | None) -> ir.Value:
        """Add the same node with other inputs."""
        node = view.node
        output = node.outputs[0]
        new = self.em.op(node.op_type, *inputs, dtype=self.dtype(output))
        made = new.producer()
        assert made is not None
        for attribute in node.attributes.values():
            made.attributes[attribute.name] = attribute
        return new


Rule = Callable[[NodeView, Widened], ir.Value]


# The wide form of what is cut, looked up and scattered.


def scattered(view: NodeView, state: Widened) -> ir.Value:
    """Return the updates, where each element of the data is written at its own place."""
    data, indices, updates = view.operands("data", "indices", "updates")
    shape = state.target(data)
    if view.attribute("reduction") not in (None, "none") or state.target(updates) != shape:
        raise Stuck("`ScatterND` does not write all elements")
    if state.target(indices) != [*shape, len(shape)]:
        raise Stuck("`ScatterND` does not write all elements")
    held = state.maps().of(state.of(indices))
    for axis, size in enumerate(shape):
        place = held.component(axis)
        own = integer(0) if size == 1 else coordinate(axis)
        if place is None or place.element != own:
            raise Stuck("`ScatterND` is not known to write each element at its own place")
    return state.em.op("Identity", state.of(updates))


def sliced(view: NodeView, state: Widened) -> ir.Value:
    """Cut along one axis after the other."""
    data, output = view.required("data"), view.node.outputs[0]
    before, after = state.sizes(data), state.sizes(output)
    starts, ends = view.operands("starts", "ends")
    axes, steps = view.input("axes"), view.input("steps")
    which = None if axes is None else state.folder.integers(axes)
    stride = None if steps is None else state.folder.integers(steps)
    count = len(before) if which is None and axes is None else 0 if which is None else which.size
    if (axes is not None and which is None) or (steps is not None and stride is None) or not count:
        raise Stuck("the axes of `Slice` are not constant")
    if stride is not None and (stride != 1).any():
        raise Stuck("`Slice` does not take one row after the other")
    value = state.of(data)
    for number in range(count):
        axis = number if which is None else int(which.ravel()[number]) % len(before)
        limits = [
            limit if count == 1 else _element(limit, number, state) for limit in (starts, ends)
        ]
        value = _cut(value, axis, (before[axis], after[axis]), (limits[0], limits[1]), state)
    return state.em.op("Identity", value)


def _element(vector: ir.Value, number: int, state: Widened) -> ir.Value:
    known = state.folder.integers(vector)
    if known is not None:
        return state.em.constant([int(known.ravel()[number])], "limit")
    return state.em.op("Gather", vector, state.em.constant([number], "place"))


def _cut(
    value: ir.Value,
    axis: int,
    sizes: tuple[Size, Size],
    limits: tuple[ir.Value, ir.Value],
    state: Widened,
) -> ir.Value:
    """Cut a value along one axis; `sizes` are those of the axis before and after, in the source."""
    em, (before, after), (start, end) = state.em, sizes, limits
    known = state.folder.integers(start)
    first = None if known is None else int(known.ravel()[0])
    if after == GROWN and first == 0:
        if before is not None and before < 0:
            return value
        if before is None:
            raise Stuck("it is not known how many rows the table has that `Slice` cuts")
        if before < state.capacity:
            raise Stuck(
                f"a table of {before} rows is shorter than the caches of {state.capacity} rows"
            )
        ends = em.constant([state.capacity], "capacity")
        return em.op("Slice", value, start, ends, em.constant([axis], "axes"))
    if after == GROWN and before is not None and before > 0:
        # As many rows as are in use, from anywhere: those behind them stand for no row.
        place = _from_front(start, em.constant([before], "rows"), em)
        first_row = em.op("Max", place, em.constant([0], "first"))
        rows = em.op("Add", first_row, em.constant(np.arange(state.capacity, dtype=np.int64)))
        there = em.op("Min", rows, em.constant([before - 1], "last"))
        return em.op("Gather", value, there, axis=axis)
    if after == GROWN:
        raise Stuck("`Slice` does not begin with the first of the rows in use")
    if before == LONGER:
        raise Stuck("`Slice` cuts what is of no known length")
    if before == GROWN:
        if after is None:
            raise Stuck("it is not known how many rows `Slice` takes")
        place = _from_front(start, state.count, em)
        rows = em.op("Add", place, em.constant(np.arange(after, dtype=np.int64), "rows"))
        return em.op("Gather", value, rows, axis=axis)
    return em.op("Slice", value, start, end, em.constant([axis], "axes"))


def gathered(view: NodeView, state: Widened) -> ir.Value:
    """Look up rows; those that are asked for in the name of no row in use may not exist."""
    data, indices = view.operands("data", "indices")
    sizes = state.sizes(data)
    axis = view.integer("axis") % len(sizes)
    places = state.of(indices)
    if sizes[axis] == LONGER:
        raise Stuck("`Gather` looks up what is of no known length")
    if sizes[axis] == GROWN:
        if is_grown(state.sizes(indices)):
            raise Stuck("`Gather` takes as many rows as are in use from these")
        known = state.folder.integers(places)
        if known is None or (known < 0).any():
            places = _from_front(places, state.em.op("Squeeze", state.count), state.em)
    elif is_grown(state.sizes(indices)):
        size = sizes[axis]
        if size is None or size < 1:
            raise Stuck(f"the size of `{data.name}` is not known")
        dtype = state.dtype(indices)
        low, high = (
            state.em.constant(np.array(n).astype(dtype.numpy()), "limit") for n in (-size, size - 1)
        )
        most = state.em.op("Min", places, high)
        places = state.em.op("Max", most, low)
    return state.again(view, state.of(data), places)


def looked_up(view: NodeView, state: Widened) -> ir.Value:
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
        if place is None or place.element is None:
            raise Stuck("`GatherND` is not known to look up elements that are there")
        low, high = interval(place.element, facts)
        if low < 0 or high >= sizes[axis]:
            raise Stuck("`GatherND` is not known to look up elements that are there")
    return state.again(view, state.of(data), tuples)


def _from_front(places: ir.Value, count: ir.Value, em: Emitter) -> ir.Value:
    """Return places that are not counted from the end of the rows in use, (.., int64).

    Of caches of a fixed capacity that end is another.
    """
    wide = em.op("Cast", places, to=7)
    zero = em.constant(np.array(0, np.int64), "zero")
    behind = em.op("Less", wide, zero)
    return em.op("Where", behind, em.op("Add", wide, count), wide)


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
        return state.em.op("Identity", state.of(data))
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
    return state.em.op("Add", start, numbers)


def _summed(view: NodeView, state: Widened) -> ir.Value:
    """Sum from the front, where what is added last is not looked at before."""
    data, axis = view.operands("x", "axis")
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
