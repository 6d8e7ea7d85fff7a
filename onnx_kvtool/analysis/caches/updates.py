"""What a node does to a cache, read through the view of its operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import CacheKind
from onnx_kvtool.analysis.caches.links import base
from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.ops.contrib import CONTRIB_ATTENTIONS, ContribAttention
from onnx_kvtool.ops.contrib_schema import DOMAIN
from onnx_kvtool.ops.scatter import ScatterElements, ScatterND
from onnx_kvtool.ops.tensor_scatter import Mode, TensorScatter
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["OPERATORS", "Update", "updates"]


@dataclass(frozen=True, slots=True)
class Update:
    """One way in which a node updates a tensor.

    Attributes:
        node: The node.
        kind: What it is.
        past: The tensor; None when the operator starts from nothing.
        present: The updated one; None when the operator does not hand it out.
        update: The value with the new rows; None when it is not a value of the graph.
        write_indices: The value that says where they go.
        axis: The sequence axis of `past`, negative where the node counts it from the back.
        mode: Whether positions wrap.
        is_growing: Whether the present has the rows of the past and the new ones.
        batch_axis: The axis of the sequences of a batch; None when the operator does not say.
        reads: Positions of the inputs of the node through which it takes `past`.
        shares: Whether the operator writes into the past when past and present are one buffer,
            though their declared shapes differ.
        is_native: Whether the operator exists for caches, so that every use of it is one.
        indices: The positions or the mask, for the kinds that have them in a value.
        copies: Why the operator makes a new tensor of its own in any case.
        head_size: Size of the last axis of `past`, as the other inputs of the node have it.
    """

    node: ir.Node
    kind: CacheKind
    past: ir.Value | None
    present: ir.Value | None
    update: ir.Value | None
    write_indices: ir.Value | None = None
    axis: int | None = None
    mode: Mode | None = None
    is_growing: bool = False
    batch_axis: int | None = None
    reads: tuple[int, ...] = (0,)
    shares: bool = False
    is_native: bool = False
    indices: ir.Value | None = None
    copies: str | None = None
    head_size: int | None = None


def updates(node: ir.Node, opset: int) -> Iterator[Update]:
    """Yield what `node` may update, without asking where the tensors come from or go to.

    A node that its schema does not allow has no meaning and yields nothing; only a TensorScatter is
    taken for one all the same, its axis and mode unknown.

    Args:
        node: A node of one of `OPERATORS`.
        opset: Version of the default domain where it stands.
    """
    try:
        if node.domain == DOMAIN and node.op_type in CONTRIB_ATTENTIONS:
            yield from _contrib(node)
        elif node.domain in DEFAULT_DOMAINS and node.op_type in _STANDARD:
            yield from _STANDARD[node.op_type](node, opset)
    except MalformedNode:
        return


def _tensor_scatter(node: ir.Node, opset: int) -> Iterator[Update]:
    axis: int | None = None
    mode: Mode | None = None
    try:
        view = TensorScatter(node, opset)
        mode = view.mode
        axis = view.axis if view.sequence_axis is None else view.sequence_axis
    except MalformedNode:
        if len(node.inputs) < 2 or None in node.inputs[:2] or not node.outputs:
            return
    yield Update(
        node,
        "tensor_scatter",
        node.inputs[0],
        node.outputs[0],
        node.inputs[1],
        node.inputs[2] if len(node.inputs) > 2 else None,
        axis,
        mode,
        batch_axis=0,
        is_native=True,
    )


def _scatter_nd(node: ir.Node, opset: int) -> Iterator[Update]:
    view = ScatterND(node, opset)
    if view.reduction != "none":
        return
    depth = dims_of(view.indices)
    # An index of one component counts along the first axis; more need a proof of what each holds.
    axis = 0 if depth and depth[-1] == 1 else None
    yield Update(
        node, "scatter_nd", view.data, view.output, view.updates, axis=axis, indices=view.indices
    )


def _scatter_elements(node: ir.Node, opset: int) -> Iterator[Update]:
    view = ScatterElements(node, opset)
    if view.reduction != "none":
        return
    yield Update(
        node,
        "scatter_elements",
        view.data,
        view.output,
        view.updates,
        axis=view.axis,
        indices=view.indices,
    )


def _concat(node: ir.Node, opset: int) -> Iterator[Update]:
    view = NodeView(node, opset)
    values = [v for v in node.inputs if v is not None]
    if len(values) < 2 or len(values) != len(node.inputs):
        return
    bases = [base(v) for v in values]
    past = bases[0]
    new = next((v for v, b in zip(values, bases, strict=True) if b is not past), None)
    if new is None:
        return  # rolled, which is no update
    if _is_convolved(node.outputs[0]):
        return  # the positions that a convolution reaches back to
    whole = values[0] is past
    yield Update(
        node,
        "concat",
        past,
        node.outputs[0],
        new,
        axis=view.integer("axis"),
        is_growing=whole,
        reads=tuple(i for i, b in enumerate(bases) if b is past) if whole else (),
        copies="`Concat` makes a new tensor of the rows of both",
    )


def _is_convolved(value: ir.Value, steps: int = 4) -> bool:
    """Return whether a convolution reads a value, as it is or arranged or cast."""
    for use in value.uses():
        kinds = traits(use.node)
        if use.idx != 0:
            continue
        if Trait.CONVOLVES in kinds:
            return True
        hands_on = steps > 0 and kinds.any(Trait.REARRANGES, Trait.CASTS)
        if hands_on and _is_convolved(use.node.outputs[0], steps - 1):
            return True
    return False


def _where(node: ir.Node, opset: int) -> Iterator[Update]:
    NodeView(node, opset)
    condition, yes, no = node.inputs
    assert condition is not None and yes is not None and no is not None
    for past, new, index in ((no, yes, 2), (yes, no, 1)):
        axis = _chosen_axis(condition, new)
        yield Update(
            node, "where", past, node.outputs[0], new, axis=axis, reads=(index,), indices=condition
        )


def _mix(node: ir.Node, opset: int) -> Iterator[Update]:
    """Read `past * (1 - m) + m * new`, which is a Where for a mask m of zeros and ones."""
    NodeView(node, opset)
    products = [_factors(v) for v in node.inputs]
    if len(products) != 2:
        return
    for kept, chosen in (products, products[::-1]):
        for past, keep in (kept, kept[::-1]):
            mask = _complement(keep)
            for new, choose in (chosen, chosen[::-1]):
                if past is None or mask is None or choose is not mask:
                    continue
                axis = _chosen_axis(mask, new)
                yield Update(
                    node, "where", past, node.outputs[0], new, axis=axis, reads=(), indices=mask
                )


def _factors(value: ir.Value | None) -> tuple[ir.Value | None, ir.Value | None]:
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Mul" or len(node.inputs) != 2:
        return None, None
    return node.inputs[0], node.inputs[1]


def _complement(value: ir.Value | None) -> ir.Value | None:
    """Return m for `Sub(c, m)`."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Sub" or len(node.inputs) != 2:
        return None
    return node.inputs[1]


