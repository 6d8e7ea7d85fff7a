"""Clip-6, for opsets from 11 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again, number_like

__all__ = ["upgrade_clip_11"]

_NO_LARGER = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def upgrade_clip_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the bounds as inputs: ().

    An absent bound is the largest float32 in version 6, and the largest number of the element
    type in version 11. Both cut nothing but infinities for float32 and float16, and the bound stays
    absent; for float64 it is written out.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("input")
    bounds: list[ir.Value | None] = []
    for name in ("min", "max"):
        bound = view.attribute(name)
        assert isinstance(bound, float)
        absent = bound == view.facts.attributes[name].default and data.dtype in _NO_LARGER
        bounds.append(None if absent else number_like(em, bound, data, name))
    return again(em, node, [data, *bounds], without=("min", "max"))
