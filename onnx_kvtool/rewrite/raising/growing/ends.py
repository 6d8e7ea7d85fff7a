"""How the present of a cache comes about, followed from where it leaves the model."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import subgraphs, upwards
from onnx_kvtool.ops.traits import Trait, traits

__all__ = ["PASTS", "End", "Ends", "handed_on"]

PASTS = range(4, 6)
"""The inputs of Attention that are the past of keys and values."""


@dataclass(frozen=True, slots=True)
class End:
    """One way in which a present comes about; an If has one for each branch.

    Attributes:
        graph: The graph that hands the present out: the main graph, or the branch of an If.
        index: As which of its outputs.
        new: The rows behind those of the past; all rows where the branch does without the past.
        node: The Concat or the Attention that puts both together; None where the branch does
            without the past.
        grown: What it makes of both; what the branch hands out where it does without the past.
        axis: The axis of `new` along which the rows count: in Attention that of (B, S, KV * D).
    """

    graph: ir.Graph
    index: int
    new: ir.Value
    node: ir.Node | None
    grown: ir.Value
    axis: int


def _grown(node: ir.Node, place: int) -> ir.Value | None:
    """Return what a node makes of the past that is its input number `place`, and new rows."""
    index = place - PASTS.start + 1 if node.op_type == "Attention" else 0
    return node.outputs[index] if index < len(node.outputs) else None


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
class Ends:
    """The ways in which the present of one cache comes about.

    Attributes:
        past: The past.
        appends: The nodes that put rows behind it, each with the number of the input that it is.
        axis: The axis of the past along which they do.
        found: The ways so far.
        choices: Outputs of If that were passed.
    """

    past: ir.Value
    appends: dict[ir.Node, int]
    axis: int
    found: list[End] = field(default_factory=list)
    choices: list[ir.Value] = field(default_factory=list)

    @property
    def grown(self) -> set[ir.Value | None]:
        """What the nodes make that put rows behind the past."""
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
        """Take what a node makes of the past and new rows for the present."""
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
        """Take what a branch hands out for the first rows of the cache."""
        past = self.past
        if rows.dtype != past.dtype or rows.shape is None or past.shape is None:
            raise Unproven("unknown-rank", f"the type or rank of `{rows.name}` is unknown")
        if len(rows.shape) != len(past.shape):
            text = f"`{rows.name}` has rank {len(rows.shape)}, expected {len(past.shape)}"
            raise Unproven("present-computed", f"{text} as `{past.name}`")
        self.found.append(End(graph, index, rows, None, rows, self.axis))
