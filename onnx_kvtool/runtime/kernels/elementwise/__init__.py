"""Operators that compute each element of the result from the elements at its place."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.elementwise import unary
from onnx_kvtool.runtime.kernels.elementwise.binary import (
    bit_shift_11,
    div_7,
    max_8,
    mean_8,
    min_8,
    mod_10,
    mod_28,
    over_a_b,
    pow_7,
    sum_8,
)
from onnx_kvtool.runtime.kernels.elementwise.cumulative import cum_prod_26, cum_sum_11
from onnx_kvtool.runtime.kernels.elementwise.unary import (
    clip_6,
    clip_11,
    dropout_7,
    dropout_10,
    dropout_12,
    erf_9,
    is_inf_10,
    is_nan_9,
    over_input,
    over_x,
)
from onnx_kvtool.runtime.kernels.kernel import Kernel

# Versions before 7 of the binary operators broadcast by attributes.
LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("Add", (Kernel(7, over_a_b(np.add)),)),
    ("Sub", (Kernel(7, over_a_b(np.subtract)),)),
    ("Mul", (Kernel(7, over_a_b(np.multiply)),)),
    ("Div", (Kernel(7, div_7),)),
    ("Mod", (Kernel(10, mod_10), Kernel(28, mod_28))),
    ("Pow", (Kernel(7, pow_7),)),
    ("Neg", (Kernel(6, over_x(unary.negative)),)),
    ("Abs", (Kernel(6, over_x(unary.absolute)),)),
    ("Sign", (Kernel(9, over_input(unary.sign)),)),
    ("Floor", (Kernel(6, over_x(np.floor)),)),
    ("Ceil", (Kernel(6, over_x(np.ceil)),)),
    ("Round", (Kernel(11, over_x(unary.round_even)),)),
    ("Reciprocal", (Kernel(6, over_x(unary.reciprocal)),)),
    ("Sqrt", (Kernel(6, over_x(np.sqrt)),)),
    ("Exp", (Kernel(6, over_input(np.exp)),)),
    ("Log", (Kernel(6, over_input(np.log)),)),
    ("Sin", (Kernel(7, over_input(np.sin)),)),
    ("Cos", (Kernel(7, over_input(np.cos)),)),
    ("Tan", (Kernel(7, over_input(np.tan)),)),
    ("Asin", (Kernel(7, over_input(np.arcsin)),)),
    ("Acos", (Kernel(7, over_input(np.arccos)),)),
    ("Atan", (Kernel(7, over_input(np.arctan)),)),
    ("Sinh", (Kernel(9, over_input(np.sinh)),)),
    ("Cosh", (Kernel(9, over_input(np.cosh)),)),
    ("Tanh", (Kernel(6, over_input(np.tanh)),)),
    ("Asinh", (Kernel(9, over_input(np.arcsinh)),)),
    ("Acosh", (Kernel(9, over_input(np.arccosh)),)),
    ("Atanh", (Kernel(9, over_input(np.arctanh)),)),
    ("Erf", (Kernel(9, erf_9),)),
    ("And", (Kernel(7, over_a_b(np.logical_and)),)),
    ("Or", (Kernel(7, over_a_b(np.logical_or)),)),
    ("Xor", (Kernel(7, over_a_b(np.logical_xor)),)),
    ("Not", (Kernel(1, over_x(np.logical_not)),)),
    ("BitShift", (Kernel(11, bit_shift_11),)),
    ("BitwiseAnd", (Kernel(18, over_a_b(np.bitwise_and)),)),
    ("BitwiseOr", (Kernel(18, over_a_b(np.bitwise_or)),)),
    ("BitwiseXor", (Kernel(18, over_a_b(np.bitwise_xor)),)),
    ("BitwiseNot", (Kernel(18, over_x(np.invert)),)),
    ("Equal", (Kernel(7, over_a_b(np.equal)),)),
    ("Less", (Kernel(7, over_a_b(np.less)),)),
    ("LessOrEqual", (Kernel(12, over_a_b(np.less_equal)),)),
    ("Greater", (Kernel(7, over_a_b(np.greater)),)),
    ("GreaterOrEqual", (Kernel(12, over_a_b(np.greater_equal)),)),
    ("Min", (Kernel(8, min_8),)),
    ("Max", (Kernel(8, max_8),)),
    ("Sum", (Kernel(8, sum_8),)),
    ("Mean", (Kernel(8, mean_8),)),
    ("Clip", (Kernel(6, clip_6), Kernel(11, clip_11))),
    ("IsNaN", (Kernel(9, is_nan_9),)),
    ("IsInf", (Kernel(10, is_inf_10),)),
    ("CumSum", (Kernel(11, cum_sum_11),)),
    ("CumProd", (Kernel(26, cum_prod_26),)),
    ("Dropout", (Kernel(7, dropout_7), Kernel(10, dropout_10), Kernel(12, dropout_12))),
)
"""Operators of this family with their kernels, oldest first."""
