"""The tables of the steps below opset 11: which rule takes which operator down by one opset."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.changes import CHANGES, FRONT
from onnx_kvtool.rewrite.lowering import pool
from onnx_kvtool.rewrite.lowering.early import (
    counting,
    indexing,
    numbers,
    products,
    slicing,
    suppression,
)
from onnx_kvtool.rewrite.lowering.table import LOWERINGS, Lowering, by_operator

_AXES = " ".join(op for op, changes in CHANGES.items() if FRONT in changes and op != "Scan")
"""Operators whose axes may be counted from the back since opset 11; those of Scan are refused."""

_TO_10: Mapping[str, Lowering] = by_operator(
    "lowering from opset 11",
    [
        (_AXES, slicing.lower_negative_axes_11),
        ("BitShift", numbers.lower_bit_shift_11),
        ("Clip", numbers.lower_clip_11),
        ("ConvTranspose", suppression.lower_conv_transpose_11),
        ("CumSum", counting.lower_cum_sum_11),
        ("DepthToSpace", slicing.lower_depth_to_space_11),
        ("Det", products.lower_det_11),
        ("DynamicQuantizeLinear", products.lower_dynamic_quantize_linear_11),
        ("Equal", numbers.lower_equal_11),
        ("Gather", indexing.lower_gather_11),
        ("GatherElements", indexing.lower_gather_elements_11),
        ("GatherND", indexing.lower_gather_nd_11),
        ("Gemm", numbers.lower_gemm_11),
        ("OneHot", indexing.lower_one_hot_11),
        ("Pad", slicing.lower_pad_11),
        ("Range", counting.lower_range_11),
        ("Resize", slicing.lower_resize_11),
        ("Round", numbers.lower_round_11),
        ("ScatterElements", indexing.lower_scatter_elements_11),
        ("ScatterND", indexing.lower_scatter_nd_11),
        ("TopK", counting.lower_top_k_11),
        ("Unique", counting.lower_unique_11),
    ],
)

_TO_9: Mapping[str, Lowering] = by_operator(
    "lowering from opset 10",
    [
        ("AveragePool MaxPool", Lowering("pool", 10, pool.lower_pool_22)),
        ("ConvInteger", products.lower_conv_integer_10),
        ("DequantizeLinear", products.lower_dequantize_linear_10),
        ("IsInf", products.lower_is_inf_10),
        ("MatMulInteger", products.lower_mat_mul_integer_10),
        ("Mod", numbers.lower_mod_10),
        ("NonMaxSuppression", suppression.lower_non_max_suppression_10),
        ("QLinearConv", products.lower_q_linear_conv_10),
        ("QLinearMatMul", products.lower_q_linear_mat_mul_10),
        ("QuantizeLinear", products.lower_quantize_linear_10),
        ("ReverseSequence", slicing.lower_reverse_sequence_10),
        ("RoiAlign", suppression.lower_roi_align_10),
        ("Slice", slicing.lower_slice_10),
        ("ThresholdedRelu", products.lower_thresholded_relu_10),
        ("TopK", counting.lower_top_k_10),
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
