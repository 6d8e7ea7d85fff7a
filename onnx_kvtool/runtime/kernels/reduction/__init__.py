"""Operators that reduce axes to one element, or to a few."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Kernel
from onnx_kvtool.runtime.kernels.reduction import extremes, sums
from onnx_kvtool.runtime.kernels.reduction.arg_extremes import arg_max_1, arg_min_1
from onnx_kvtool.runtime.kernels.reduction.forms import (
    Reduction,
    axes_by_attribute,
    axes_by_input,
)
from onnx_kvtool.runtime.kernels.reduction.top_k import top_k_1, top_k_10

__all__ = ["LINES"]


def _both_forms(reduction: Reduction, input_since: int = 18) -> tuple[Kernel, ...]:
    by_attribute = Kernel(1, axes_by_attribute(reduction))
    return by_attribute, Kernel(input_since, axes_by_input(reduction))


LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("ReduceSum", _both_forms(sums.sum_, 13)),
    ("ReduceMean", _both_forms(sums.mean)),
    ("ReduceMax", _both_forms(extremes.maximum)),
    ("ReduceMin", _both_forms(extremes.minimum)),
    ("ReduceProd", _both_forms(sums.prod)),
    ("ReduceL1", _both_forms(sums.l1)),
    ("ReduceL2", _both_forms(sums.l2)),
    ("ReduceSumSquare", _both_forms(sums.sum_square)),
    ("ReduceLogSum", _both_forms(sums.log_sum)),
    ("ReduceLogSumExp", _both_forms(sums.log_sum_exp)),
    ("ArgMax", (Kernel(1, arg_max_1),)),
    ("ArgMin", (Kernel(1, arg_min_1),)),
    ("TopK", (Kernel(1, top_k_1), Kernel(10, top_k_10))),
)
"""Operators of this family with their kernels, oldest first."""
