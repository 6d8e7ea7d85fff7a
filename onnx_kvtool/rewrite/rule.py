"""What the engine asks of a rule, whichever way it takes a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.rewrite.emit import Emitter
    from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement

__all__ = ["Rule"]


class Rule(Protocol):
    """A rule of one operator: a line of the table of lowerings, or of that of upgrades."""

    @property
    def name(self) -> str:
        """What the report calls the rule."""

    @property
    def apply(self) -> Callable[[LoweringContext, ir.Node, Emitter], Replacement | None]:
        """Guard, then emit.

        Raises `Refusal` or `MalformedNode` before anything is edited; returns None where the rule
        has nothing to say.
        """

    def applies(self, opset: int, target: int, forced: bool) -> bool:
        """Return whether the rule takes a node of `opset` to `target`.

        Args:
            opset: What the node was written for.
            target: What it shall be legal at.
            forced: Whether the caller wants the operator gone although the target has it.
        """
