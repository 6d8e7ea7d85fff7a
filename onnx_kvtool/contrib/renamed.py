"""Operators that exporters write though ONNX has them now."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import only, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
"""What GridSample-20 calls the modes."""


def grid_sample(view: NodeView, em: Emitter) -> Replacement:
    """Write GridSample as that of ONNX, whose modes have other names.

    Refuses `bicubic` with a `border`: onnxruntime moves each pixel outside to the border, where
    ONNX moves the point.
    """
    x, mode = view.required("X"), view.string("mode")
    refuse_value(view, "mode", *_MODES)
    borders = ("zeros", "reflection") if mode == "bicubic" else ("zeros", "border", "reflection")
    refuse_value(view, "padding_mode", *borders)
    return only(
        em.op(
            "GridSample",
            x,
            view.required("Grid"),
            align_corners=view.integer("align_corners"),
            mode=_MODES[mode],
            padding_mode=view.string("padding_mode"),
        )
    )


def range_(view: NodeView, em: Emitter) -> Replacement:
    """Write Range as that of ONNX, of scalars; a step that is not given is 1."""
    start, delta = view.required("start"), view.input("delta")
    first, limit = (_shaped(em, x, ()) for x in (start, view.required("limit")))
    return only(em.op("Range", first, limit, 1 if delta is None else _shaped(em, delta, ())))


def trilu(view: NodeView, em: Emitter) -> Replacement:
    """Write Trilu as that of ONNX."""
    x, k = view.required("X"), view.input("k")
    inputs = [x] if k is None else [x, _shaped(em, k, ())]
    return only(em.op("Trilu", *inputs, upper=view.integer("upper")))


def _shaped(em: Emitter, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """Return what an input of one shape among several holds, in the shape that ONNX wants.

    Args:
        em: Where to build.
        value: One element, or (n,) or (1, n).
        shape: () or (1,) for one element, (-1,) for (n,).
    """
    dims = dims_of(value)
    if dims is not None and (dims == shape or (shape == (-1,) and len(dims) == 1)):
        return value
    target = em.constant(np.array(shape, np.int64), "shape")
    return em.op("Reshape", value, target)
