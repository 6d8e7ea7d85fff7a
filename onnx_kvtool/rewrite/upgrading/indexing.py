"""Operators that select by indices: OneHot and Scatter."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.upgrading.forms import again, fixed

__all__ = ["upgrade_one_hot_11", "upgrade_scatter_11"]

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


def upgrade_one_hot_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Keep negative indices out of range: OneHot(Where(indices < 0, depth, indices), ...).

    They select nothing in version 9, and count from the end in version 11; `depth` itself selects
    nothing in both. Numbers of other types are cast to int64, as the operator does itself.
    Constant indices without a negative one stay as they are.
    """
    view = NodeView(node, context.opset_of(node))
    indices, depth, values = (view.required(name) for name in ("indices", "depth", "values"))
    known = context.folder.integers(indices)
    if known is not None and (known >= 0).all():
        return again(em, node, [indices, depth, values])
    whole = [
        value if value.dtype == _INT64 else em.op("Cast", value, attributes={"to": _INT64.value})
        for value in (indices, depth)
    ]
    # One element, of rank 0 or 1: as (1,) it would give scalar indices a dimension.
    scalar = em.op("Reshape", whole[1], fixed([], em, "scalar"), hint="depth")
    negative = em.op("Less", whole[0], fixed(0, em, "zero"), dtype=_BOOL)
    kept = em.op("Where", negative, scalar, whole[0], hint="indices")
    return again(em, node, [kept, scalar, values])


def upgrade_scatter_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Call it ScatterElements; inputs and attributes are the same."""
    return again(em, node, list(node.inputs), op_type="ScatterElements")
