"""The edit: replace a growing cache by one of fixed capacity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import is_op, supersede
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, ScopedValues
from onnx_kvtool.emit.forms import axis_size
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.ops.view import given_integer
from onnx_kvtool.rewrite.raising.growing.growth import End, FedBack, Growth
from onnx_kvtool.rewrite.raising.growing.lengths import Position, Sizes
from onnx_kvtool.rewrite.raising.proof import Batch, one_row, write_indices
from onnx_kvtool.symbolic.dimensions import words
from onnx_kvtool.symbolic.expressions import Dimension, Expr

# Attention that appends to its cache itself becomes a TensorScatter, and Attention without a past.


_HEADS = ("q_num_heads", "kv_num_heads")


def check_attention(
    node: ir.Node, growths: Sequence[Growth], sizes: Sizes, opset: int, whole: Expr | None
) -> None:
    """Prove that Attention over the rows in use is Attention with a past.

    With a past, query i sees key j for `j <= i + P` if it is causal; without one, but with
    `nonpad_kv_seqlen`, for `j <= i + nonpad_kv_seqlen - L`. So as many queries as new keys are
    needed, and a mask for all keys: one may not be shorter than `nonpad_kv_seqlen`.

    `growths` are its caches that are to get a capacity. The size `whole` is granted to be that of
    the past and the new tokens.

    Raises:
        Unproven: If the two may differ.
    """
    view = Attention(node, opset)
    name = node.name or node.op_type
    if {growth.past for growth in growths} != {view.past_key, view.past_value}:
        text = f"`{name}` has a past of keys and one of values, and one of them cannot be raised"
        raise Unproven("half-attention", text)
    if view.nonpad_kv_seqlen is not None or "qk_matmul_output" in view.outputs:
        raise Unproven("inside-attention", f"`{name}` counts keys, or outputs its scores")
    if view.left_window >= 0 or view.right_window >= 0:
        raise Unproven("inside-attention", f"`{name}` has a window that counts from its past")
    if view.rank == 3 and view.heads() is None:
        raise Unproven("inside-attention", f"the numbers of heads of `{name}` are unknown")
    if view.is_causal:
        _check_causal(view, name, sizes, whole)


def _check_causal(view: Attention, name: str, sizes: Sizes, whole: Expr | None) -> None:
    axis = 1 if view.rank == 3 else 2
    queries, keys = (_size(sizes, v, axis) for v in (view.query, view.key))
    if queries is None or keys is None or not sizes.equal.same(queries, keys):
        text = f"`{name}` is causal and not known to have as many queries as new keys"
        raise Unproven("inside-attention", text)
    if view.attn_mask is None:
        return
    mask = _size(sizes, view.attn_mask, -1)
    if mask is None or not (mask == whole or sizes.equal.same(mask, sizes.length + keys)):
        raise Unproven(
            "mask-length",
            f"the mask `{view.attn_mask.name}` is not known to be as long as the past and the new "
            "tokens",
            assumption=_cover(mask, sizes),
        )


def _size(sizes: Sizes, value: ir.Value, axis: int) -> Expr | None:
    shape = sizes.knowledge.shapes.get(value)
    return shape[axis] if shape else None


def _cover(mask: Expr | None, sizes: Sizes) -> str | None:
    """Return the assumption that an input of this length has a column for every key."""
    if mask is None or not all(isinstance(atom, Dimension) for atom in mask.atoms()):
        return None
    for value, axis in sizes.inputs():
        shape = sizes.knowledge.shapes[value]
        if axis == len(shape) - 1 and shape[axis] == mask:
            return f"covers-past:{value.name}"
    return None


def in_heads(em: Emitter, value: ir.Value, heads: int) -> ir.Value:
    """Return (B, S, H * D) as (B, H, S, D)."""
    apart = em.op("Reshape", value, [0, 0, heads, -1], hint="heads")
    return em.op("Transpose", apart, perm=[0, 2, 1, 3], hint="heads")


def attend(em: Emitter, node: ir.Node, view: Attention, keys: ir.Value, values: ir.Value) -> None:
    """Replace an Attention with a past by one without.

    Keys and values in use are (B, KV, P + S, D) and (B, KV, P + S, E). Nothing reads the node
    afterwards.
    """
    output = node.outputs[0]
    attributes: dict[str, AttributeValue] = {
        attribute.name: attribute.value
        for attribute in node.attributes.values()
        if attribute.name not in _HEADS
    }
    query = view.query
    heads = view.heads() if view.rank == 3 else None
    if heads is not None:
        query = in_heads(em, query, heads[0])
    counted: list[ir.Value | None] = []
    if view.is_causal:
        total = axis_size(em, keys, 2, "keys")
        batch = axis_size(em, keys, 0, "batch")
        counted = [None, None, em.op("Expand", total, batch, hint="nonpad_kv_seqlen")]
    operands = [query, keys, values, *([view.attn_mask] if view.attn_mask or counted else [])]
    result = em.op("Attention", *operands, *counted, attributes=attributes)
    attention = em.nodes[-1]
    if heads is not None:
        turned = em.op("Transpose", result, perm=[0, 2, 1, 3], hint="heads")
        result = em.op("Reshape", turned, [0, 0, -1], hint="heads")
    result.type, result.shape = output.type or result.type, output.shape
    result.name, output.name = output.name, None
    supersede(output, result)
    attention.metadata_props.update(node.metadata_props)
    attention.doc_string = node.doc_string
    if node.name:
        attention.name, node.name = node.name, None


@dataclass(slots=True)
class Edit:
    """The edits of one model.

    Attributes:
        source_opset: Version of the default domain of the nodes that are there.
        opset: That of new nodes.
        capacity: Rows of the caches: a number, or a name.
        position: Where a step begins.
        old: Nodes that may be unused now.
        length: Rows in use before the step, (1,); set by `begin`.
        number: The same, ().
        starts: For each cache, the first new row of each sequence, (B,).
        total: Rows in use after the step, (1,); None until a cache with a capacity is read.
        cut: The old value with the rows in use, the new one, and the cache that this is cut of.
        lengths: Rows of a past before the step, (1,) and (), if they are not `length`.
    """

    model: ir.Model
    scopes: Mapping[ir.Graph, ScopedValues]
    source_opset: int
    opset: int
    capacity: int | str
    sizes: Sizes
    position: Position
    old: list[ir.Node] = field(default_factory=list)
    length: ir.Value = field(init=False)
    number: ir.Value = field(init=False)
    starts: dict[Growth, ir.Value] = field(default_factory=dict)
    total: ir.Value | None = None
    cut: list[tuple[ir.Value, ir.Value, ir.Value]] = field(default_factory=list)
    lengths: dict[ir.Value, tuple[ir.Value, ir.Value]] = field(default_factory=dict)
    _folder: ConstantFolder = field(default_factory=ConstantFolder)
    _rows: dict[ir.Node, dict[int, ir.Value]] = field(default_factory=dict)

    def begin(
        self, growths: Sequence[Growth], carrier: ir.Value, more: Callable[[Emitter], None]
    ) -> None:
        """Insert what all caches share, where the step begins and ends, in front of all nodes."""
        graph = self.model.graph
        if self.position.added is not None:
            graph.inputs.append(self.position.added)
        em = Emitter(self.scopes[graph], self.opset, "kvtool/past")
        start, measures = self.position.start, self.sizes.measures
        self.length = em.once(("row", start), lambda: one_row(em, start, measures, carrier))
        self.number = em.op("Squeeze", self.length, hint="length")
        for growth in growths:
            batch = self.sizes.knowledge.shapes[growth.past][0]
            first = write_indices(em, start, Batch(growth.past, batch, False), measures, {})
            assert first is not None  # a start that is always 0 would be a past without rows
            self.starts[growth] = first
            for end in growth.ends:
                self._total(em, growth, end)
        more(em)
        nodes = em.commit()
        front = next(iter(graph), None)
        assert front is not None
        graph.insert_before(front, nodes)
        self.old += nodes

    def _total(self, em: Emitter, growth: Growth, end: End) -> ir.Value | None:
        """Return the rows in use after the step, (1,); None if no input says them."""
        step = self.sizes.step(end)
        if step is None or end.node is None:
            return None
        total = self.position.start + step
        key = ("row", total)
        return em.once(key, lambda: one_row(em, total, self.sizes.measures, growth.past))

    def run(self, growth: Growth) -> None:
        """Give one cache its capacity."""
        for node in growth.shapes:
            self.resize(growth, node)
        shape = growth.present.shape
        outputs = [self._append(growth, end) for end in growth.ends]
        for value in (growth.past, *growth.choices, *outputs):
            value.shape = with_rows(value.shape or shape, growth, self.capacity)
        self.old += growth.aliases

    def _append(self, growth: Growth, end: End) -> ir.Value:
        """Insert a TensorScatter where rows were appended, or where a cache begins."""
        graph, node, grown = end.graph, end.node, end.grown
        output = graph.outputs[end.index]
        em = Emitter(self.scopes[graph], self.opset, (node and node.name) or "kvtool/raise")
        starts = [self.starts[growth]] if node is not None else []
        new = end.new
        if node is not None and end.axis != growth.axis:
            heads = self._attention(node).heads()
            assert heads is not None  # checked before any edit
            new = in_heads(em, new, heads[1])
        present = em.op(
            "TensorScatter", growth.past, new, *starts, axis=growth.axis, hint="TensorScatter"
        )
        scatter = em.nodes[-1]
        present.shape, present.doc_string = output.shape, output.doc_string
        graph.outputs[end.index] = present
        present.name, output.name = output.name, em.scope.names.fresh(f"{output.name}_in_use")
        if (last := output.producer()) is not None:
            self.old.append(last)
        if node is None:
            graph.extend(em.commit())
            return present
        is_attention = node.op_type == "Attention"
        if is_attention or grown.uses() or grown.is_graph_output():
            rows = self._in_use(em, growth, end, present)
            self.cut.append((grown, rows, present))
            self._count(grown, growth.axis)
            supersede(grown, rows)
            if grown is output:
                rows.name, grown.name = grown.name, None
            if is_attention:
                self._rows.setdefault(node, {})[grown.index() or 0] = rows
        em.insert_before(node)
        self.old.append(node)
        if not is_attention:
            scatter.metadata_props.update(node.metadata_props)
            scatter.doc_string = node.doc_string
            if node.name:
                scatter.name, node.name = node.name, None
        return present

    def finish(self) -> None:
        """Let every Attention that appended to its cache itself read the rows in use."""
        for node, rows in self._rows.items():
            em = Emitter.at(node, self.scopes, self.opset, "kvtool/raise")
            attend(em, node, self._attention(node), rows[1], rows[2])
            em.insert_before(node)

    def _attention(self, node: ir.Node) -> Attention:
        return Attention(node, self.source_opset)

    def _in_use(self, em: Emitter, growth: Growth, end: End, present: ir.Value) -> ir.Value:
        """Return the rows of a present that are in use, with one name for all of one length."""
        total, step, grown = self._total(em, growth, end), self.sizes.step(end), end.grown
        if total is None:
            added = axis_size(em, end.new, end.axis, "rows")
            total = em.op("Add", self.length, added, hint="rows")
        self.total = total
        rows = em.op("Slice", present, [0], total, [growth.axis], hint="rows_in_use")
        rows.type, rows.shape = grown.type or rows.type, grown.shape
        length = None if step is None else words(self.sizes.length + step)
        if grown.shape is not None and length is not None and not grown.is_graph_output():
            rows.shape = with_rows(grown.shape, growth, length)
        return rows

    def _count(self, grown: ir.Value, axis: int) -> None:
        """Replace the number of rows, as Shape counts it, by the computed number."""
        total = self.total
        assert total is not None
        for use in tuple(grown.uses()):
            node = use.node
            if is_op(node, "Shape"):
                rank = len(grown.shape) if grown.shape is not None else axis + 1
                if shape_limits(node, rank) == (axis, axis + 1):
                    self._replace(node.outputs[0], total, node)

    def resize(
        self,
        growth: FedBack,
        node: ir.Node,
        rows: tuple[ir.Value, ir.Value] | None = None,
    ) -> None:
        """Replace the length of a past, as a Shape counts it, by the number of rows in use.

        `rows` are (1,) and (), if the Shape reads something else than the past.
        """
        axis = growth.axis
        of_past = self.lengths.get(growth.past, (self.length, self.number))
        length, number = of_past if rows is None else rows
        first, last = shape_limits(node, growth.rank)
        if not first <= axis < last and (rows is not None or node.inputs[0] is growth.past):
            return
        self.old.append(node)
        value = node.outputs[0]
        is_whole = value.is_graph_output()
        for use in tuple(value.uses()):
            taken = self._taken(use.node, use.idx, first)
            if taken is None:
                is_whole = True
            elif taken[0] == axis:
                new = number if taken[1] == 0 else length
                self._replace(use.node.outputs[0], new, use.node)
        if node.graph is None or not (value.uses() or value.is_graph_output()):
            return
        em = Emitter.at(node, self.scopes, self.opset, "kvtool/raise")

        def sizes(start: int, end: int) -> list[ir.Value]:
            if start >= end:
                return []
            return [em.op("Shape", growth.past, start=start, end=end, hint="sizes")]

        if is_whole and first <= axis < last:
            known = [*sizes(first, axis), length, *sizes(axis + 1, last)]
        else:
            known = sizes(first, last) or [em.constant([], "sizes")]
        new = known[0] if len(known) == 1 else em.op("Concat", *known, axis=0)
        em.insert_before(node)
        self._replace(value, new, node)

    def _taken(self, node: ir.Node, index: int, first: int) -> tuple[int, int] | None:
        """Return the axis whose size a Gather takes from a Shape, and the rank of the result."""
        if not is_op(node, "Gather") or index != 0:
            return None
        places = self._folder.integers(node.inputs[1])
        if places is None or places.size != 1 or places.ndim > 1 or places.flat[0] < 0:
            return None
        return int(places.flat[0]) + first, places.ndim

    def _replace(self, old: ir.Value, new: ir.Value, node: ir.Node) -> None:
        """Replace a value; the new one of an output gets the name of the output."""
        if old.is_graph_output():
            em = Emitter.at(node, self.scopes, self.opset, "kvtool/raise")
            new = em.op("Identity", new, hint="size")
            new.name, old.name = old.name, None
            new.shape = old.shape
            em.insert_before(node)
        supersede(old, new)
        self.old.append(node)


def shape_limits(node: ir.Node, rank: int) -> tuple[int, int]:
    """Return the first axis whose size a Shape gives, and the one behind the last."""
    limits = []
    for name, default in (("start", 0), ("end", rank)):
        given = given_integer(node, name)
        limit = default if given is None else given
        limits.append(min(max(limit + rank if limit < 0 else limit, 0), rank))
    return limits[0], limits[1]


def with_rows(shape: ir.Shape | None, growth: FedBack, capacity: int | str) -> ir.Shape:
    """Return the shape of a cache with its capacity along the axis of the sequence."""
    known = shape if shape is not None and len(shape) == growth.rank else growth.past.shape
    assert known is not None
    return ir.Shape([capacity if i == growth.axis else dim for i, dim in enumerate(known)])
