"""How a cache grows: how its present is computed, before it gets a fixed capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op, subgraphs, upwards
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView

# How the present of a cache comes about, followed from where it leaves the model.


PASTS = range(4, 6)
"""The inputs of Attention that are the past of keys and values."""


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


def _grown(node: ir.Node, place: int) -> ir.Value | None:
    """Return the output of a node that joins new rows to its input number `place`, the past."""
    index = place - PASTS.start + 1 if node.op_type == "Attention" else 0
    return node.outputs[index] if index < len(node.outputs) else None


def handed_on(node: ir.Node) -> ir.Value | None:
    """Return the input that a node copies unchanged; None for any other node."""
    if node.domain != "" or not node.inputs or node.inputs[0] is None:
        return None
    source = node.inputs[0]
    if Trait.SAME in traits(node) and len(node.inputs) == 1:
        return source
    if node.op_type == "Concat" and len(node.inputs) == 1:
        return source
    if node.op_type == "Cast" and source.dtype is not None:
        return source if node.outputs[0].dtype == source.dtype else None
    return None


@dataclass(slots=True)
class Ends:
    """The ways to the present of one cache.

    Attributes:
        past: The past.
        appends: The nodes that put rows behind the past, each with the number of that input.
        axis: The axis along which they do.
        found: The ways so far.
        choices: Outputs of If on the way.
    """

    past: ir.Value
    appends: dict[ir.Node, int]
    axis: int
    found: list[End] = field(default_factory=list)
    choices: list[ir.Value] = field(default_factory=list)

    @property
    def grown(self) -> set[ir.Value | None]:
        """The results of the nodes that put rows behind the past."""
        return {_grown(node, place) for node, place in self.appends.items()}

    def follow(self, graph: ir.Graph, index: int, *, is_choice: bool) -> None:
        """Follow an output of a graph up to where the rows are appended.

        Args:
            graph: The main graph, or the branch of an If.
            index: The position of the output.
            is_choice: Whether it is a branch, which may begin the cache anew.

        Raises:
            Unproven: If it is computed otherwise.
        """
        output = graph.outputs[index]
        *_, (value, node) = upwards(output, handed_on)
        if node is not None and value in self.grown and node.graph is graph:
            self._append(graph, index, node)
        elif node is not None and node.op_type == "If" and value is output:
            self._branches(node, value)
        elif is_choice:
            self._begin(graph, index, output)
        else:
            raise Unproven(
                "present-computed",
                f"`{output.name}` is not `{self.past.name}` with new rows behind it",
            )

    def _append(self, graph: ir.Graph, index: int, node: ir.Node) -> None:
        """Add the way through a node that joins the past and new rows."""
        place = self.appends[node]
        is_attention = node.op_type == "Attention"
        new = node.inputs[place - PASTS.start + 1 if is_attention else 1]
        assert new is not None
        self._check_new(new)
        rank = len(self.past.shape or ())
        if is_attention and (new.shape is None or rank != 4):
            raise Unproven("unknown-rank", f"the rank of `{new.name}` is unknown")
        axis = 1 if is_attention and new.shape is not None and len(new.shape) == 3 else None
        grown = _grown(node, place)
        assert grown is not None
        self.found.append(End(graph, index, new, node, grown, axis or self.axis))

    def _check_new(self, new: ir.Value) -> None:
        """Refuse rows that are an input: either of the two could be the past of the other."""
        *_, (new, _) = upwards(new, handed_on)
        if new.is_graph_input() and new.producer() is None:
            raise Unproven(
                "two-inputs",
                f"`{self.past.name}` and `{new.name}` are inputs that are joined, and either could "
                "be the cache",
            )

    def _branches(self, node: ir.Node, value: ir.Value) -> None:
        if value.uses():
            text = f"`{value.name}` is read behind `{node.name}`, where its rows in use are unknown"
            raise Unproven("present-read", text)
        self.choices.append(value)
        position = value.index()
        assert position is not None
        for _, body in subgraphs(node):
            self.follow(body, position, is_choice=True)

    def _begin(self, graph: ir.Graph, index: int, rows: ir.Value) -> None:
        """Add the way of a branch that returns the first rows of the cache."""
        past = self.past
        if rows.dtype != past.dtype or rows.shape is None or past.shape is None:
            raise Unproven("unknown-rank", f"the type or rank of `{rows.name}` is unknown")
        if len(rows.shape) != len(past.shape):
            text = f"`{rows.name}` has rank {len(rows.shape)}, expected {len(past.shape)}"
            raise Unproven("present-computed", f"{text} as `{past.name}`")
        self.found.append(End(graph, index, rows, None, rows, self.axis))


# What has to be proven of a cache that grows, before it can get a fixed capacity.


@dataclass(frozen=True, slots=True)
class FedBack:
    """A cache that a caller feeds back.

    Attributes:
        place: Where its first Concat stands in the source.
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


