"""Places in a model, and the one form of every finding, refusal and conflict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from onnx_kvtool.core.choices import Severity
from onnx_kvtool.core.domains import operator_label
from onnx_kvtool.core.record import Key, Record, filled

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["AT_NODE", "AT_VALUE", "Diagnostic", "Location", "Severity"]


# Places in a model, printed the same way everywhere.


@dataclass(frozen=True, slots=True)
class Location(Record):
    """One place in a model: a graph, and in it perhaps a node and a value.

    Attributes:
        graph: Path of the graph. It begins with the name of the main graph (`main_graph`), or with
            `domain::name` for a function body. Each nested sub-graph adds one part
            `/<node>.<attribute>`. Empty for the whole model.
        node: Name of the node; None for an unnamed one, or if no node is concerned.
        index: Position of the node in its graph, counted from 0; None if no node is concerned.
        op: Operator of the node: `Op` or `domain::Op`.
        value: Name of the value.
    """

    graph: str = ""
    node: str | None = None
    index: int | None = None
    op: str | None = None
    value: str | None = None

    JSON: ClassVar[tuple[str | Key, ...]] = (
        "graph", Key("node_label", "node"), "index", "op", "value",
    )  # fmt: skip

    @staticmethod
    def of(
        graph: str, node: ir.Node | onnx.NodeProto, index: int | None, value: str | None = None
    ) -> Location:
        """Return the place of `node`, which stands at `index` in the graph at path `graph`."""
        return Location(graph, node.name or None, index, operator_label(node), value)

    def of_value(self, value: ir.Value | None) -> Location:
        """Return the place of the same node with a value."""
        name = None if value is None else value.name
        return Location(self.graph, self.node, self.index, self.op, name)

    @property
    def node_label(self) -> str | None:
        """Name of the node, or `#<index>` if it has none; None if no node is concerned."""
        if self.node:
            return self.node
        return None if self.index is None else f"#{self.index}"

    def __str__(self) -> str:
        parts = [self.graph] if self.graph else []
        if (label := self.node_label) is not None:
            parts.append(f"node `{label}`" + (f" ({self.op})" if self.op else ""))
        if self.value is not None:
            parts.append(f"value `{self.value}`")
        return ", ".join(parts) or "model"

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Location:
        """Return the place that an object gives; its `node` may be the index of an unnamed one."""
        place: Location = filled(cls, data)
        node, index = data.get("node"), place.index
        if not node or node == f"#{index}":
            return place
        return cls(place.graph, node, index, place.op, place.value)


AT_NODE = Key("location", parts=("graph", "node", "index", "op"))
"""The keys of the place of a node, in the place of `location`."""

AT_VALUE = Key("location", parts=("graph", "node", "index", "op", "value"))
"""The keys of the place of a node or a value."""


# The one form of every finding, refusal and conflict.


@dataclass(frozen=True, slots=True)
class Diagnostic(Record):
    """A finding, a refusal, a conflict or a failed verification.

    Attributes:
        code: Stable identifier (`unknown-rank`, `KV008`); never reused for another meaning.
        severity: `error`, `warning` or `info`.
        location: Where it is.
        message: What is wrong, got and expected; one sentence without a full stop.
        help: What to do about it, imperative; None without a remedy.
        lowest_opset: For a refusal: the lowest opset at which the node could stay or be lowered;
            None if none is known.
    """

    code: str
    severity: Severity
    location: Location
    message: str
    help: str | None = None
    lowest_opset: int | None = None

    def __str__(self) -> str:
        text = f"{self.code}: {self.location}: {self.message}"
        return f"{text}\n  help: {self.help}" if self.help else text
