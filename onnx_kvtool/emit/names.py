"""Fresh names for new nodes and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnx_kvtool.core.walk import contents

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Names"]


class Names:
    """Names that no value or node of a model has, in any graph, sub-graph or function.

    One name space serves values and nodes of all scopes, so that a new name can neither collide
    in its own graph nor shadow one of an outer graph.
    """

    def __init__(self, model: ir.Model | None = None) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        if model is not None:
            for _, graph, nodes in contents(model):
                self._take_all(graph, nodes)

    def _take_all(self, graph: ir.Graph, nodes: Iterable[ir.Node]) -> None:
        taken = self._taken
        taken.update(graph.initializers)
        taken.update(value.name for value in graph.inputs if value.name)
        for node in nodes:
            if node.name:
                taken.add(node.name)
            for value in node.outputs:
                if value.name:
                    taken.add(value.name)

    def fresh(self, hint: str) -> str:
        """Return `hint`, or `hint_<n>` with the first free n, and take it."""
        name = hint
        count = self._next.get(hint, 0)
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._next[hint] = count
        self._taken.add(name)
        return name
