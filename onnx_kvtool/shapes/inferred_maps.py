"""What integer values hold while inference goes on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.expressions import Expr
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.knowledge import Knowledge

__all__ = ["InferredIndexMaps"]


class InferredIndexMaps(IndexMaps):
    """What integer values hold, with the shapes that inference has found so far.

    Args:
        opset: Version of the default domain.
        knowledge: Where the shapes stand.
    """

    def __init__(self, opset: int, knowledge: Knowledge) -> None:
        super().__init__(opset)
        self._knowledge = knowledge

    def _declared(self, value: ir.Value) -> tuple[Expr, ...] | None:
        return self._knowledge.shapes.get(value)

    def put(self, value: ir.Value, content: IndexMap) -> None:
        """Say what `value` holds, such as the formal input of a function at a call."""
        self._memo[value] = content

    def forget(self, value: ir.Value) -> None:
        """Compute anew what `value` holds when it is asked for again."""
        self._memo.pop(value, None)
        self._unrelated.pop(value, None)
