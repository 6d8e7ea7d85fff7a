"""Constant-12 with a number, a string or a list of them, for opset 11."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_constant_12"]


def lower_constant_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write `value_int(s)`, `value_float(s)` or `value_string(s)` as the tensor they stand for.

    Refuses a Constant that holds neither a tensor nor one of these (a sparse tensor at 11 is
    legal and never comes here).
    """
    has_one = len(node.attributes) == 1
    tensor = const_tensor(node.outputs[0]) if has_one else None
    if tensor is None:
        text = "the Constant holds none of the forms that can be a tensor"
        raise MalformedNode("constant-form", text)
    output = em.op("Constant", attributes={"value": tensor}, dtype=tensor.dtype)
    return Replacement((output,))