def _chosen_axis(mask: ir.Value, new: ir.Value | None) -> int | None:
    """Return the axis along which `mask` picks the row that `new` has; None when unclear."""
    picked, given = dims_of(mask), dims_of(new)
    if picked is None or given is None or len(picked) != len(given):
        return None
    axes = [i for i, d in enumerate(picked) if i > 0 and d != 1]
    return axes[0] if len(axes) == 1 and given[axes[0]] == 1 else None


def _attention(node: ir.Node, opset: int) -> Iterator[Update]:
    view = Attention(node, opset)
    for past, present, new, index in (
        (view.past_key, view.outputs.get("present_key"), view.key, 4),
        (view.past_value, view.outputs.get("present_value"), view.value, 5),
    ):
        if past is not None or present is not None:
            yield Update(
                node,
                "attention",
                past,
                present,
                new,
                axis=2,
                is_growing=True,
                batch_axis=0,
                reads=(index,),
                is_native=True,
            )


def _contrib(node: ir.Node) -> Iterator[Update]:
    view = ContribAttention(node)
    grouped = view.facts.op_type == "GroupQueryAttention"
    for slot in view.facts.caches:
        past, present = view.input(slot.past), view.output(slot.present)
        if past is None and present is None:
            continue
        yield Update(
            node,
            "group_query_attention" if grouped else "attention",
            past,
            present,
            None if slot.update is None else view.input(slot.update),
            view.write_position,
            view.facts.axis,
            is_growing=not view.is_sharing,
            batch_axis=view.facts.batch_axis,
            reads=(view.index(slot.past),),
            shares=view.is_sharing,
            is_native=True,
            head_size=view.head_size,
        )


_STANDARD: Table[str, Callable[[ir.Node, int], Iterator[Update]]] = Table(
    "cache update",
    [
        ("TensorScatter", _tensor_scatter),
        ("ScatterND", _scatter_nd),
        ("ScatterElements", _scatter_elements),
        ("Concat", _concat),
        ("Where", _where),
        ("Add", _mix),
        ("Attention", _attention),
    ],
)

OPERATORS = frozenset({*_STANDARD, *CONTRIB_ATTENTIONS})
"""Operators that may update a cache, of the default domain or of `com.microsoft`."""
