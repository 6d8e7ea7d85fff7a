"""What has to be seen of a cache that grows, before it can be one of a fixed capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.location import Location
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.growing.ends import PASTS, End, Ends, handed_on

__all__ = ["Growth", "growth_of"]


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


def growth_of(
    cache: Cache,
    place: Location,
    graph: ir.Graph,
    outputs: Mapping[str | None, Sequence[int]],
    opset: int,
) -> Growth:
    """Prove that the present of a cache is its past with new rows behind it, and nothing else.

    Of the past nothing may be read but its sizes, so that what lies behind its rows is read by
    nobody; and the grown rows must leave the model as the present, so that they come back as the
    past of the next step.

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
        text = f"`{cache.present}` grows, and it is no output of the model that an input continues"
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


@dataclass(slots=True)
class _Reading:
    """All that reads the past of one cache.

    Attributes:
        past: The past.
        opset: Version of the default domain.
        appends: The nodes that put rows behind it, each with the number of the input that it is.
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
                if node in self.appends:
                    raise self._read(f"`{node.name or node.op_type}` more than once")
                if handed_on(node) is value:
                    self.aliases.append(node)
                    pending.append(node.outputs[0])
                elif node.op_type == "Shape" and node.domain == "":
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
        opset = self.opset if node.version is None else node.version
        axis = NodeView(node, opset).integer("axis")
        if not -rank <= axis < rank:
            raise Unproven("no-one-axis", f"axis {axis} of `{node.name}` is none of {rank}")
        return axis % rank

    def _read(self, reader: str) -> Unproven:
        return Unproven(
            "past-read",
            f"`{self.past.name}` is read by {reader}, expected Shape and one node that puts new "
            "rows behind it",
        )
