"""Operators that write elements to places given by indices."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Lines
from onnx_kvtool.runtime.kernels.scatter.scatter import (
    scatter_elements_11,
    scatter_elements_16,
    scatter_elements_18,
    scatter_nd_11,
    scatter_nd_18,
)
from onnx_kvtool.runtime.kernels.scatter.tensor_scatter import tensor_scatter

LINES: Lines = {
    "Scatter": {9: scatter_elements_11},
    "ScatterElements": {11: scatter_elements_11, 16: scatter_elements_16, 18: scatter_elements_18},
    "ScatterND": {11: scatter_nd_11, 18: scatter_nd_18},
    "TensorScatter": {24: tensor_scatter},
}
"""Operators of this family with their kernels, oldest first."""
