"""Kernels of operators of onnxruntime that their standard form does not say, or not wholly."""

from __future__ import annotations

from onnx_kvtool.ops.contrib import DOMAIN, OperatorName
from onnx_kvtool.runtime.kernels.contrib.conv_transpose import conv_transpose_with_dynamic_pads
from onnx_kvtool.runtime.kernels.contrib.gather_block_quantized import gather_block_quantized
from onnx_kvtool.runtime.kernels.contrib.grid_sample import grid_sample
from onnx_kvtool.runtime.kernels.contrib.group_query_attention import group_query_attention
from onnx_kvtool.runtime.kernels.kernel import Kernel

CONTRIB_LINES: tuple[tuple[OperatorName, Kernel], ...] = (
    ((DOMAIN, "ConvTransposeWithDynamicPads"), Kernel(1, conv_transpose_with_dynamic_pads)),
    ((DOMAIN, "GatherBlockQuantized"), Kernel(1, gather_block_quantized)),
    ((DOMAIN, "GridSample"), Kernel(1, grid_sample)),
    ((DOMAIN, "GroupQueryAttention"), Kernel(1, group_query_attention)),
)
"""By domain and name; one version each. All others run as their standard form says."""
