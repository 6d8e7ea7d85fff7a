"""What is done with the past of a cache besides its update."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.core.walk import upwards
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import given_input

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context

__all__ = [
    "Branches",
    "Level",
    "copies",
    "is_scatter_of",
    "levels",
    "readers",
    "scatter_behind",
    "through",
]

_ARRANGING = (Trait.REARRANGES, Trait.CASTS, Trait.REPEATS)
_FAR = 8

Level = tuple["ir.Value", "ir.Node", int]
"""A value that holds the past, the node that takes it towards the update, and at which input."""


def through(value: ir.Value) -> ir.Value:
    """Return the value of which `value` is a copy by Identity nodes, or `value` itself."""
    *_, (source, _) = upwards(value, _copied)
    return source


def levels(cache: Cache, context: Context) -> Iterator[Level]:
    """Yield the past of a TensorScatter where it stands, then as each caller of a function has it.

    Copies by Identity are looked through. The last level is in the main graph, unless something in
    a function body computes the past.
    """
    node, index = cache.node, 0
    calls = list(cache.calls)
    while True:
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            return
        root = through(value)
        yield root, node, index
        if not calls:
            return
        call = calls.pop()
        function = context.model.functions[call.op_identifier()]
        found = next((i for i, v in enumerate(function.inputs) if v is root), None)
        if found is None:
            return
        node, index = call, found


def readers(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Yield who reads the content of `value`, bodies included, through copies by Identity.

    Who asks for its shape alone does not read it.
    """
    for copy in copies(value):
        for reader, index in copy.uses():
            if _is_identity(reader):
                continue
            if Trait.READS_SHAPE not in traits(reader):
                yield reader, index


def copies(value: ir.Value) -> Iterator[ir.Value]:
    """Yield a value and its copies by Identity, those in bodies included."""
    stack, seen = [value], {id(value)}
    while stack:
        copy = stack.pop()
        yield copy
        for reader, _ in copy.uses():
            if _is_identity(reader):
                new = [v for v in reader.outputs if id(v) not in seen]
                seen.update(map(id, new))
                stack.extend(new)


def _copied(node: ir.Node) -> ir.Value | None:
    return given_input(node, 0) if _is_identity(node) else None


def _is_identity(node: ir.Node) -> bool:
    return Trait.SAME in traits(node)


def scatter_behind(value: ir.Value) -> ir.Node | None:
    """Return the TensorScatter whose present `value` is, seen through what only arranges it.

    Up to eight nodes are looked through; one that selects rows, such as Slice, is not.
    """
    current: ir.Value | None = value
    for _ in range(_FAR):
        node = None if current is None else current.producer()
        if node is None or node.domain:
            return None
        if node.op_type == "TensorScatter":
            return node
        if not traits(node).any(*_ARRANGING) or not node.inputs:
            return None
        current = node.inputs[0]
    return None


def is_scatter_of(node: ir.Node, index: int) -> bool:
    """Return whether a node takes its input at `index` as the past_cache of a TensorScatter."""
    return node.op_type == "TensorScatter" and not node.domain and index == 0


class Branches:
    """The branches of If nodes around nodes.

    Args:
        context: The model.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @functools.cached_property
    def _owners(self) -> dict[int, ir.Node]:
        """The node in whose attribute each body stands."""
        from onnx_kvtool.core.walk import subgraphs

        return {
            id(body): site.node
            for site in self._context.sites
            if site.node.attributes.data
            for _, body in subgraphs(site.node)
        }

    def exclude(self, one: ir.Node, other: ir.Node) -> bool:
        """Return whether the two stand in different branches of one If, so that one runs alone."""
        here, there = self._way(one), self._way(other)
        return any(there.get(node, branch) != branch for node, branch in here.items())

    def _way(self, node: ir.Node) -> dict[ir.Node, int]:
        way: dict[ir.Node, int] = {}
        graph = node.graph
        while graph is not None and (owner := self._owners.get(id(graph))) is not None:
            if owner.op_type == "If":
                way[owner] = id(graph)
            graph = owner.graph
        return way
