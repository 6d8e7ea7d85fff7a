"""What the rules of wide forms share, and those of scatters, slices and gathers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.walk import upwards
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import where
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Grown, Size
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes
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


class Widened(NodeView):
    """A node as a rule sees it.

    Attributes:
        grown: Which values are as long as the rows in use.
        wide: Their wide forms.
        count: The rows in use, (1,), int64.
    """

    def __init__(
        self,
        node: ir.Node,
        em: Emitter,
        grown: Grown,
        wide: Mapping[ir.Value, ir.Value],
        count: ir.Value,
        folder: ConstantFolder,
    ) -> None:
        super().__init__(node, em.opset)
        self.em, self.grown, self.wide = em, grown, wide
        self.capacity, self.count, self.folder = grown.capacity, count, folder

    @property
    def after(self) -> tuple[Size, ...]:
        """The sizes of the result."""
        return self.sizes(self.node.outputs[0])

    def shape(self) -> ir.Value:
        """Return the shape of the wide form of the result, as a constant."""
        return self.em.constant(self.target(self.node.outputs[0]), "shape")

    def sizes(self, value: ir.Value) -> tuple[Size, ...]:
        """Return the sizes of a value. Raise Stuck if its rank is unknown."""
        found = self.grown.shapes.get(value)
        if found is not None:
            return found
        dims = fixed_sizes(dims_of(value))
        if dims is None:
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
        """Return the shape of the wide form of a value. Raise Stuck if a size is no number."""
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

    def again(self, *inputs: ir.Value | None) -> tuple[ir.Value, ...]:
        """Add the same node with other inputs: by default with the wide forms of its own."""
        node = self.node
        inputs = inputs or tuple(None if v is None else self.of(v) for v in node.inputs)
        dtypes = [self.dtype(output) for output in node.outputs]
        new = self.em.multi(node.op_type, *inputs, dtypes=dtypes)
        self.em.nodes[-1].attributes.update(node.attributes)
        return new


Wide = ir.Value | tuple[ir.Value, ...]
"""The wide form of the only output of a node, or of each output."""

Rule = Callable[[Widened], Wide]


# Scatters, slices and gathers.


def scattered(view: Widened) -> Wide:
    """Write at the same indices, if no index depends on the rows.

    Otherwise each element must be written at its own place, and the result is the updates.
    """
    data, indices, updates = view.operands("data", "indices", "updates")
    depth, sizes, given = view.sizes(indices)[-1] or 0, view.sizes(data), view.sizes(updates)
    outer, inner = given[: depth - len(sizes)], given[depth - len(sizes) :]
    places = (*view.sizes(indices), *sizes[:depth], *outer)
    if 0 < depth < len(sizes) and inner == sizes[depth:] and not is_grown(places):
        return view.again(view.of(data), indices, view.of(updates))
    shape = view.target(data)
    targets = view.target(updates), view.target(indices)
    is_plain = view.attribute("reduction") in (None, "none")
    if not is_plain or targets != (shape, [*shape, len(shape)]):
        raise Stuck("`ScatterND` does not write all elements")
    held = view.maps().of(view.of(indices))
    for axis, size in enumerate(shape):
        place = held.component(axis)
        own = ZERO if size == 1 else coordinate(axis)
        if place is None or place.element != own:
            raise Stuck("`ScatterND` is not known to write each element at its own place")
    return view.em.op("Identity", view.of(updates))


def sliced(view: Widened) -> Wide:
    """Cut along one axis."""
    rank = len(view.sizes(view.required("data")))
    axes, steps = view.input("axes"), view.input("steps")
    which = [*range(rank)] if axes is None else view.folder.listed(axes)
    stride = [] if steps is None else view.folder.listed(steps)
    if not which or stride is None:
        raise Stuck("the axes of `Slice` are not constant")
    if {*stride} - {1}:
        raise Stuck("`Slice` does not take one row after the other")
    if len(which) > 1:
        raise Stuck("`Slice` cuts along several axes")
    return view.em.op("Identity", _cut(view, which[0] % rank))


def _cut(view: Widened, axis: int) -> ir.Value:
    """Cut along one axis."""
    data, start, end = view.operands("data", "starts", "ends")
    em, value = view.em, view.of(data)
    before, after = view.sizes(data)[axis], view.after[axis]
    first = next(iter(view.folder.listed(start) or ()), None)
    if after == GROWN and first == 0:
        if before in (GROWN, LONGER):
            return value
        if before is None:
            raise Stuck("it is unknown how many rows the table has that `Slice` cuts")
        if 0 <= before < view.capacity:
            raise Stuck(
                f"a table of {before} rows is shorter than the caches of {view.capacity} rows"
            )
        return em.op("Slice", value, start, [view.capacity], [axis])
    if after == GROWN and before is not None and before > 0:
        # As many rows as are in use, from anywhere: those behind them stand for no row.
        place = from_front(start, em.constant([before], "rows"), em)
        first_row = em.op("Max", place, [0])
        rows = em.op("Add", first_row, np.arange(view.capacity, dtype=np.int64))
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
        place = from_front(start, view.count, em)
        rows = em.op("Add", place, np.arange(after, dtype=np.int64))
        return em.op("Gather", value, rows, axis=axis)
    return em.op("Slice", value, start, end, [axis])


def gathered(view: Widened) -> Wide:
    """Look up rows; indices of rows that are not in use are limited to the table."""
    data, indices = view.operands("data", "indices")
    sizes = view.sizes(data)
    axis = view.integer("axis") % len(sizes)
    places, table = view.of(indices), view.of(data)
    if sizes[axis] == LONGER:
        raise Stuck("`Gather` looks up what is of no known length")
    if sizes[axis] == GROWN:
        if is_grown(view.sizes(indices)):
            raise Stuck("`Gather` takes as many rows as are in use from these")
        known = view.folder.listed(places)
        if known is None or any(number < 0 for number in known):
            places = from_front(places, view.em.op("Squeeze", view.count), view.em)
    elif is_grown(view.sizes(indices)):
        size = sizes[axis]
        if size is None and set(sizes) <= {None, 1} and axis == 0:
            table, size = _flattened(data, len(sizes), view)
            places = _in_flattened(places, size // view.capacity, view)
        if size is None or size < 1:
            raise Stuck(f"the size of `{data.name}` is unknown")
        places = limited(places, (-size, size - 1), view)
    return view.again(table, places)


def limited(places: ir.Value, limits: tuple[int, int], view: Widened) -> ir.Value:
    """Return places within two limits, both included."""
    dtype = view.dtype(places).numpy()
    low, high = (np.array(n).astype(dtype) for n in limits)
    return view.em.op("Max", view.em.op("Min", places, high), low)


def viewed(node: ir.Node) -> ir.Value | None:
    """Return the input that a node reshapes; None for any other node."""
    is_view = node.domain == "" and Trait.VIEW in traits(node)
    return node.inputs[0] if is_view and node.inputs else None


def _flattened(data: ir.Value, rank: int, view: Widened) -> tuple[ir.Value, int]:
    """Return the wide form of flattened rows in use, and its number of rows."""
    for value, _ in upwards(data, viewed):
        sizes = view.grown.shapes.get(value, ())
        if GROWN not in sizes or value not in view.wide:
            continue
        here = sizes.index(GROWN)
        numbers = [size for size in sizes[:here] if size is not None and size > 0]
        if len(numbers) == here and set(sizes[here + 1 :]) <= {1}:
            count = math.prod(numbers) * view.capacity
            shape = [count, *[1] * (rank - 1)]
            return view.em.op("Reshape", view.of(value), shape), count
    raise Stuck(f"the size of `{data.name}` is unknown")


def _in_flattened(places: ir.Value, sequences: int, view: Widened) -> ir.Value:
    """Return places in the wide form, given those in sequences of the rows in use."""
    em, count = view.em, view.count
    every = em.op("Mul", count, [sequences])
    place = from_front(places, every, em)
    sequence = em.op("Div", place, count)
    row = em.op("Sub", place, em.op("Mul", sequence, count))
    return em.op("Add", em.op("Mul", sequence, [view.capacity]), row)


def looked_up(view: Widened) -> Wide:
    """Look up elements by tuples of coordinates and constants, all of them within the data."""
    data, indices = view.operands("data", "indices")
    sizes, tuples = view.target(data), view.of(indices)
    depth = view.sizes(indices)[-1]
    if view.integer("batch_dims") != 0 or depth is None or depth < 1:
        raise Stuck("`GatherND` looks up each sequence by itself")
    shape = view.target(indices)
    held, facts = view.maps().of(tuples), Facts(tuple(map(integer, shape)))
    for axis in range(depth):
        place = held.component(axis)
        element = None if place is None else place.element
        low, high = (-1, 0) if element is None else interval(element, facts)
        if low < 0 or high >= sizes[axis]:
            raise Stuck("`GatherND` is not known to look up elements that are there")
    return view.again(view.of(data), tuples)


def from_front(places: ir.Value, count: ir.Value, em: Emitter) -> ir.Value:
    """Return places as int64, counted from the front where they were counted from the end.

    The end of the rows in use is not the end of the wide form.
    """
    wide = em.op("Cast", places, to=7)
    return em.op("Where", em.op("Less", wide, 0), em.op("Add", wide, count), wide)
