"""Products of 8-bit codes: MatMulInteger, and what makes numbers of its result."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.codes import quantized
from onnx_kvtool.contrib.rule import Builder, only
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["coded_product", "dynamic_quantize_mat_mul", "mat_mul_integer_to_float", "q_gemm"]

_D = ir.DataType
_RIGHT = ("B", "b_scale", "b_zero_point")


def dynamic_quantize_mat_mul(view: NodeView, em: Emitter) -> Replacement:
    """Write DynamicQuantizeMatMul as DynamicQuantizeLinear, MatMulInteger, Cast and Mul."""
    codes, scale, zero = em.multi(
        "DynamicQuantizeLinear", view.required("A"), dtypes=(_D.UINT8, _D.FLOAT, _D.UINT8)
    )
    return only(_product(view, em, (codes, scale, zero), _RIGHT))


def mat_mul_integer_to_float(view: NodeView, em: Emitter) -> Replacement:
    """Write MatMulIntegerToFloat as MatMulInteger, Cast and Mul.

    The scales are multiplied first, and everything is float32 until the result is rounded.
    """
    return only(coded_product(view, em, ("A", "a_scale", "a_zero_point"), _RIGHT))


def coded_product(
    view: NodeView, em: Emitter, left: tuple[str, str, str], right: tuple[str, str, str]
) -> ir.Value:
    """Return the product of two factors of codes with the `bias` of the node.

    Args:
        view: The node.
        em: Where to build.
        left: The inputs that hold the codes of the left factor, its one scale and zero point.
        right: Those of the right one, which may have a scale and a zero point for each column.

    Returns:
        Of the type of the right scale, computed in float32.
    """
    codes, factor, zero = view.required(left[0]), view.required(left[1]), view.input(left[2])
    scale = _scalar(em, cast(em, factor, _D.FLOAT))
    point = None if zero is None else _scalar(em, zero)
    result = _product(view, em, (codes, scale, point), right)
    return cast(em, result, view.required(right[1]).dtype or _D.UNDEFINED)


def _product(
    view: NodeView,
    em: Emitter,
    left: tuple[ir.Value, ir.Value, ir.Value | None],
    right: tuple[str, str, str],
) -> ir.Value:
    """Return the product as float32, with the bias of the node."""
    op, (codes, scale, zero) = Builder(em, _D.FLOAT), left
    point, bias = view.input(right[2]), view.input("bias")
    if zero is None and point is not None:
        zero = em.constant(np.zeros((), (codes.dtype or _D.UINT8).numpy()), "zero_point")
    inputs = (codes, view.required(right[0]), zero, point)
    product = em.op("MatMulInteger", *inputs, dtype=_D.INT32)
    factor = op("Mul", scale, cast(em, view.required(right[1]), _D.FLOAT), hint="scale")
    result = op("Mul", cast(em, product, _D.FLOAT), factor, hint="scaled")
    return result if bias is None else op("Add", result, cast(em, bias, _D.FLOAT), hint="biased")


def q_gemm(view: NodeView, em: Emitter) -> Replacement:
    """Write QGemm as MatMulInteger, Add of the int32 bias, Cast and Mul, quantized if it is."""
    op = Builder(em, _D.FLOAT)
    factors = []
    for letter in "AB":
        x = view.required(letter)
        if view.integer(f"trans{letter}"):
            x = em.op("Transpose", x, attributes={"perm": [1, 0]}, dtype=x.dtype or _D.UNDEFINED)
        factors.append(x)
    zeros = (_scalar(em, view.required("a_zero_point")), view.required("b_zero_point"))
    total = em.op("MatMulInteger", *factors, *zeros, dtype=_D.INT32)
    bias = view.input("C")
    if bias is not None:
        total = em.op("Add", total, bias, dtype=_D.INT32)
    left = _scalar(em, view.required("a_scale"))
    alpha = view.attribute("alpha")
    if alpha != 1.0:
        left = op("Mul", left, em.constant(np.array(alpha, np.float32), "alpha"))
    scale = op("Mul", left, view.required("b_scale"), hint="scale")
    result = op("Mul", cast(em, total, _D.FLOAT), scale, hint="scaled")
    factor, zero = view.input("y_scale"), view.input("y_zero_point")
    if factor is None:
        return only(result)
    return only(quantized(em, result, factor, zero, _D.UINT8 if zero is None else zero.dtype))


def _scalar(em: Emitter, value: ir.Value) -> ir.Value:
    """Return one element without dimensions: MatMulInteger takes a vector for one per row."""
    if dims_of(value) == ():
        return value
    shape = em.constant([], "scalar")
    return em.op("Reshape", value, shape, dtype=value.dtype or _D.UNDEFINED)