@dataclass(frozen=True, slots=True)
class Growth(FedBack):
    """A cache whose present is provably the past, (..., P, ...), and new rows behind it.

    Attributes:
        ends: How the present comes about.
        choices: Outputs of If on the way from there to the present.
        shapes: The nodes that read the sizes of the past.
        aliases: The nodes that copy the past unchanged.
    """

    ends: tuple[End, ...]
    choices: tuple[ir.Value, ...]
    shapes: tuple[ir.Node, ...]
    aliases: tuple[ir.Node, ...]


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

    Args:
        cache: A cache that the analysis takes for a growing one.
        place: Where it grows, for the report.
        graph: The main graph; types and shapes are on its values as far as they are known.
        outputs: The positions of its outputs, by name.
        opset: Version of the default domain.

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
    reading = _Reading(past, opset)
    reading.run()
    ends = Ends(past, reading.appends, reading.axis())
    ends.follow(graph, positions[0], is_choice=False)
    output = graph.outputs[positions[0]]
    left_over = set(reading.appends) - {end.node for end in ends.found if end.node is not None}
    if len(positions) > 1 or len(ends.found) != len({end.graph for end in ends.found}):
        raise Unproven("present-twice", f"`{output.name}` is more than one output of the model")
    if left_over:
        node = min(left_over, key=lambda n: n.name or "")
        raise Unproven(
            "grown-rows-stay",
            f"`{node.name}` joins rows to those of `{past.name}` that are no output of the model",
        )
    return Growth(
        place,
        past,
        output,
        reading.axis(),
        tuple(ends.found),
        tuple(ends.choices),
        tuple(reading.shapes),
        tuple(reading.aliases),
    )


@dataclass(slots=True)
class _Reading:
    """All that reads the past of one cache.

    Attributes:
        past: The past.
        opset: Version of the default domain.
        appends: The nodes that put rows behind it, each with the number of that input.
        shapes: The nodes that read its sizes.
        aliases: The nodes that copy it unchanged.
    """

    past: ir.Value
    opset: int
    appends: dict[ir.Node, int] = field(default_factory=dict)
    shapes: list[ir.Node] = field(default_factory=list)
    aliases: list[ir.Node] = field(default_factory=list)

    def run(self) -> None:
        """Look at every reader.

        Raises:
            Unproven: If one reads more than sizes and does not append rows.
        """
        pending = [self.past]
        while pending:
            value = pending.pop(0)
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
                elif self._appends(node, use.idx):
                    self.appends[node] = use.idx
                else:
                    raise self._read(f"`{node.name or node.op_type}` ({node.op_type})")
        self.axis()

    def axis(self) -> int:
        """Return the axis along which rows are appended.

        Raises:
            Unproven: If there is none, it is that of the batch, or its size is fixed.
        """
        axes = {self._axis(node) for node in self.appends}
        shape = self.past.shape
        assert shape is not None
        if len(axes) != 1:
            text = f"rows are appended to `{self.past.name}` along {len(axes)} axes, expected one"
            raise Unproven("no-one-axis", text)
        axis = axes.pop()
        if axis == 0:
            text = f"`{self.past.name}` grows along axis 0, where TensorScatter has the batch"
            raise Unproven("batch-axis", text)
        if isinstance(shape[axis], int):
            text = f"`{self.past.name}` has {shape[axis]} rows in every step, so it does not grow"
            raise Unproven("fixed-length", text)
        return axis

    def _appends(self, node: ir.Node, index: int) -> bool:
        """Return whether a node puts something behind the past."""
        if node.domain != "":
            return False
        if node.op_type == "Attention":
            return index in PASTS
        is_pair = node.op_type == "Concat" and len(node.inputs) == 2
        return is_pair and index == 0 and node.inputs[1] is not node.inputs[0]

    def _axis(self, node: ir.Node) -> int:
        rank = len(self.past.shape or ())
        if node.op_type == "Attention":
            return 2
        axis = NodeView(node, self.opset).integer("axis")
        if not -rank <= axis < rank:
            raise Unproven("no-one-axis", f"axis {axis} of `{node.name}` is none of {rank}")
        return axis % rank

    def _read(self, reader: str) -> Unproven:
        return Unproven(
            "past-read",
            f"`{self.past.name}` is read by {reader}, expected Shape and one node that puts new "
            "rows behind it",
        )
