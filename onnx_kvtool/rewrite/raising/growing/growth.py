"""How a cache grows, for good or up to a window, before it gets a fixed capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op, maker, producer, subgraphs, upwards
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView, given_input
from onnx_kvtool.rewrite.raising.layout import TO_THE_END, bounds_along, constants
from onnx_kvtool.rewrite.raising.stage import Assumptions
from onnx_kvtool.symbolic.dimensions import dims_of

# How the present of a cache comes about, followed from where it leaves the model.


_PASTS = range(4, 6)
"""The inputs of Attention that are the past of keys and values."""

_Joined = tuple[ir.Value | None, ir.Value | None]
"""The new rows, and the output of the node that puts them behind those of the past."""


@dataclass(frozen=True, slots=True)
class End:
    """One way to a present; an If has one for each branch.

    Attributes:
        graph: The graph that returns the present: the main graph, or the branch of an If.
        index: The position among its outputs.
        new: The rows behind those of the past; all rows if the branch does not use the past.
        node: The Concat or the Attention that joins both; None if the branch does not use the past.
        grown: Its result; the output of the branch if that does not use the past.
        axis: The axis of `new` along which the rows count: in Attention that of (B, S, KV * D).
    """

    graph: ir.Graph
    index: int
    new: ir.Value
    node: ir.Node | None
    grown: ir.Value
    axis: int


def handed_on(node: ir.Node) -> ir.Value | None:
    """Return the input that a node copies unchanged; None for any other node."""
    source = given_input(node, 0)
    if node.domain != "" or source is None:
        return None
    is_copy = len(node.inputs) == 1 and (Trait.SAME in traits(node) or node.op_type == "Concat")
    if node.op_type == "Cast" and source.dtype is not None:
        is_copy = node.outputs[0].dtype == source.dtype
    return source if is_copy else None


# What has to be proven of a cache that grows, before it can get a fixed capacity.


@dataclass(eq=False, slots=True)
class FedBack:
    """A cache that a caller feeds back.

    Attributes:
        past: The input of the model that has it before a step.
        present: The output of the model that has it after the step.
        axis: The axis along which it grows, from the front.
    """

    place: Location
    past: ir.Value
    present: ir.Value
    axis: int

    @property
    def rank(self) -> int:
        """Rank of the cache."""
        assert self.past.shape is not None
        return len(self.past.shape)


@dataclass(eq=False, slots=True)
class Growth(FedBack):
    """A cache whose present is provably the past, (..., P, ...), and new rows behind it.

    Attributes:
        ends: How the present comes about.
        choices: Outputs of If on the way from there to the present.
        aliases: The nodes that copy the past unchanged.
        appends: The nodes that put rows behind it.
    """

    ends: list[End] = field(default_factory=list)
    choices: list[ir.Value] = field(default_factory=list)
    shapes: list[ir.Node] = field(default_factory=list)
    aliases: list[ir.Node] = field(default_factory=list)
    appends: dict[ir.Node, _Joined] = field(default_factory=dict)

    def read(self, opset: int) -> None:
        """Look at every reader of the past, and find the axis along which rows are appended.

        Raises:
            Unproven: If one reads more than sizes and does not append rows, or if there is no one
                axis, it is that of the batch, or its size is fixed.
        """
        past, rank = self.past, self.rank
        pending = [past]
        for value in pending:
            if value.is_graph_output():
                raise self._read(f"`{value.name}`, which is an output")
            for use in value.uses():
                node = use.node
                if node in self.appends:
                    raise self._read(f"`{node.name or node.op_type}` more than once")
                if handed_on(node) is value:
                    self.aliases.append(node)
                    pending.append(node.outputs[0])
                elif is_op(node, "Shape"):
                    self.shapes.append(node)
                elif (joined := _joined(node, use.idx)) is not None:
                    self.appends[node] = joined
                else:
                    raise self._read(f"`{node.name or node.op_type}` ({node.op_type})")
        axes = {_axis(node, rank, opset) for node in self.appends}
        if len(axes) != 1:
            text = f"rows are appended to `{past.name}` along {len(axes)} axes, expected one"
            raise Unproven("no-one-axis", text)
        self.axis = axes.pop()
        if self.axis == 0:
            text = f"`{past.name}` grows along axis 0, where TensorScatter has the batch"
            raise Unproven("batch-axis", text)
        size = (dims_of(past) or ())[self.axis]
        if isinstance(size, int):
            text = f"`{past.name}` has {size} rows in every step, so it does not grow"
            raise Unproven("fixed-length", text)

    def _read(self, reader: str) -> Unproven:
        return Unproven(
            "past-read",
            f"`{self.past.name}` is read by {reader}, expected Shape and one node that puts new "
            "rows behind it",
        )

    def follow(self, graph: ir.Graph, index: int, *, is_choice: bool) -> None:
        """Follow an output of a graph up to where the rows are appended.

        Raises:
            Unproven: If it is computed otherwise.
        """
        output = graph.outputs[index]
        *_, (value, node) = upwards(output, handed_on)
        new, grown = (None, None) if node is None else self.appends.get(node, (None, None))
        if node is not None and value is grown and new is not None and node.graph is graph:
            self._append(graph, index, node, value, new)
        elif node is not None and node.op_type == "If" and value is output:
            self._branches(node, value)
        elif is_choice:
            self._begin(graph, index, output)
        else:
            raise Unproven(
                "present-computed",
                f"`{output.name}` is not `{self.past.name}` with new rows behind it",
            )

    def _append(
        self, graph: ir.Graph, index: int, node: ir.Node, grown: ir.Value, new: ir.Value
    ) -> None:
        """Add the way through a node that joins the past and new rows."""
        is_attention = node.op_type == "Attention"
        *_, (first, _) = upwards(new, handed_on)
        if first.is_graph_input() and first.producer() is None:
            raise Unproven(
                "two-inputs",
                f"`{self.past.name}` and `{first.name}` are inputs that are joined, and either "
                "could be the cache",
            )
        dims = dims_of(new)
        if is_attention and (dims is None or self.rank != 4):
            raise Unproven("unknown-rank", f"the rank of `{new.name}` is unknown")
        axis = 1 if is_attention and len(dims or ()) == 3 else self.axis
        self.ends.append(End(graph, index, new, node, grown, axis))

    def _branches(self, node: ir.Node, value: ir.Value) -> None:
        if value.uses():
            text = f"`{value.name}` is read behind `{node.name}`, where its rows in use are unknown"
            raise Unproven("present-read", text)
        self.choices.append(value)
        for _, body in subgraphs(node):
            self.follow(body, node.outputs.index(value), is_choice=True)

    def _begin(self, graph: ir.Graph, index: int, rows: ir.Value) -> None:
        """Add the way of a branch that returns the first rows of the cache."""
        dims = dims_of(rows)
        if rows.dtype != self.past.dtype or dims is None:
            raise Unproven("unknown-rank", f"the type or rank of `{rows.name}` is unknown")
        if len(dims) != self.rank:
            text = f"`{rows.name}` has rank {len(dims)}, expected {self.rank}"
            raise Unproven("present-computed", f"{text} as `{self.past.name}`")
        self.ends.append(End(graph, index, rows, None, rows, self.axis))


def _joined(node: ir.Node, index: int) -> _Joined | None:
    """Return what a node joins to its input number `index`, and the result; None for others."""
    if is_op(node, "Attention") and index in _PASTS:
        place = index - _PASTS.start + 1
        return node.inputs[place], [*node.outputs, None, None][place]
    is_pair = is_op(node, "Concat") and len(node.inputs) == 2 and index == 0
    is_joined = is_pair and node.inputs[1] is not node.inputs[0]
    return (node.inputs[1], node.outputs[0]) if is_joined else None


def _axis(node: ir.Node, rank: int, opset: int) -> int:
    if node.op_type == "Attention":
        return 2
    axis = NodeView(node, opset).integer("axis")
    if not -rank <= axis < rank:
        raise Unproven("no-one-axis", f"axis {axis} of `{node.name}` is none of {rank}")
    return axis % rank


def growth_of(
    cache: Cache,
    place: Location,
    graph: ir.Graph,
    outputs: Mapping[str | None, Sequence[int]],
    opset: int,
) -> Growth:
    """Prove that the present of a cache is its past with new rows behind it, and nothing else.

    Nodes may read only the sizes of the past, so that nothing reads what lies behind its rows. The
    grown rows must leave the model as the present, so that they come back as the next past.
    `outputs` has the positions of the outputs of the main graph, by name.

    Raises:
        Unproven: If one of these facts is missing.
    """
    past = cache.past_value
    positions = outputs.get(cache.present, [])
    is_input = past is not None and past.is_graph_input() and past.graph is graph
    if past is None or not is_input or not positions:
        text = f"`{cache.present}` grows, and it is no output that a caller feeds back"
        raise Unproven("not-fed-back", text)
    if past.shape is None:
        raise Unproven("unknown-rank", f"the rank of `{past.name}` is unknown")
    found = Growth(place, past, graph.outputs[positions[0]], 0)
    found.read(opset)
    found.follow(graph, positions[0], is_choice=False)
    left_over = set(found.appends) - {end.node for end in found.ends}
    if len(positions) > 1 or len(found.ends) != len({end.graph for end in found.ends}):
        text = f"`{found.present.name}` is more than one output of the model"
        raise Unproven("present-twice", text)
    if left_over:
        node = min(left_over, key=lambda n: n.name or "")
        raise Unproven(
            "grown-rows-stay",
            f"`{node.name}` joins rows to those of `{past.name}` that are no output of the model",
        )
    return found


# Caches that grow up to a window, and then drop their first rows for new ones.
#
# `present = (past[-R:] ++ new)[-R:]`, which has min(P, R) rows after P tokens. Attention reads all
# of `past[-R:] ++ new`. The fixed form is a circular cache of R + 1 rows, those that one token
# sees: the row of position p is row p modulo R + 1. A Gather restores the rows of the past in
# order, so that all later nodes stay unchanged.


@dataclass(eq=False, slots=True)
class Rolling(FedBack):
    """A cache that provably keeps only the last rows; its past is (..., min(P, R), ...).

    Attributes:
        rows: R, the most rows that it keeps.
        node: The Concat that puts new rows behind those of the past.
        heads: The slices of the last R rows of the past; empty if the Concat reads the past itself.
        cut: The slice of the joined rows that is the present.
        assumed: The assumption that lets the rows be rotated.
    """

    rows: int
    node: ir.Node
    new: ir.Value
    heads: list[ir.Node]
    cut: ir.Node
    shapes: list[ir.Node]
    assumed: str

    @property
    def capacity(self) -> int:
        """Rows of the circular cache: those that a query sees, including its own."""
        return self.rows + 1


def is_rolling(cache: Cache) -> bool:
    """Return whether a cache grows by a Concat up to a window, and then drops rows."""
    if cache.kind != "concat" or cache.is_growing or cache.past_value is None:
        return False
    head = maker(given_input(cache.node, 0), "Slice")
    is_cut = head is not None and given_input(head, 0) is cache.past_value
    return cache.is_rolling or is_cut


def rolling_of(
    cache: Cache, place: Location, model: ir.Model, assumptions: Assumptions, opset: int
) -> Rolling:
    """Prove that the present of a cache is the last R rows of its past and new ones.

    Raises:
        Unproven: If it is not, if other nodes read the past, or if the order of the rows may matter
            to the caller.
    """
    past, node = cache.past_value, cache.node
    output = next((v for v in model.graph.outputs if v.name == cache.present), None)
    if past is None or output is None or past not in model.graph.inputs or past.shape is None:
        raise Unproven(
            "not-fed-back",
            f"`{cache.present}` is no output that a caller feeds back",
        )
    cut = output.producer()
    if node.op_type != "Concat" or len(node.inputs) != 2 or node.graph is not model.graph:
        raise _refusal(past, f"`{node.name or node.op_type}` joins something else")
    axis = NodeView(node, opset).integer("axis") % len(past.shape)
    rows = None if cut is None else _last_rows(cut, axis, len(past.shape), opset)
    if cut is None or rows is None or cut.inputs[0] is not node.outputs[0]:
        text = f"`{output.name}` is not a constant number of the last rows of what is joined"
        raise _refusal(past, text)
    if axis == 0 or isinstance(past.shape[axis], int) or output.uses():
        text = f"`{output.name}` is read in the model, or has a fixed number of rows"
        raise _refusal(past, text)
    heads: list[ir.Node] = []
    shapes: list[ir.Node] = []
    first, new = node.inputs
    for reader, index in past.uses():
        if is_op(reader, "Shape"):
            shapes.append(reader)
        elif index == 0 and _last_rows(reader, axis, len(past.shape), opset) == rows:
            heads.append(reader)
        elif reader is not node or index != 0:
            raise _refusal(past, f"`{reader.name or reader.op_type}` reads the past as well")
    if first is not past and producer(first) not in heads:
        raise _refusal(past, f"`{node.name or node.op_type}` does not begin with the past")
    if past.is_graph_output() or any(head.outputs[0].is_graph_output() for head in heads):
        raise _refusal(past, "rows of the past are an output")
    assert new is not None
    assumed = assumptions.grants("rotated-rows", past)
    if assumed is None:
        raise Unproven(
            "rolling-window",
            f"`{past.name}` keeps its last {rows} rows in their order, and a circular cache stores "
            "them rotated",
            assumption=f"rotated-rows:{past.name}",
        )
    return Rolling(place, past, output, axis, rows, node, new, heads, cut, shapes, assumed)


def _last_rows(node: ir.Node, axis: int, rank: int, opset: int) -> int | None:
    """Return how many last rows a Slice takes, a constant number; None for any other node."""
    if not is_op(node, "Slice") or given_input(node, 0) is None:
        return None
    start, end = bounds_along(NodeView(node, opset), axis, rank, constants) or (None, None)
    if start is None or start.number is None or end is None or end.number is None:
        return None
    return -start.number if start.number < 0 and end.number >= TO_THE_END else None


def _refusal(past: ir.Value, why: str) -> Unproven:
    text = f"`{past.name}` grows and drops rows, and {why}: it is no window"
    return Unproven("rows-move", text)
