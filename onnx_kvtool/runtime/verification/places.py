"""The values that two models have in common, and the places where one of them was rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from onnx_kvtool.core.covered import Place
from onnx_kvtool.core.domains import canonical_domain
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.messages.bodies import bodies
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.runtime.verification.settings import Settings
from onnx_kvtool.runtime.verification.subject import Subject

__all__ = ["GraphView", "corresponding", "places_between"]


@dataclass(slots=True)
class GraphView:
    """One model as a message, with what computes each value of its main graph.

    Attributes:
        subject: The model.
        proto: Its message, which may be edited.
        producers: Position and node of each value that a node of the main graph computes.
    """

    subject: Subject
    proto: onnx.ModelProto
    producers: dict[str, tuple[int, onnx.NodeProto]]

    @staticmethod
    def of(subject: Subject) -> GraphView:
        """Return the view of a model; its message is parsed anew."""
        proto = onnx.ModelProto.FromString(subject.model)
        producers = {
            name: (index, node)
            for index, node in enumerate(proto.graph.node)
            for name in node.output
            if name
        }
        return GraphView(subject, proto, producers)

    def location(self, value: str) -> Location:
        """Return the node that computes a value."""
        index, node = self.producers[value]
        op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        index -= self.subject.casts
        return Location(graph_path(self.proto.graph.name), node.name or None, index, op, value)


def corresponding(a: GraphView, b: GraphView, settings: Settings) -> dict[str, str]:
    """Return the name in B of each value of A that corresponds to one of B, in the order of A.

    Values of one name do. In models that have other names for most of their values, those do whose
    nodes are matched as `kvtool diff` matches them.
    """
    common = {name: name for name in a.producers if name in b.producers}
    if settings.matching is None or 2 * len(common) >= len(a.producers):
        return common
    matched = settings.matching()
    pairs = {name: matched.get(name, name) for name in a.producers}
    return {name: other for name, other in pairs.items() if other in b.producers}


def places_between(a: GraphView, b: GraphView, settings: Settings) -> list[Place]:
    """Return the places where A was rewritten to B.

    A place is a value that the main graphs of both models compute, and that they compute in
    another way: by another operator, with other attributes, bodies or inputs, by a function of
    another body, or from a weight of other values. Every other value that corresponds to one of B
    follows from these by the same node.

    Args:
        a: Model A.
        b: Model B.
        settings: How the models are compared. If B was made of A, weights of one name have the
            same values.
    """
    functions = _other_functions(a.proto, b.proto)
    random = a.subject.random | b.subject.random
    reads = _Reads(a, b, corresponding(a, b, settings), are_weights_right=settings.is_a_right)
    return [
        Place(name, other, a.location(name))
        for name, other in reads.names.items()
        if random.isdisjoint((name, other))
        and (
            _operator(a.producers[name][1]) in functions
            or not reads.is_same(a.producers[name][1], b.producers[other][1])
        )
    ]


class _Reads:
    """Says whether nodes of two models compute the same of the same values."""

    def __init__(
        self, a: GraphView, b: GraphView, names: dict[str, str], *, are_weights_right: bool
    ) -> None:
        self.names = names
        self._weights_a = {tensor.name: tensor for tensor in a.proto.graph.initializer}
        self._weights_b = {tensor.name: tensor for tensor in b.proto.graph.initializer}
        self._are_weights_right = are_weights_right
        self._known: dict[tuple[str, str], bool] = {}

    def is_same(self, a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
        """Return whether two nodes have one operator, attributes and inputs."""
        if self._are_weights_right and a == b:
            return True
        if _operator(a) != _operator(b) or len(a.attribute) != len(b.attribute):
            return False
        if len(a.input) != len(b.input) or not all(map(self._is_one, a.input, b.input)):
            return False
        outputs = [self.names.get(name, name) for name in a.output]
        if outputs != list(b.output):
            return False
        others = {attribute.name: attribute for attribute in b.attribute}
        return all(others.get(attribute.name) == attribute for attribute in a.attribute)

    def _is_one(self, a: str, b: str) -> bool:
        known = self._known.get((a, b))
        if known is None:
            known = self._known[a, b] = self._has_same_values(a, b)
        return known

    def _has_same_values(self, a: str, b: str) -> bool:
        one, other = self._weights_a.get(a), self._weights_b.get(b)
        if one is None or other is None:
            return one is other and self.names.get(a, a) == b
        if a == b:
            return self._are_weights_right or one == other
        renamed = onnx.TensorProto()
        renamed.CopyFrom(one)
        renamed.name = other.name
        return bool(renamed == other)


def _operator(node: onnx.NodeProto) -> tuple[str, str, str]:
    return canonical_domain(node.domain), node.op_type, node.overload


def _other_functions(a: onnx.ModelProto, b: onnx.ModelProto) -> set[tuple[str, str, str]]:
    """Return the functions of A whose nodes, or those of functions that they call, are others."""
    others = dict(_functions(b))
    known = dict(_functions(a))
    found = {
        key
        for key, function in known.items()
        if key not in others or list(function.node) != list(others[key].node)
    }
    size = -1
    while size != len(found):  # once for each level of calls
        size = len(found)
        found |= {
            key
            for key, function in known.items()
            if any(_operator(node) in found for node in _nodes(function.node))
        }
    return found


def _functions(
    model: onnx.ModelProto,
) -> Iterator[tuple[tuple[str, str, str], onnx.FunctionProto]]:
    for function in model.functions:
        yield (canonical_domain(function.domain), function.name, function.overload), function


def _nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from _nodes(body.node)
