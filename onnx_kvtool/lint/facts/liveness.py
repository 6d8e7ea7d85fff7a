"""What of a model nothing needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context, Site

__all__ = ["DeadEnd", "dead_ends", "named_elsewhere", "unused_initializers"]

_QUANTIZATION = "quant_parameter_tensor_names"
"""Where onnx_ir keeps the names that the quantization annotation of a value refers to."""

_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """A node whose results nobody reads.

    Attributes:
        site: The node.
        feeding: Nodes of the same graph that compute something for it, or for such nodes, alone.
    """

    site: Site
    feeding: list[ir.Node] = field(default_factory=list)


def named_elsewhere(context: Context) -> frozenset[str]:
    """Return names by which values are used that no node reads.

    These are the scales and zero points of quantization annotations.
    """
    names: set[str] = set()
    for _, graph in context.graphs:
        outputs = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *outputs):
            if value.meta and (found := value.meta.get(_QUANTIZATION)):
                names.update(found.values())
    return frozenset(names)


def unused_initializers(context: Context) -> Iterator[tuple[str, ir.Graph, ir.Value]]:
    """Yield each initializer that no node reads, bodies included, and no graph returns.

    With the path of its graph. A model with training information, which names values of its own,
    has none.
    """
    if context.origin.training:
        return
    named: frozenset[str] | None = None
    for path, graph in context.graphs:
        for value in graph.initializers.values():
            if value.uses() or value.is_graph_output():
                continue
            if named is None:
                named = named_elsewhere(context)
            if value.name not in named:
                yield path, graph, value


def dead_ends(context: Context) -> Iterator[DeadEnd]:
    """Yield the nodes whose outputs nobody reads and no graph returns, in the order of the model.

    Nodes of unknown domains may have effects outside the model and count as needed; so does every
    node of a model with training information. Linear in the number of nodes.
    """
    if context.origin.training:
        return
    claimed: set[ir.Node] = set()
    ends = [site for site in context.sites if _is_dead(site.node, context, claimed)]
    claimed.update(site.node for site in ends)
    for site in ends:
        end = DeadEnd(site)
        stack = [site.node]
        while stack:
            for value in stack.pop().inputs:
                node = None if value is None else value.producer()
                if node is None or node in claimed or node.graph is not site.node.graph:
                    continue
                if _is_dead(node, context, claimed):
                    claimed.add(node)
                    end.feeding.append(node)
                    stack.append(node)
        yield end


def _is_dead(node: ir.Node, context: Context, dead: set[ir.Node]) -> bool:
    # In the order that leaves soonest where a node is needed, as nearly all are.
    for value in node.outputs:
        if value.is_graph_output():
            return False
        for reader, _ in value.uses():
            if reader not in dead:
                return False
    if not node.outputs:
        return False
    return node.domain in _KNOWN_DOMAINS or node.op_identifier() in context.model.functions
