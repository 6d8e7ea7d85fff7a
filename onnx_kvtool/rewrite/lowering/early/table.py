"""The tables of the steps below opset 11: which rule takes which operator down by one opset."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.changes import CHANGES, FRONT
from onnx_kvtool.rewrite.lowering.early.counting import (
    lower_cum_sum_11,
    lower_range_11,
    lower_top_k_10,
    lower_top_k_11,
    lower_unique_11,
)
from onnx_kvtool.rewrite.lowering.early.indexing import (
    lower_gather_11,
    lower_gather_elements_11,
    lower_gather_nd_11,
    lower_one_hot_11,
    lower_scatter_elements_11,
    lower_scatter_nd_11,
)
from onnx_kvtool.rewrite.lowering.early.numbers import (
    lower_bit_shift_11,
    lower_clip_11,
    lower_equal_11,
    lower_gemm_11,
    lower_mod_10,
    lower_round_11,
)
from onnx_kvtool.rewrite.lowering.early.products import (
    lower_conv_integer_10,
    lower_dequantize_linear_10,
    lower_det_11,
    lower_dynamic_quantize_linear_11,
    lower_is_inf_10,
    lower_mat_mul_integer_10,
    lower_q_linear_conv_10,
    lower_q_linear_mat_mul_10,
    lower_quantize_linear_10,
    lower_thresholded_relu_10,
)
from onnx_kvtool.rewrite.lowering.early.slicing import (
    lower_depth_to_space_11,
    lower_negative_axes_11,
    lower_pad_11,
    lower_resize_11,
    lower_reverse_sequence_10,
    lower_slice_10,
)
from onnx_kvtool.rewrite.lowering.early.suppression import (
    lower_conv_transpose_11,
    lower_non_max_suppression_10,
    lower_roi_align_10,
)
from onnx_kvtool.rewrite.lowering.pool import lower_pool_22
from onnx_kvtool.rewrite.lowering.table import LOWERINGS, Lowering, by_operator

_AXES = " ".join(op for op, changes in CHANGES.items() if FRONT in changes and op != "Scan")
"""Operators whose axes may be counted from the back since opset 11; those of Scan are refused."""

_TO_10: Mapping[str, Lowering] = by_operator(
    "lowering from opset 11",
    [
        (_AXES, lower_negative_axes_11),
        ("BitShift", lower_bit_shift_11),
        ("Clip", lower_clip_11),
        ("ConvTranspose", lower_conv_transpose_11),
        ("CumSum", lower_cum_sum_11),
        ("DepthToSpace", lower_depth_to_space_11),
        ("Det", lower_det_11),
        ("DynamicQuantizeLinear", lower_dynamic_quantize_linear_11),
        ("Equal", lower_equal_11),
        ("Gather", lower_gather_11),
        ("GatherElements", lower_gather_elements_11),
        ("GatherND", lower_gather_nd_11),
        ("Gemm", lower_gemm_11),
        ("OneHot", lower_one_hot_11),
        ("Pad", lower_pad_11),
        ("Range", lower_range_11),
        ("Resize", lower_resize_11),
        ("Round", lower_round_11),
        ("ScatterElements", lower_scatter_elements_11),
        ("ScatterND", lower_scatter_nd_11),
        ("TopK", lower_top_k_11),
        ("Unique", lower_unique_11),
    ],
)

_TO_9: Mapping[str, Lowering] = by_operator(
    "lowering from opset 10",
    [
        ("AveragePool MaxPool", Lowering("pool", 10, lower_pool_22)),
        ("ConvInteger", lower_conv_integer_10),
        ("DequantizeLinear", lower_dequantize_linear_10),
        ("IsInf", lower_is_inf_10),
        ("MatMulInteger", lower_mat_mul_integer_10),
        ("Mod", lower_mod_10),
        ("NonMaxSuppression", lower_non_max_suppression_10),
        ("QLinearConv", lower_q_linear_conv_10),
        ("QLinearMatMul", lower_q_linear_mat_mul_10),
        ("QuantizeLinear", lower_quantize_linear_10),
        ("ReverseSequence", lower_reverse_sequence_10),
        ("RoiAlign", lower_roi_align_10),
        ("Slice", lower_slice_10),
        ("ThresholdedRelu", lower_thresholded_relu_10),
        ("TopK", lower_top_k_10),
    ],
)

STEPS: Mapping[int, Mapping[str, Lowering]] = Table(
    "step below opset 11", [(10, _TO_10), (9, _TO_9)]
)
"""The rules by the opset that they lead to."""


def rules_of(op_type: str) -> tuple[Lowering, ...]:
    """Return every rule that takes an operator down, that for the highest opset first."""
    tables = (LOWERINGS, *STEPS.values())
    return tuple(table[op_type] for table in tables if op_type in table)
