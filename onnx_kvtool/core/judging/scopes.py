"""Which values a node can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx

from onnx_kvtool.core.location import Location

__all__ = ["Scope"]


@dataclass(slots=True)
class Scope:
    """The values that the nodes of one graph or function can read.

    Attributes:
        path: Path of the graph.
        nodes: Nodes of the graph.
        names: Values defined so far: inputs, initializers, outputs of the nodes already seen.
        outer: Scope of the node that holds the graph; None at the top and for functions.
    """

    path: str
    nodes: Sequence[onnx.NodeProto]
    names: set[str]
    outer: Scope | None = None
    _produced: set[str] = field(default_factory=set)

    def sees(self, name: str) -> bool:
        """Return whether `name` is defined here or outside."""
        return name in self.names or (self.outer is not None and self.outer.sees(name))

    def will_see(self, name: str) -> bool:
        """Return whether any node, here or outside, produces `name`."""
        if not self._produced:
            self._produced = {output for node in self.nodes for output in node.output if output}
        return name in self._produced or (self.outer is not None and self.outer.will_see(name))

    def place(self, index: int, value: str | None = None) -> Location:
        """Return the place of the node at `index`."""
        node = self.nodes[index]
        op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        return Location(self.path, node.name or None, index, op, value)
