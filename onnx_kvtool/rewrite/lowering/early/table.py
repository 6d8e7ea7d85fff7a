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
from onnx_kvtool.rewrite.lowering.table import LOWERINGS, Lowering, by_operator, lowering

_AXES = " ".join(op for op, changes in CHANGES.items() if FRONT in changes and op != "Scan")
"""Operators whose axes may be counted from the back since opset 11; those of Scan are refused."""

_TO_10: Mapping[str, Lowering] = by_operator(
    "lowering from opset 11",
    [
        (_AXES, lowering(lower_negative_axes_11)),
        ("BitShift", lowering(lower_bit_shift_11)),
        ("Clip", lowering(lower_clip_11)),
        ("ConvTranspose", lowering(lower_conv_transpose_11)),
        ("CumSum", lowering(lower_cum_sum_11)),
        ("DepthToSpace", lowering(lower_depth_to_space_11)),
        ("Det", lowering(lower_det_11)),
        (
            "DynamicQuantizeLinear",
            lowering(lower_dynamic_quantize_linear_11),
        ),
        ("Equal", lowering(lower_equal_11)),
        ("Gather", lowering(lower_gather_11)),
        ("GatherElements", lowering(lower_gather_elements_11)),
        ("GatherND", lowering(lower_gather_nd_11)),
        ("Gemm", lowering(lower_gemm_11)),
        ("OneHot", lowering(lower_one_hot_11)),
        ("Pad", lowering(lower_pad_11)),
        ("Range", lowering(lower_range_11)),
        ("Resize", lowering(lower_resize_11)),
        ("Round", lowering(lower_round_11)),
        ("ScatterElements", lowering(lower_scatter_elements_11)),
        ("ScatterND", lowering(lower_scatter_nd_11)),
        ("TopK", lowering(lower_top_k_11)),
        ("Unique", lowering(lower_unique_11)),
    ],
)

_TO_9: Mapping[str, Lowering] = by_operator(
    "lowering from opset 10",
    [
        ("AveragePool MaxPool", Lowering("pool", 10, lower_pool_22)),
        ("ConvInteger", lowering(lower_conv_integer_10)),
        ("DequantizeLinear", lowering(lower_dequantize_linear_10)),
        ("IsInf", lowering(lower_is_inf_10)),
        ("MatMulInteger", lowering(lower_mat_mul_integer_10)),
        ("Mod", lowering(lower_mod_10)),
        (
            "NonMaxSuppression",
            lowering(lower_non_max_suppression_10),
        ),
        ("QLinearConv", lowering(lower_q_linear_conv_10)),
        ("QLinearMatMul", lowering(lower_q_linear_mat_mul_10)),
        ("QuantizeLinear", lowering(lower_quantize_linear_10)),
        ("ReverseSequence", lowering(lower_reverse_sequence_10)),
        ("RoiAlign", lowering(lower_roi_align_10)),
        ("Slice", lowering(lower_slice_10)),
        ("ThresholdedRelu", lowering(lower_thresholded_relu_10)),
        ("TopK", lowering(lower_top_k_10)),
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
