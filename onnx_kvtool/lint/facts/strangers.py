"""Operators that are not of ONNX and stand in its default domain all the same."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.core.table import Table

__all__ = ["STRANGERS"]

_FUSED = "onnxruntime's optimiser and model builder put it there, and onnxruntime alone runs it"
_RETIRED = "it was an experiment of early releases, and onnxruntime alone still runs it"

STRANGERS: Mapping[str, str] = Table(
    "operator that onnxruntime has in the default domain",
    [
        # Opset 17 made this one of ONNX; below, it is one of onnxruntime's.
        ("LayerNormalization", _FUSED),
        ("SimplifiedLayerNormalization", _FUSED),
        ("Affine", _RETIRED),
        ("Crop", _RETIRED),
        ("DynamicSlice", _RETIRED),
        ("GRUUnit", _RETIRED),
        ("GivenTensorFill", _RETIRED),
        ("ImageScaler", _RETIRED),
        ("ParametricSoftplus", _RETIRED),
        ("Scale", _RETIRED),
        ("ScaledTanh", _RETIRED),
    ],
)
"""What is known of each, a clause."""
