"""Windows: caches whose rows move up before new ones are written at their end.

Such a cache holds its last W rows in order. A circular cache holds the same rows, rotated: the row
of position p is row p modulo W. Whoever reads them in order gathers them; the cache that leaves the
graph stays rotated, which the caller has to grant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.view import NodeView, given_integer
from onnx_kvtool.rewrite.raising.arrangement import Arrangement
from onnx_kvtool.rewrite.raising.cuts import cut_of
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate, Roll
from onnx_kvtool.symbolic.expressions import (
    Dimension,
    Element,
    Expr,
    Modulo,
    coordinate,
    integer,
    text,
    variable,
)
from onnx_kvtool.symbolic.simplification import Facts, largest, simplified

__all__ = ["Window", "first_of", "roll_of", "windowed"]


@dataclass(frozen=True, slots=True)
class Window:
    """How a window becomes a circular cache.

    Attributes:
        size: W, rows of the cache.
        rows: S, new rows of a step.
        position: The first position of a step, where the source has it; None where it does not
            need it, because every step moves the rows up by S and writes at the end.
    """

    size: int
    rows: Expr
    position: Expr | None

    def behind(self, position: Expr) -> Expr:
        """Return a number that is, modulo W, the row that stands first in order after a step.

        Args:
            position: The first position of the step, P.

        Returns:
            P + S, the rows so far: the oldest of the last W is the next to be overwritten. Where
            the source fills the cache from its first row on, the oldest is row 0 up to then.
        """
        if self.position is None:
            return position + self.rows
        return largest([position + self.rows, integer(self.size)], Facts())


def roll_of(proof: Proof, value: ir.Value, axis: int) -> Roll | None:
    """Return how a value is another one with all its rows moved up, those above the top below.

    Read are a Concat of the two halves of one tensor (`torch.roll`), and a Gather or GatherND of
    the rows `(j + shift) mod W`.

    Args:
        proof: The attempt.
        value: The value.
        axis: Its axis of the rows.

    Returns:
        None for any other value.
    """
    node = value.producer()
    shape = proof.maps.shape(value)
    if node is None or node.domain != "" or shape is None or axis >= len(shape):
        return None
    if node.op_type == "Concat":
        return _halves(proof, node, axis, len(shape))
    if node.op_type in ("Gather", "GatherND"):
        return _gathered(proof, node, axis, shape)
    return None


def _halves(proof: Proof, node: ir.Node, axis: int, rank: int) -> Roll | None:
    view = NodeView(node, node.version if node.version is not None else proof.opset)
    if view.integer("axis") % rank != axis or len(node.inputs) != 2:
        return None
    cuts = [None if v is None else cut_of(proof, v, axis) for v in node.inputs]
    tail, head = cuts
    if tail is None or head is None or tail.source is not head.source:
        return None
    if not tail.is_tail or not head.is_head or tail.low != head.high:
        return None
    low = tail.low.number
    if low is None or not 0 <= low <= (tail.size.number or 0):
        return None  # a slice from beyond the end is empty, and the rows are doubled
    return Roll(tail.source, tail.low, node)


def _gathered(proof: Proof, node: ir.Node, axis: int, shape: tuple[Expr, ...]) -> Roll | None:
    view = NodeView(node, node.version if node.version is not None else proof.opset)
    source, indices = view.required("data"), view.required("indices")
    before = proof.maps.shape(source)
    if before is None or len(before) != len(shape) or before[axis] != shape[axis]:
        return None
    described = proof.maps.of(indices)
    if node.op_type == "GatherND":
        whole = given_integer(node, "batch_dims", 0) == 0 and axis == 0  # from opset 12 on
        component = described.component(0)
        is_row = described.shape is not None and len(described.shape) == 2
        element = component.element if whole and is_row and component is not None else None
        if not described.shape or described.shape[-1].number != 1:
            element = None
    else:
        is_row = described.shape is not None and len(described.shape) == 1
        element = (
            described.element if is_row and view.integer("axis") % len(shape) == axis else None
        )
    if element is None or not isinstance(element.atom, Modulo) or element.atom.by != shape[axis]:
        return None
    shift = element.atom.of - coordinate(0)
    return None if shift.axes else Roll(source, shift, node)


def windowed(
    proof: Proof, node: ir.Node, found: ProvenUpdate, past: Arrangement, presents: list[ir.Value]
) -> Window:
    """Prove that rows which move up and are then updated are a window of the last rows.

    Args:
        proof: The attempt, with its `roll`.
        node: The node that writes the new rows.
        found: What it writes, into the rows that were moved.
        past: The cache, which `found.data` is an arrangement of, but for the roll.
        presents: The values that are the cache after the step.

    Raises:
        Unproven: If the new rows are not the last ones, if anything else reads the rows in the
            order of the source before the step, if the result does not leave the graph as the
            cache does, or if its order matters to the caller.
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
    lengths = (integer(1),) if place is None else found.sizes[place]
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
            f"the window made of `{base.name}` does not go out of the model as it came in",
        )
    if not _is_said(proof.carriers, window.rows):
        raise Unproven(
            "window-of-unknown-steps",
            f"a step adds `{text(window.rows)}` rows to `{base.name}`, which no input says",
        )
    proof.assume(
        "rotated-rows",
        base,
        "rolling-window",
        f"`{base.name}` keeps its last {size.number} rows in their order, and a circular cache "
        "holds them rotated",
    )
    proof.say(
        f"the rows of `{base.name}` move up by `{text(roll.shift)}`, and the new ones are the last "
        f"of {size.number}: a circular cache holds the row of position p as row p mod {size.number}"
    )
    return window


def _is_said(carriers: Mapping[str, tuple[ir.Value, int]], rows: Expr) -> bool:
    """Return whether the new rows of a step are a number, or as many as an axis of an input."""
    if rows.number is not None:
        return True
    atom = rows.atom
    if not isinstance(atom, Dimension) or atom.name not in carriers:
        return False
    return carriers[atom.name][0].is_graph_input()


def first_of(position: Expr) -> ir.Value | None:
    """Return the input whose first element an expression is; None for any other."""
    atom = position.atom
    if not isinstance(atom, Element) or not atom.value.is_graph_input():
        return None
    return atom.value if all(place.number == 0 for place in atom.index) else None


def _at_the_end(roll: Roll, start: Expr, size: Expr, lengths: tuple[Expr, ...]) -> Window | None:
    """Return the window whose every step moves the rows up by as many as it adds."""
    rows = next((n for n in lengths if roll.shift == n and start == size - n), None)
    return None if rows is None or size.number is None else Window(size.number, rows, None)


def _filled_first(roll: Roll, start: Expr, size: Expr, lengths: tuple[Expr, ...]) -> Window | None:
    """Return the window of single rows which is filled from its first row on, and then moves up."""
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
            return Window(count, integer(1), position)
    return None


def _other_reader(node: ir.Node, roll: Roll, data: ir.Value, base: ir.Value) -> ir.Node | None:
    """Return a node beside the update that reads the rows in their order before it."""
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
