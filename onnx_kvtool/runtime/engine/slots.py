"""Numbered places for the values of one graph."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnx_kvtool.runtime.engine.program import ABSENT
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["Slots"]


class Slots:
    """The slots of one graph while it is compiled.

    Args:
        graph: The graph.
        read: Gives the values of an initializer.
        outer: The slots of the graph around this one; None at the top and for functions.

    Attributes:
        template: As in `Program`: the constants, None elsewhere.
        captured: Values of outer graphs that are read here, with their slots here, in order.
    """

    def __init__(
        self, graph: ir.Graph, read: Callable[[ir.TensorProtocol], Value], outer: Slots | None
    ) -> None:
        self.template: list[Value] = [None]  # the one of `ABSENT`
        self.captured: list[tuple[ir.Value, int]] = []
        self._graph = graph
        self._read = read
        self._outer = outer
        self._slots: dict[int, int] = {}

    def define(self, value: ir.Value, content: Value = None) -> int:
        """Return a new slot for a value that this graph makes, holding `content` from the start."""
        self.template.append(content)
        slot = len(self.template) - 1
        self._slots[id(value)] = slot
        return slot

    def find(self, value: ir.Value | None) -> int | None:
        """Return the slot of a value; None when nothing so far makes it.

        An initializer gets a slot when it is asked for first, so that weights which no needed node
        reads stay unread; so does a value of an outer graph.
        """
        if value is None:
            return ABSENT
        slot = self._slots.get(id(value))
        if slot is not None:
            return slot
        held = self._graph.initializers.get(value.name or "")
        if held is value and value.const_value is not None:
            return self.define(value, self._read(value.const_value))
        if self._outer is not None and self._outer.find(value) is not None:
            slot = self.define(value)
            self.captured.append((value, slot))
        return slot

    @property
    def constants(self) -> set[int]:
        """The slots that hold something from the start."""
        return {slot for slot, content in enumerate(self.template) if content is not None}
