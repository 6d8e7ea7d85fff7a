"""The cache behind an update, the order of its axes, and windows."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.updates import Numbers, operand_of
from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import maker, read_values
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView, given_input
from onnx_kvtool.rewrite.raising.arrangement import Arrangement, compose, seen_through
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate, Roll
from onnx_kvtool.symbolic.expressions import (
    ONE,
    Dimension,
    Element,
    Expr,
    Exprs,
    Modulo,
    coordinate,
    integer,
    text,
    variable,
)
from onnx_kvtool.symbolic.simplification import Facts, largest, simplified

# Slices along one axis: what part of a tensor a value is.


TO_THE_END = 2**31 - 1
"""What exporters write for an end, or more."""


class Cut(NamedTuple):
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
    node = maker(value, "Slice")
    if node is None:
        return None
    view = NodeView(node, proof.opset)
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
    """Return the start and the end of a Slice along one axis in steps of 1.

    Returns:
        The end is None if it is unknown. None for a Slice along another axis, or several, or with
        unknown axes or steps.
    """
    starts, ends, axes, steps = (
        operand_of(view, name, numbers) for name in ("starts", "ends", "axes", "steps")
    )
    if starts is None or len(starts) != 1 or (ends is not None and len(ends) != 1):
        return None
    if axes is None or steps is None:
        return None
    place = axes[0].number if axes else 0
    if place is None or place % rank != axis or (steps and steps[0].number != 1):
        return None
    return starts[0], None if ends is None else ends[0]


def constants(value: ir.Value) -> Exprs | None:
    """Return the elements of a vector of integers that are the same in every run; else None."""
    found = ConstantFolder().integers(value)
    return None if found is None or found.ndim != 1 else tuple(map(integer, found))


def _from_front(place: Expr, size: Expr) -> Expr:
    """Return a place that is counted from the end of an axis as one from its start.

    A slice that would begin in front of the axis begins with it. Its result is then no cache, and
    nothing is proven of it.
    """
    return place + size if (place.number or 0) < 0 else place


# Windows: caches whose rows move up before new ones are written at their end.
#
# Such a cache has its last W rows in order. A circular cache has the same rows, rotated: the row of
# position p is row p modulo W. Nodes that read them in order gather them. The output stays rotated,
# which the caller has to grant.


class Window(NamedTuple):
    """How a window becomes a circular cache.

    Attributes:
        size: W, rows of the cache.
        rows: S, new rows of a step.
        position: The first position of a step; None if the source does not have it, because every
            step moves the rows up by S and writes at the end.
    """

    size: int
    rows: Expr
    position: Expr | None

    def behind(self, position: Expr) -> Expr:
        """Return a number that is, modulo W, the row that stands first in order after a step.

        Returns:
            P + S, the rows so far: the oldest of the last W is overwritten next. If the source
            fills the cache from its first row on, the oldest is row 0 until it is full.
        """
        if self.position is None:
            return position + self.rows
        return largest([position + self.rows, integer(self.size)], Facts())


def roll_of(proof: Proof, value: ir.Value, axis: int) -> Roll | None:
    """Return how a value is another one with its rows rotated.

    Matches a Concat of the two halves of one tensor (`torch.roll`), and a Gather or GatherND of the
    rows `(j + shift) mod W`.

    Returns:
        None for any other value.
    """
    node, shape = maker(value, "Concat", "Gather", "GatherND"), proof.maps.shape(value)
    if node is None or shape is None or axis >= len(shape):
        return None
    if node.op_type == "Concat":
        return _halves(proof, node, axis, len(shape))
    return _gathered(proof, node, axis, shape)


def _halves(proof: Proof, node: ir.Node, axis: int, rank: int) -> Roll | None:
    view = NodeView(node, proof.opset)
    if view.integer("axis") % rank != axis or len(node.inputs) != 2:
        return None
    tail, head = (cut_of(proof, value, axis) for value in read_values(node))
    if tail is None or head is None or tail.source is not head.source:
        return None
    if not tail.is_tail or not head.is_head or tail.low != head.high:
        return None
    low = tail.low.number
    if low is None or not 0 <= low <= (tail.size.number or 0):
        return None  # a slice from beyond the end is empty, and the rows are doubled
    return Roll(tail.source, tail.low, node)


def _gathered(proof: Proof, node: ir.Node, axis: int, shape: Exprs) -> Roll | None:
    view = NodeView(node, proof.opset)
    source, indices = view.operands("data", "indices")
    before = proof.maps.shape(source)
    if before is None or len(before) != len(shape) or before[axis] != shape[axis]:
        return None
    described = proof.maps.of(indices)
    sizes = described.shape or ()
    if node.op_type == "GatherND":
        is_row = view.number("batch_dims") == 0 and axis == 0
        is_row &= len(sizes) == 2 and sizes[-1].number == 1
        rows = described.component(0) if is_row else None
    else:
        is_row = len(sizes) == 1 and view.integer("axis") % len(shape) == axis
        rows = described if is_row else None
    element = None if rows is None else rows.element
    if element is None or not isinstance(element.atom, Modulo) or element.atom.by != shape[axis]:
        return None
    shift = element.atom.of - coordinate(0)
    return None if shift.axes else Roll(source, shift, node)


def windowed(
    proof: Proof, node: ir.Node, found: ProvenUpdate, past: Arrangement, presents: list[ir.Value]
) -> Window:
    """Prove that an update of rows that moved up makes a window of the last rows.

    `past` is `found.data` as an arrangement of the cache, apart from the roll. `presents` are the
    values that are the cache after the step.

    Raises:
        Unproven: If the new rows are not the last ones, if anything else reads the rows in the
            order of the source before the step, if the result does not leave the graph as the cache
            does, or if its order matters to the caller.
    """
    roll = proof.roll
    assert roll is not None
    base = past.base
    shape = proof.maps.shape(base)
    along = past.axes[found.axis]
    size = None if shape is None or along is None else shape[along]
    if size is None or not size.number:
        raise Unproven(
            "window-of-unknown-size", f"the number of rows of the window `{base.name}` is unknown"
        )
    place = found.places[found.axis]
    lengths = (ONE,) if place is None else found.sizes[place]
    window = _at_the_end(roll, found.start, size, lengths) or _filled_first(
        roll, found.start, size, lengths
    )
    if window is None or found.mode != "linear":
        raise Unproven(
            "rows-move",
            f"the rows of `{base.name}` move up by `{text(roll.shift)}`, and "
            f"`{text(lengths[0])}` new ones are written from `{text(found.start)}` on, which is no "
            f"window of the last {text(size)}",
        )
    reader = _other_reader(node, roll, found.data, base)
    if reader is not None:
        raise Unproven(
            "window-read-before",
            f"`{reader.op_type}` reads rows of the window `{base.name}` before the new ones are "
            "written",
        )
    if not base.is_graph_input() or not any(
        value.is_graph_output() and value.graph is base.graph for value in presents
    ):
        raise Unproven(
            "window-not-returned",
            f"the window made of `{base.name}` is not an unchanged output of the model",
        )
    dim = window.rows.atom
    is_said = isinstance(dim, Dimension) and dim.name in proof.carriers
    if window.rows.number is None and not is_said:
        raise Unproven(
            "window-of-unknown-steps",
            f"a step adds `{text(window.rows)}` rows to `{base.name}`, and no input has this size",
        )
    proof.assume(
        "rotated-rows",
        base,
        "rolling-window",
        f"`{base.name}` keeps its last {size.number} rows in their order, and a circular cache "
        "stores them rotated",
    )
    proof.say(
        f"the rows of `{base.name}` move up by `{text(roll.shift)}`, and the new ones are the last "
        f"of {size.number}: a circular cache stores the row of position p as row p % {size.number}"
    )
    return window


def first_of(position: Expr) -> ir.Value | None:
    """Return the input whose first element an expression is; None for any other."""
    atom = position.atom
    if not isinstance(atom, Element) or not atom.value.is_graph_input():
        return None
    return atom.value if all(place.number == 0 for place in atom.index) else None


def _at_the_end(roll: Roll, start: Expr, size: Expr, lengths: Exprs) -> Window | None:
    """Return the window if every step moves the rows up by as many as it adds; else None."""
    rows = next((n for n in lengths if roll.shift == n and start == size - n), None)
    return None if rows is None or size.number is None else Window(size.number, rows, None)


def _filled_first(roll: Roll, start: Expr, size: Expr, lengths: Exprs) -> Window | None:
    """Return the window if it is filled row by row, and moves up once it is full; else None."""
    count = size.number
    if count is None or all(n.number != 1 for n in lengths):
        return None
    last = integer(count - 1)
    for atom in start.atoms():
        position = variable(atom)
        if first_of(position) is None:
            continue
        filling = Facts().given(position, last - position)
        full = Facts().given(position - count)
        if (
            simplified(start, filling) == position
            and simplified(roll.shift, filling).number == 0
            and simplified(start, full) == last
            and simplified(roll.shift, full).number == 1
        ):
            return Window(count, ONE, position)
    return None


def _other_reader(node: ir.Node, roll: Roll, data: ir.Value, base: ir.Value) -> ir.Node | None:
    """Return a node other than the update that reads the rows before it; None without one."""
    values, path = {base}, {node}
    pending = [data] if roll.node is not node else [v for v in node.inputs[:1] if v is not None]
    while pending:
        value = pending.pop()
        producer = value.producer()
        if value in values or producer is None:
            continue
        values.add(value)
        path.add(producer)
        read = producer.inputs if producer.op_type == "Concat" else producer.inputs[:1]
        pending += [v for v in read if v is not None]
    for value in values:
        for reader in value.consumers():
            if reader not in path and reader.op_type not in ("Shape", "Size"):
                return reader
    return None


# The cache behind a scatter, and the order of its axes.


def cache_of(proof: Proof, data: ir.Value, axis: int) -> Arrangement:
    """Return `data` as an arrangement of the cache.

    TensorScatter needs the batch first and the sequence elsewhere. The value furthest up, the input
    of the graph, is preferred, so that transposes around the scatter can go; else the nearest one
    whose first axis is not the sequence. If rows move up before the update, the roll is noted.

    Raises:
        Unproven: If `data` is a constant of the model, if its rows were moved before, or if the
            sequence comes first wherever it is looked at.
    """
    ways = list(seen_through(data, proof.maps))
    along = ways[-1].axes[axis]
    roll = None if along is None else roll_of(proof, ways[-1].base, along)
    if roll is not None:
        proof.roll, moved = roll, ways[-1].axes
        ways = [
            Arrangement(way.base, way.rank, compose(moved, way.axes))
            for way in seen_through(roll.source, proof.maps)
        ]
    _check_state(proof, ways[-1], ways[-1].axes[axis])
    for way in reversed(ways):
        if way.axes[axis] != 0:
            return way
    base = ways[-1].base
    text = f"rows are written along axis 0 of `{base.name}`, and TensorScatter has the batch there"
    node = maker(base, "Reshape")
    if node is not None and (above := given_input(node, 0)):
        text += f"; it has several axes of `{above.name}` in one, as the slots of pages do"
    raise Unproven("batch-not-first", text)


def is_state(proof: Proof, data: ir.Value) -> bool:
    """Return whether `data` is an input, perhaps with its axes rearranged."""
    base = data
    for way in seen_through(data, proof.maps):
        base = way.base
    return base.producer() is None and (not base.is_initializer() or base.is_graph_input())


def _check_state(proof: Proof, way: Arrangement, axis: int | None) -> None:
    """Refuse tensors that are no cache: a constant of the model, and rows moved before.

    Raises:
        Unproven: If it is either.
    """
    base = way.base
    node = base.producer()
    constant = base.is_initializer() and not base.is_graph_input()
    if node is not None and node.domain == "":
        if axis is not None and _moves_rows(proof, node, axis, way.rank):
            raise Unproven(
                "rows-move",
                f"`{base.name}` is made by `{node.op_type}`, which moves rows before they are "
                "updated",
            )
        constant = node.op_type == "Constant"
    if constant:
        raise Unproven(
            "cache-is-initializer",
            f"the cache `{base.name}` is a constant of the model: there is no input to hand it in "
            "by, and what was written is lost after the run",
        )


def _moves_rows(proof: Proof, node: ir.Node, axis: int, rank: int) -> bool:
    """Return whether a node may move the rows of a tensor along an axis, as windows do."""
    if Trait.SHIFTS not in traits(node):
        return False
    if node.op_type not in ("Concat", "Gather", "Slice", "Split"):
        return True
    view = NodeView(node, proof.opset)
    if node.op_type == "Slice":
        cut = operand_of(view, "axes", lambda value: proof.maps.of(value).vector())
        return not cut or any(e.number is None or e.number % rank == axis for e in cut)
    along = view.integer("axis")
    if node.op_type != "Gather":
        return along % rank == axis
    indices = proof.maps.shape(view.required("indices"))
    if indices is None:
        return True
    count = len(indices)
    first = along % (rank + 1 - count)
    return first <= axis < first + count
