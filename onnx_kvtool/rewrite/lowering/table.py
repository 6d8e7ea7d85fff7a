"""The table of lowerings: which rule rewrites which operator, and from which opset on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_kvtool.core.table import Table
from onnx_kvtool.rewrite.lowering.attention import lower_attention_23_24_25
from onnx_kvtool.rewrite.lowering.constant import lower_constant_12
from onnx_kvtool.rewrite.lowering.pad import lower_pad_18
from onnx_kvtool.rewrite.lowering.shape import lower_shape_15
from onnx_kvtool.rewrite.lowering.softmax import lower_softmax_13
from onnx_kvtool.rewrite.lowering.split import lower_split_18
from onnx_kvtool.rewrite.lowering.tensor_scatter import lower_tensor_scatter_24

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.rewrite.emit import Emitter
    from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement

__all__ = ["LOWERINGS", "Lowering"]


@dataclass(frozen=True, slots=True)
class Lowering:
    """One rule.

    Attributes:
        name: What the report calls it.
        since: The opset whose form of the operator the rule takes down: it applies to nodes
            written for it or a later one, and to targets below it.
        apply: Guard, then emit. Raises `Refusal` or `MalformedNode` before anything is edited;
            returns None where it does not apply and the schema's function body shall serve.
        removes: Whether the rule replaces the operator by others, so that it can be asked for
            although the target has the operator.
        reads: The oldest form of the operator that the rule reads; None for `since`.
    """

    name: str
    since: int
    apply: Callable[[LoweringContext, ir.Node, Emitter], Replacement | None]
    removes: bool = False
    reads: int | None = None

    def applies(self, opset: int, target: int, forced: bool) -> bool:
        """Return whether the rule takes a node of `opset` to `target`.

        Args:
            opset: What the node was written for.
            target: What it shall be legal at.
            forced: Whether the caller wants the operator gone although the target has it.
        """
        oldest = self.since if self.reads is None else self.reads
        return opset >= oldest and (target < self.since or (forced and self.removes))


LOWERINGS: Mapping[str, Lowering] = Table(
    "lowering",
    [
        (
            "Attention",
            Lowering("attention", 25, lower_attention_23_24_25, removes=True, reads=23),
        ),
        ("Constant", Lowering("constant", 12, lower_constant_12)),
        ("Hardmax", Lowering("softmax", 13, lower_softmax_13)),
        ("LogSoftmax", Lowering("softmax", 13, lower_softmax_13)),
        ("Pad", Lowering("pad", 18, lower_pad_18)),
        ("Shape", Lowering("shape", 15, lower_shape_15)),
        ("Softmax", Lowering("softmax", 13, lower_softmax_13)),
        ("Split", Lowering("split", 18, lower_split_18)),
        ("TensorScatter", Lowering("tensor_scatter", 24, lower_tensor_scatter_24, removes=True)),
    ],
)
