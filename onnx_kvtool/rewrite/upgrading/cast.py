"""Cast and CastLike to float8 types of the FNUZ kind, for opsets from 24 on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again, number_like

__all__ = ["upgrade_cast_24"]


def upgrade_cast_24(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Turn infinities into NaN first: with `saturate` they became NaN, and now the largest number.

    Cast(Where(IsInf(input), NaN, input))
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("input")
    dtype = data.dtype or ir.DataType.UNDEFINED
    infinite = em.op("IsInf", data, dtype=ir.DataType.BOOL)
    nothing = number_like(em, np.nan, data, "nan")
    finite = em.op("Where", infinite, nothing, data, dtype=dtype)
    return again(em, node, [finite, *node.inputs[1:]])
