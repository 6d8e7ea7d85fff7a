"""GridSample-20, for opsets 16 to 19."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["lower_grid_sample_20"]

_OLD_NAMES = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}


def lower_grid_sample_20(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the modes the names they had for images.

    Refuses volumes and an unknown rank: before opset 20 the operator takes (N, C, H, W) only; and
    every opset before 16.
    """
    view = NodeView(node, context.opset_of(node))
    data, grid, mode = view.required("X"), view.required("grid"), view.string("mode")
    dims = dims_of(data)
    if em.opset < 16:
        raise Refusal("new-operator", "`GridSample` came with opset 16")
    if dims is None or len(dims) != 4:
        rank = "an unknown rank" if dims is None else f"rank {len(dims)}"
        raise Refusal(
            "unknown-rank" if dims is None else "rank",
            f"`{data.name}` has {rank}, and GridSample takes (N, C, H, W) only before opset 20",
            lowest_opset=20,
        )
    attributes: dict[str, int | str] = {
        "align_corners": view.integer("align_corners"),
        "mode": _OLD_NAMES[mode],
        "padding_mode": view.string("padding_mode"),
    }
    dtype = data.dtype or ir.DataType.UNDEFINED
    return Replacement((em.op("GridSample", data, grid, attributes=attributes, dtype=dtype),))
