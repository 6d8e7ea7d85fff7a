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
from onnx_kvtool.runtime.kernels.kernel import Lines

# Versions before 7 of the binary operators broadcast by attributes.
LINES: Lines = {
    "Add": {7: over_a_b(np.add)},
    "Sub": {7: over_a_b(np.subtract)},
    "Mul": {7: over_a_b(np.multiply)},
    "Div": {7: div_7},
    "Mod": {10: mod_10, 28: mod_28},
    "Pow": {7: pow_7},
    "Neg": {6: over_x(np.negative)},
    "Abs": {6: over_x(np.abs)},
    "Sign": {9: over_input(unary.sign)},
    "Floor": {6: over_x(np.floor)},
    "Ceil": {6: over_x(np.ceil)},
    "Round": {11: over_x(np.rint)},
    "Reciprocal": {6: over_x(unary.reciprocal)},
    "Sqrt": {6: over_x(np.sqrt)},
    "Exp": {6: over_input(np.exp)},
    "Log": {6: over_input(np.log)},
    "Sin": {7: over_input(np.sin)},
    "Cos": {7: over_input(np.cos)},
    "Tan": {7: over_input(np.tan)},
    "Asin": {7: over_input(np.arcsin)},
    "Acos": {7: over_input(np.arccos)},
    "Atan": {7: over_input(np.arctan)},
    "Sinh": {9: over_input(np.sinh)},
    "Cosh": {9: over_input(np.cosh)},
    "Tanh": {6: over_input(np.tanh)},
    "Asinh": {9: over_input(np.arcsinh)},
    "Acosh": {9: over_input(np.arccosh)},
    "Atanh": {9: over_input(np.arctanh)},
    "Erf": {9: erf_9},
    "And": {7: over_a_b(np.logical_and)},
    "Or": {7: over_a_b(np.logical_or)},
    "Xor": {7: over_a_b(np.logical_xor)},
    "Not": {1: over_x(np.logical_not)},
    "BitShift": {11: bit_shift_11},
    "BitwiseAnd": {18: over_a_b(np.bitwise_and)},
    "BitwiseOr": {18: over_a_b(np.bitwise_or)},
    "BitwiseXor": {18: over_a_b(np.bitwise_xor)},
    "BitwiseNot": {18: over_x(np.invert)},
    "Equal": {7: over_a_b(np.equal)},
    "Less": {7: over_a_b(np.less)},
    "LessOrEqual": {12: over_a_b(np.less_equal)},
    "Greater": {7: over_a_b(np.greater)},
    "GreaterOrEqual": {12: over_a_b(np.greater_equal)},
    "Min": {8: min_8},
    "Max": {8: max_8},
    "Sum": {8: sum_8},
    "Mean": {8: mean_8},
    "Clip": {6: clip_6, 11: clip_11},
    "IsNaN": {9: is_nan_9},
    "IsInf": {10: is_inf_10},
    "CumSum": {11: cum_sum_11},
    "CumProd": {26: cum_prod_26},
    "Dropout": {7: dropout_7, 10: dropout_10, 12: dropout_12},
}
"""Operators of this family with their kernels, oldest first."""
