"""RoiAlign-10, for opsets from 16 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again

__all__ = ["upgrade_roi_align_16"]


def upgrade_roi_align_16(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Name what version 10 does: no shift by half a pixel, which version 16 has by default."""
    mode = {"coordinate_transformation_mode": "output_half_pixel"}
    return again(em, node, list(node.inputs), attributes=mode)
