"""Kernels of operators of onnxruntime that their standard form does not say, or not wholly."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.ops.contrib import DOMAIN, OperatorName
from onnx_kvtool.runtime.kernels.contrib.group_query_attention import group_query_attention
from onnx_kvtool.runtime.kernels.kernel import KernelFunction

CONTRIB_KERNELS: Mapping[OperatorName, KernelFunction] = {
    (DOMAIN, "GroupQueryAttention"): group_query_attention,
}
"""By domain and name. All others run as their standard form says."""
