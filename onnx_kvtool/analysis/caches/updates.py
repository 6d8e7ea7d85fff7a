"""How nodes update a cache, and the operators that pass a cache on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import CacheKind
from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.walk import maker, read_values
from onnx_kvtool.ops.contrib import CONTRIB_ATTENTIONS, DOMAIN, ContribAttention
from onnx_kvtool.ops.operators import Attention, Mode, ScatterElements, ScatterND, TensorScatter
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode, NodeView, given_input, given_integers
from onnx_kvtool.symbolic.dimensions import Dims, dims_of
from onnx_kvtool.symbolic.expressions import Exprs, integer

# Operators that pass a tensor on: unchanged, rearranged, cast, or a part of it.


AxisMap = tuple[int | None, ...] | Literal["same"] | None
"""Which axis of one layout each axis of another one is; None: it is unknown."""

UNKNOWN_AXES: AxisMap = None

How = Literal["same", "view", "cast", "moved", "updated"]


class Link(NamedTuple):
    """How an output of a node contains one of its inputs.

    Attributes:
        how: `same` tensor; a `view` with other dimensions; `cast` to another type; rows `moved` or
            left out; `updated` by a scatter.
        axes: For each axis of the output, the axis of the input.
    """

    node: ir.Node
    source: ir.Value
    how: How
    axes: AxisMap


def link(value: ir.Value, folder: ConstantFolder) -> Link | None:
    """Return how `value` contains an input of its producer; None if it is computed."""
    node = value.producer()
    if node is None or not node.inputs:
        return None
    kinds = traits(node)
    if node.op_type == "Concat" and Trait.SHIFTS in kinds:
        return _links_concat(node)
    source = node.inputs[0]
    if source is None:
        return None
    if Trait.PART in kinds:
        return Link(node, source, "moved", "same" if Trait.KEEPS_AXES in kinds else UNKNOWN_AXES)
    if value.index() != 0:
        return None
    for trait, how in _SAME_AXES:
        if trait in kinds:
            return Link(node, source, how, "same")
    if Trait.REARRANGES in kinds:
        return Link(node, source, "view", _view_axes(node, source, value, folder))
    return None


_SAME_AXES: tuple[tuple[Trait, How], ...] = (
    (Trait.SAME, "same"),
    (Trait.CONVERTS, "cast"),
    (Trait.UPDATES, "updated"),
)


def base(value: ir.Value) -> ir.Value:
    """Return the tensor that `value` is a slice of; otherwise `value` itself."""
    node = value.producer()
    if node is None or not {Trait.PART, Trait.KEEPS_AXES} <= traits(node).kinds:
        return value
    source = given_input(node, 0)
    return value if source is None else source


def _links_concat(node: ir.Node) -> Link | None:
    """See through a Concat of one value, or of slices of one value alone, which rolls its rows."""
    bases = {None if v is None else base(v) for v in node.inputs}
    if len(bases) != 1 or (source := bases.pop()) is None:
        return None
    if len(node.inputs) == 1 and node.inputs[0] is source:
        return Link(node, source, "same", "same")
    return Link(node, source, "moved", "same")


def _view_axes(node: ir.Node, source: ir.Value, value: ir.Value, folder: ConstantFolder) -> AxisMap:
    given, result = dims_of(source), dims_of(value)
    if node.op_type == "Transpose":
        if "perm" not in node.attributes:
            return None if given is None else tuple(reversed(range(len(given))))
        perm = given_integers(node, "perm")
        return perm if sorted(perm or ()) == list(range(len(perm or ()))) else None
    if node.op_type in ("Squeeze", "Unsqueeze"):
        axes = _axes(node, folder)
        if axes is not None and given is not None:
            return squeezed(node.op_type, len(given), axes)
    if given is None or result is None:
        return None
    return _by_size(given, result)


def _axes(node: ir.Node, folder: ConstantFolder) -> tuple[int, ...] | None:
    if "axes" in node.attributes:  # an input from opset 13 on
        return given_integers(node, "axes")
    numbers = folder.listed(given_input(node, 1))
    return None if numbers is None else tuple(numbers)


Numbers = Callable[[ir.Value], Exprs | None]
"""Returns the elements of a vector; None where it does not know them."""


def operand_of(view: NodeView, name: str, numbers: Numbers) -> Exprs | None:
    """Return integers of an attribute or, in later versions, of an input; None if unknown.

    They are () if the node leaves them out.
    """
    if name in view.facts.attributes:
        given = view.attribute(name)
        if given is None:
            return ()
        return tuple(map(integer, given)) if isinstance(given, tuple) else None
    value = view.find(name)
    return () if value is None else numbers(value)


def squeezed(op_type: str, rank: int, axes: Sequence[int]) -> tuple[int | None, ...] | None:
    """Return the axes of the result of a Squeeze or Unsqueeze over its input; None if illegal."""
    wide = rank + len(axes) if op_type == "Unsqueeze" else rank
    changed = {axis % wide for axis in axes if -wide <= axis < wide}
    if len(changed) != len(axes):
        return None
    if op_type == "Squeeze":
        return tuple(axis for axis in range(rank) if axis not in changed)
    kept = iter(range(rank))
    return tuple(None if axis in changed else next(kept) for axis in range(wide))


def _by_size(given: Dims, result: Dims) -> AxisMap:
    """Match the axes that a reshape leaves alone: equal sizes from the front and from the back."""
    front = _common(given, result)
    back = _common(given[front:][::-1], result[front:][::-1])
    axes: list[int | None] = [None] * len(result)
    axes[:front] = range(front)
    for step in range(1, back + 1):
        axes[-step] = len(given) - step
    return tuple(axes)


def _common(one: Dims, other: Dims) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is not None and pair[0] == pair[1], pairs))


def map_axis(axes: AxisMap, axis: int | None) -> int | None:
    """Return the number of `axis` in the other layout; None if unknown."""
    if axis is None or axes is None:
        return None
    if axes == "same":
        return axis
    return axes[axis] if 0 <= axis < len(axes) else None


def compose(first: AxisMap, then: AxisMap) -> AxisMap:
    """Return the map that goes through `first` and on through `then`."""
    if first == "same":
        return then
    if then == "same" or first is None:
        return first
    return tuple(map_axis(then, axis) for axis in first)


def inverted(axes: AxisMap) -> AxisMap:
    """Return the map in the other direction."""
    if axes is None or axes == "same":
        return axes
    back: list[int | None] = [None] * (max((a for a in axes if a is not None), default=-1) + 1)
    for here, there in enumerate(axes):
        if there is not None:
            back[there] = here
    return tuple(back)


# Updates of a cache, read through the view of the operator.


class Update(NamedTuple):
    """One way of a node to update a tensor.

    Attributes:
        present: The updated one; None when the operator does not hand it out.
        update: The value with the new rows; None when it is not a value of the graph.
        write_indices: The value that says where they go.
        axis: The sequence axis of `past`, negative where the node counts it from the back.
        is_growing: Whether the present is the rows of the past and the new ones.
        reads: Positions of the node's inputs that take `past`.
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
    """Yield the possible updates of `node`, regardless of where its tensors come from or go to.

    A node that its schema does not allow has no meaning and yields nothing; only a TensorScatter is
    taken for one all the same, its axis and mode unknown.
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
        given_input(node, 2),
        axis,
        mode,
        batch_axis=0,
        is_native=True,
    )


def _scatter(node: ir.Node, opset: int) -> Iterator[Update]:
    view: ScatterND | ScatterElements
    kind: CacheKind = "scatter_nd"
    if node.op_type == "ScatterElements":
        view, kind = ScatterElements(node, opset), "scatter_elements"
        axis: int | None = view.axis
    else:
        view = ScatterND(node, opset)
        depth = dims_of(view.indices)
        # An index of one component counts along the first axis; more need a proof of what each
        # holds.
        axis = 0 if depth and depth[-1] == 1 else None
    if view.reduction == "none":
        yield Update(
            node, kind, view.data, view.output, view.updates, axis=axis, indices=view.indices
        )


def _updates_concat(node: ir.Node, opset: int) -> Iterator[Update]:
    view = NodeView(node, opset)
    values = read_values(node)
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
    products = [_operands(v, "Mul") for v in node.inputs]
    if len(products) != 2:
        return
    for kept, chosen in (products, products[::-1]):
        for past, keep in (kept, kept[::-1]):
            mask = _operands(keep, "Sub")[1]  # of 1 - m
            for new, choose in (chosen, chosen[::-1]):
                if past is None or mask is None or choose is not mask:
                    continue
                axis = _chosen_axis(mask, new)
                yield Update(
                    node, "where", past, node.outputs[0], new, axis=axis, reads=(), indices=mask
                )


def _operands(value: ir.Value | None, op: str) -> tuple[ir.Value | None, ir.Value | None]:
    """Return the two operands that an operator makes a value of; None, None for another value."""
    node = maker(value, op)
    if node is None or len(node.inputs) != 2:
        return None, None
    return node.inputs[0], node.inputs[1]


def _chosen_axis(mask: ir.Value, new: ir.Value | None) -> int | None:
    """Return the axis along which `mask` selects the row of `new`; None if unclear."""
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
    grouped = node.op_type == "GroupQueryAttention"
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
        ("ScatterND", _scatter),
        ("ScatterElements", _scatter),
        ("Concat", _updates_concat),
        ("Where", _where),
        ("Add", _mix),
        ("Attention", _attention),
    ],
)

OPERATORS = frozenset({*_STANDARD, *CONTRIB_ATTENTIONS})
"""Operators that may update a cache, of the default domain or of `com.microsoft`."""
