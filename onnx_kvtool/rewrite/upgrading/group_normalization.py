"""GroupNormalization-18, for opsets from 21 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.refusal import Refusal
from onnx_kvtool.rewrite.upgrading.forms import again, fixed
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["upgrade_group_normalization_21"]


def upgrade_group_normalization_21(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Repeat scale and bias, which are per group, (num_groups,), for each channel: (C,).

    Version 18 computes in the type of X; `stash_type` says so to version 21, which would compute
    in float32.

    Refuses an unknown element type.
    """
    view = NodeView(node, context.opset_of(node))
    data, groups = view.required("X"), view.integer("num_groups")
    if data.dtype is None:
        raise Refusal("unknown-element-type", f"the type of `{data.name}` is unknown")
    dims = dims_of(data)
    channels = dims[1] if dims is not None and len(dims) > 1 else None
    if isinstance(channels, int):
        target = fixed([groups, channels // groups], em, "per_group")
    else:
        count = em.op("Shape", data, attributes={"start": 1, "end": 2}, hint="channels")  # (1,)
        each = em.op("Div", count, fixed([groups], em, "groups"))
        target = em.op("Concat", fixed([groups], em, "groups"), each, attributes={"axis": 0})

    def spread(value: ir.Value) -> ir.Value:
        dtype = value.dtype or ir.DataType.UNDEFINED
        column = em.op("Reshape", value, fixed([groups, 1], em, "column"), dtype=dtype)
        repeated = em.op("Expand", column, target, dtype=dtype)  # (num_groups, C / num_groups)
        return em.op("Reshape", repeated, fixed([-1], em, "flat"), dtype=dtype)

    inputs = [data, spread(view.required("scale")), spread(view.required("bias"))]
    plain = data.dtype == ir.DataType.FLOAT
    stash = {} if plain else {"stash_type": data.dtype.value}
    return again(em, node, inputs, attributes=stash)
