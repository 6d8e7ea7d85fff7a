"""What has to be seen of a cache that grows, before it can be one of a fixed capacity."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.assumptions import Unproven

__all__ = ["End", "Growth", "growth_of", "handed_on"]


@dataclass(frozen=True, slots=True)
class End:
    """One way in which a present comes about; an If has one for each branch.

    Attributes:
        graph: The graph that hands the present out: the main graph, or the branch of an If.
        index: As which of its outputs.
        new: The rows behind those of the past; all rows where the branch does without the past.
        node: The Concat that puts both together; None where the branch does without the past.
    """

    graph: ir.Graph
    index: int
    new: ir.Value
    node: ir.Node | None


@dataclass(frozen=True, slots=True)
class Growth:
    """A cache of which it is seen that the present is the past and new rows behind it.

    Attributes:
        place: Where its first Concat stands in the source.
        past: The input of the model that holds it, (..., P, ...).
        present: The output of the model that hands it on, (..., P + S, ...).
        axis: The axis along which it grows, from the front.
        ends: How the present comes about.
        choices: Outputs of If on the way from there to the present.
        shapes: The nodes that read the sizes of the past.
        aliases: The nodes that only hand the past on.
    """

    place: Location
    past: ir.Value
    present: ir.Value
    axis: int
    ends: tuple[End, ...]
    choices: tuple[ir.Value, ...]
    shapes: tuple[ir.Node, ...]
    aliases: tuple[ir.Node, ...]

    @property
    def rank(self) -> int:
        """Rank of the cache."""
        assert self.past.shape is not None
        return len(self.past.shape)


def growth_of(cache: Cache, place: Location, model: ir.Model, opset: int) -> Growth:
    """Prove that the present of a cache is its past with new rows behind it, and nothing else.

    Of the past nothing may be read but its sizes, so that what lies behind its rows is read by
    nobody; and the grown rows must leave the model as the present, so that they come back as the
    past of the next step.

    Args:
        cache: A cache that the analysis takes for a growing one.
        place: Where it grows, for the report.
        model: The model; types and shapes are on its values as far as they are known.
        opset: Version of the default domain.

    Raises:
        Unproven: If one of these facts is missing.
    """
    past = cache.past_value
    output = next((v for v in model.graph.outputs if v.name == cache.present), None)
    if past is None or output is None or past not in model.graph.inputs:
        text = f"`{cache.present}` grows, and it is no output of the model that an input continues"
        raise Unproven("not-fed-back", text)
    if past.shape is None:
        raise Unproven("unknown-rank", f"the rank of `{past.name}` is unknown")
    reading = _Reading(past, opset)
    reading.run()
    ends = _Ends(past, reading.appends)
    positions = [i for i, v in enumerate(model.graph.outputs) if v is output]
    ends.follow(model.graph, positions[0], is_choice=False)
    left_over = set(reading.appends) - {end.node for end in ends.found if end.node is not None}
    if len(positions) > 1 or len(ends.found) != len({end.graph for end in ends.found}):
        raise Unproven("present-twice", f"`{output.name}` leaves the model more than once")
    if left_over:
        node = min(left_over, key=lambda n: n.name or "")
        raise Unproven(
            "grown-rows-stay",
            f"the rows that `{node.name}` joins to those of `{past.name}` do not leave the model",
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


def handed_on(node: ir.Node) -> ir.Value | None:
    """Return the input that the first output of a node is, in every element and in type."""
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
class _Reading:
    """All that reads the past of one cache.

    Attributes:
        past: The past.
        opset: Version of the default domain.
        appends: The Concats that put rows behind it, each with the axis along which it does.
        shapes: The nodes that read its sizes.
        aliases: The nodes that only hand it on.
    """

    past: ir.Value
    opset: int
    appends: dict[ir.Node, int] = field(default_factory=dict)
    shapes: list[ir.Node] = field(default_factory=list)
    aliases: list[ir.Node] = field(default_factory=list)

    def run(self) -> None:
        """Look at every reader.

        Raises:
            Unproven: If one of them reads more than sizes and does not append.
        """
        pending = [self.past]
        while pending:
            value = pending.pop(0)
            if value.is_graph_output():
                raise self._read(f"`{value.name}`, which is an output")
            for use in value.uses():
                node = use.node
                if handed_on(node) is value:
                    self.aliases.append(node)
                    pending.append(node.outputs[0])
                elif node.op_type == "Shape" and node.domain == "":
                    self.shapes.append(node)
                elif self._appends(node, use.idx):
                    self.appends[node] = self._axis(node)
                else:
                    raise self._read(f"`{node.name or node.op_type}` ({node.op_type})")
        self.axis()

    def axis(self) -> int:
        """Return the axis along which rows are appended.

        Raises:
            Unproven: If there is none, it is that of the batch, or its size is fixed.
        """
        axes = set(self.appends.values())
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
        is_pair = node.op_type == "Concat" and node.domain == "" and len(node.inputs) == 2
        return is_pair and index == 0 and node.inputs[1] is not node.inputs[0]

    def _axis(self, node: ir.Node) -> int:
        rank = len(self.past.shape or ())
        axis = NodeView(node, self.opset).integer("axis")
        if not -rank <= axis < rank:
            raise Unproven("no-one-axis", f"axis {axis} of `{node.name}` is none of {rank}")
        return axis % rank

    def _read(self, reader: str) -> Unproven:
        return Unproven(
            "past-read",
            f"`{self.past.name}` is read by {reader}, expected Shape and a Concat that puts new "
            "rows behind it",
        )


@dataclass(slots=True)
class _Ends:
    """The ways in which the present of one cache comes about.

    Attributes:
        past: The past.
        appends: The Concats that put rows behind it.
        found: The ways so far.
        choices: Outputs of If that were passed.
    """

    past: ir.Value
    appends: dict[ir.Node, int]
    found: list[End] = field(default_factory=list)
    choices: list[ir.Value] = field(default_factory=list)

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
        value = output
        node = value.producer()
        while node is not None and (source := handed_on(node)) is not None:
            value, node = source, source.producer()
        if node is not None and node in self.appends and node.graph is graph:
            new = node.inputs[1]
            assert new is not None
            self._check_new(new)
            self.found.append(End(graph, index, new, node))
        elif node is not None and node.op_type == "If" and value is output:
            self._branches(node, value)
        elif is_choice:
            self._begin(graph, index, output)
        else:
            raise Unproven(
                "present-computed",
                f"`{output.name}` is not what a Concat makes of `{self.past.name}` and new rows",
            )

    def _check_new(self, new: ir.Value) -> None:
        """Refuse rows that are an input: either of the two could be the past of the other."""
        value: ir.Value | None = new
        while value is not None:
            node, new = value.producer(), value
            value = None if node is None else handed_on(node)
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
        """Take what a branch hands out for the first rows of the cache."""
        past = self.past
        if rows.dtype != past.dtype or rows.shape is None or past.shape is None:
            raise Unproven("unknown-rank", f"the type or rank of `{rows.name}` is unknown")
        if len(rows.shape) != len(past.shape):
            text = f"`{rows.name}` has rank {len(rows.shape)}, expected {len(past.shape)}"
            raise Unproven("present-computed", f"{text} as `{past.name}`")
        self.found.append(End(graph, index, rows, None))
