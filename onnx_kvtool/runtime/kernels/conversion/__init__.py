"""Operators that change the element type of their input and nothing else."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.conversion.cast import bit_cast_26, cast_6, cast_like_15
from onnx_kvtool.runtime.kernels.conversion.quantize import (
    dequantize_linear_10,
    dynamic_quantize_linear_11,
    quantize_linear_10,
)
from onnx_kvtool.runtime.kernels.kernel import Lines

LINES: Lines = {
    "Cast": {6: cast_6},
    "CastLike": {15: cast_like_15},
    "BitCast": {26: bit_cast_26},
    "QuantizeLinear": {10: quantize_linear_10},
    "DequantizeLinear": {10: dequantize_linear_10},
    "DynamicQuantizeLinear": {11: dynamic_quantize_linear_11},
}
"""Operators of this family with their kernels, oldest first."""
