"""Operators that exporters still write, although ONNX has them now."""

from __future__ import annotations

from onnx_kvtool.contrib.rule import only, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import scalar
from onnx_kvtool.ops.view import NodeView

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
"""The name of each mode in GridSample-20."""


def grid_sample(view: NodeView, em: Emitter) -> Replacement:
    """Write GridSample as that of ONNX, whose modes have other names.

    Refuses `bicubic` with `border`: onnxruntime moves each pixel that is outside to the border, and
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
    """Write Range as that of ONNX, of scalars; an absent step is 1."""
    first, limit = (scalar(em, x) for x in view.operands("start", "limit"))
    delta = view.input("delta")
    return only(em.op("Range", first, limit, 1 if delta is None else scalar(em, delta)))


def trilu(view: NodeView, em: Emitter) -> Replacement:
    """Write Trilu as that of ONNX."""
    x, k = view.required("X"), view.input("k")
    inputs = [x] if k is None else [x, scalar(em, k)]
    return only(em.op("Trilu", *inputs, upper=view.integer("upper")))
