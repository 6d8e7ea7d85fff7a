"""The operands of a TensorScatter as far as they can be read, whatever is wrong with the node.

The view of the operator refuses a node with an illegal mode or axis; rules about other properties
of such a node still want to be heard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.dimensions import Dim, dims_of
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.simplification import Facts, substitute

__all__ = [
    "FIRST_OPSET",
    "Operands",
    "Start",
    "declared",
    "node_words",
    "operands",
    "rows",
    "shape_words",
]


def node_words(node: ir.Node) -> str:
    """Return what messages call a node: its operator, and its name if it has one."""
    op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"`{op}` node `{node.name}`" if node.name else f"an unnamed `{op}` node"


def shape_words(dims: Sequence[int | str | None] | None) -> str:
    """Return a shape as messages show it, a dimension that is not known as `?`."""
    if dims is None:
        return "of unknown rank"
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


FIRST_OPSET = 24
"""The opset that brought TensorScatter."""


@dataclass(frozen=True, slots=True)
class Operands:
    """What a TensorScatter reads and writes.

    Attributes:
        past: past_cache: (B, ..., S, ..., D).
        update: (B, ..., L, ..., D).
        write_indices: (B,), int64; None where it is absent.
        present: present_cache.
        written_axis: The attribute `axis`, or its default; None where it cannot be read.
        axis: The same counted from the front; None where it is illegal or the rank is unknown.
        mode: The attribute `mode`, or its default; None where it cannot be read.
    """

    past: ir.Value
    update: ir.Value
    write_indices: ir.Value | None
    present: ir.Value
    written_axis: int | None
    axis: int | None
    mode: str | None

    @property
    def past_dims(self) -> tuple[Dim, ...] | None:
        """Dimensions of past_cache; None when its rank is unknown."""
        return dims_of(self.past)

    @property
    def update_dims(self) -> tuple[Dim, ...] | None:
        """Dimensions of the update; None when its rank is unknown."""
        return dims_of(self.update)

    def sizes(self, maps: IndexMaps) -> tuple[Expr, Expr] | None:
        """Return S and L, the sizes of past_cache and update along the axis; None if unknown."""
        past, update = maps.shape(self.past), maps.shape(self.update)
        if self.axis is None or past is None or update is None or len(past) != len(update):
            return None
        return past[self.axis], update[self.axis]


def operands(context: Context, site: Site) -> Operands | None:
    """Return the operands of a TensorScatter; None where a required one is missing.

    A node below opset 24 is read as it would be there: the model may only have the wrong label.
    """
    return context.once(("operands", site.node), lambda: _operands(site))


def _operands(site: Site) -> Operands | None:
    try:
        view = NodeView(site.node, max(site.opset or 0, FIRST_OPSET))
        past, update = view.required("past_cache"), view.required("update")
        indices = view.input("write_indices")
    except MalformedNode:
        return None
    if not site.node.outputs:
        return None
    axis, mode = _integer(view, "axis"), _string(view, "mode")
    shape = past.shape if past.shape is not None else update.shape
    front = None
    if axis is not None and shape is not None and -len(shape) <= axis < len(shape):
        front = axis % len(shape) or None
    return Operands(past, update, indices, site.node.outputs[0], axis, front, mode)


@dataclass(frozen=True, slots=True)
class Start:
    """The start of one batch row, or of every row.

    Attributes:
        row: The batch row; None for an expression that holds for each row.
        first: What `write_indices` holds there.
        facts: What is known of the coordinates of `first`.
    """

    row: int | None
    first: Expr
    facts: Facts

    @property
    def text(self) -> str:
        """The element as people write it: `write_indices[1]=14`."""
        row = "b" if self.row is None else str(self.row)
        number = self.first.number
        return f"write_indices[{row}]={number if number is not None else self.first}"


def rows(context: Context, site: Site, found: Operands) -> tuple[Start, ...]:
    """Return what is known of the starts: constants row by row, otherwise expressions.

    An expression that depends on the row is given for the first and the last row, because a bound
    of it is reached in one of them. Nothing is known of a start that the caller chooses.
    """
    indices = found.write_indices
    if indices is None or (indices.shape is not None and len(indices.shape) > 1):
        return ()
    # The layers of a decoder share their starts.
    return context.once(("starts", indices), lambda: tuple(_rows(context, site, indices)))


def _rows(context: Context, site: Site, indices: ir.Value) -> Iterator[Start]:
    known = context.folder.partial(indices)
    given: set[int] = set()
    if known is not None and known.numbers.ndim <= 1:
        numbers, mask = known.numbers.ravel(), known.known.ravel()
        for row in range(numbers.size):
            if mask[row]:
                given.add(row)
                yield Start(row, integer(int(numbers[row])), Facts())
        if known.complete:
            return
    described = context.index_maps(site).of(indices)
    if not described.known or described.shape is None:
        return
    parts = described.vector()
    if parts is not None:
        yield from (
            Start(row, part, described.facts) for row, part in enumerate(parts) if row not in given
        )
    elif described.element is not None:
        for expr in _ends(described.element, described.shape):
            yield Start(None, expr, described.facts)


def _ends(element: Expr, shape: tuple[Expr, ...]) -> Iterator[Expr]:
    if not shape or not element.depends_on(0):
        yield element
        return
    for place in (integer(0), shape[0] - 1):
        yield substitute(element, {0: place}, Facts(shape))


def declared(value: ir.Value) -> str:
    """Return type and dimensions of a value: `float32[2, 3, 7, 5]`."""
    dtype = "an unknown type" if value.dtype is None else dtype_name(value.dtype)
    dims = dims_of(value)
    return dtype if dims is None else f"{dtype}{shape_words(dims)}"


def _integer(view: NodeView, name: str) -> int | None:
    try:
        return view.integer(name)
    except MalformedNode:
        return None


def _string(view: NodeView, name: str) -> str | None:
    try:
        return view.string(name)
    except MalformedNode:
        return None
