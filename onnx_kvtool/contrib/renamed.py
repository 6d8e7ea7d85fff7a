"""Operators that exporters still write, although ONNX has them now."""

from __future__ import annotations

from onnx_kvtool.contrib.rule import Site, only, refuse_value
from onnx_kvtool.emit.emitter import Replacement
from onnx_kvtool.emit.forms import scalar

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
"""The name of each mode in GridSample-20."""


def grid_sample(site: Site) -> Replacement:
    """Write GridSample as that of ONNX, whose modes have other names.

    Refuses `bicubic` with `border`: onnxruntime moves each pixel that is outside to the border, and
    ONNX moves the point.
    """
    x, mode = site.required("X"), site.string("mode")
    refuse_value(site, "mode", *_MODES)
    borders = ("zeros", "reflection") if mode == "bicubic" else ("zeros", "border", "reflection")
    refuse_value(site, "padding_mode", *borders)
    return only(
        site.op(
            "GridSample",
            x,
            site.required("Grid"),
            align_corners=site.integer("align_corners"),
            mode=_MODES[mode],
            padding_mode=site.string("padding_mode"),
        )
    )


def range_(site: Site) -> Replacement:
    """Write Range as that of ONNX, of scalars; an absent step is 1."""
    first, limit = (scalar(site, x) for x in site.operands("start", "limit"))
    delta = site.input("delta")
    return only(site.op("Range", first, limit, 1 if delta is None else scalar(site, delta)))


def trilu(site: Site) -> Replacement:
    """Write Trilu as that of ONNX."""
    x, k = site.required("X"), site.input("k")
    inputs = [x] if k is None else [x, scalar(site, k)]
    return only(site.op("Trilu", *inputs, upper=site.integer("upper")))
