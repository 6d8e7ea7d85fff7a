"""Operators that are sums of products: of matrices, and by an equation."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Kernel
from onnx_kvtool.runtime.kernels.linear.einsum import einsum_12
from onnx_kvtool.runtime.kernels.linear.gemm import gemm_7
from onnx_kvtool.runtime.kernels.linear.mat_mul import mat_mul_1
from onnx_kvtool.runtime.kernels.linear.quantized import mat_mul_integer_10, q_linear_mat_mul_10

__all__ = ["LINES"]

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("MatMul", (Kernel(1, mat_mul_1),)),
    ("Gemm", (Kernel(7, gemm_7),)),
    ("MatMulInteger", (Kernel(10, mat_mul_integer_10),)),
    ("QLinearMatMul", (Kernel(10, q_linear_mat_mul_10),)),
    ("Einsum", (Kernel(12, einsum_12),)),
)
"""Operators of this family with their kernels, oldest first."""
