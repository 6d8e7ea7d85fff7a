"""OptionalHasElement and OptionalGetElement of opset 18 on a value that is not optional."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.identity import passed

__all__ = ["lower_optional_get_element_18", "lower_optional_has_element_18"]


def lower_optional_has_element_18(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Answer at once: a tensor or a sequence is there, an absent input is not.

    Refuses an optional value, of which nothing is known before the run.
    """
    given = node.inputs[0] if node.inputs else None
    if given is not None:
        _refuse_optional(given, "OptionalHasElement", em.opset)
    answer = em.constant(np.array(given is not None, np.bool_), "has_element")
    return Replacement((em.op("Identity", answer, dtype=ir.DataType.BOOL),))


def lower_optional_get_element_18(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Pass a tensor or a sequence through.

    Refuses an optional value.
    """
    given = node.inputs[0]
    assert given is not None
    _refuse_optional(given, "OptionalGetElement", em.opset)
    return Replacement((passed(em, given),))


def _refuse_optional(value: ir.Value, op: str, opset: int) -> None:
    if value.type is None or isinstance(value.type, ir.OptionalType):
        what = "of unknown type" if value.type is None else "optional"
        raise Refusal(
            "element-type",
            f"`{value.name}` is {what}, which `{op}` does not take at opset {opset}",
        )
