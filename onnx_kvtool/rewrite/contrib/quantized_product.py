"""Products of 8-bit codes: MatMulInteger, and what makes numbers of its result."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.contrib.codes import quantized
from onnx_kvtool.rewrite.contrib.rule import Builder, only
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import Replacement
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["dynamic_quantize_mat_mul", "mat_mul_integer_to_float", "q_gemm"]

_D = ir.DataType


def dynamic_quantize_mat_mul(view: NodeView, em: Emitter) -> Replacement:
    """Write DynamicQuantizeMatMul as DynamicQuantizeLinear, MatMulInteger, Cast and Mul."""
    codes, scale, zero = em.multi(
        "DynamicQuantizeLinear", view.required("A"), dtypes=(_D.UINT8, _D.FLOAT, _D.UINT8)
    )
    return only(_product(view, em, codes, scale, zero))


def mat_mul_integer_to_float(view: NodeView, em: Emitter) -> Replacement:
    """Write MatMulIntegerToFloat as MatMulInteger, Cast and Mul.

    The scales are multiplied first, and everything is float32 until the result is rounded.
    """
    zero = view.input("a_zero_point")
    result = _product(
        view,
        em,
        view.required("A"),
        _scalar(em, cast(em, view.required("a_scale"), _D.FLOAT)),
        None if zero is None else _scalar(em, zero),
    )
    return only(cast(em, result, view.required("b_scale").dtype or _D.UNDEFINED))


def _product(
    view: NodeView, em: Emitter, codes: ir.Value, scale: ir.Value, zero: ir.Value | None
) -> ir.Value:
    """Return codes times B as float32, with the bias of the node."""
    op = Builder(em, _D.FLOAT)
    right, bias = view.input("b_zero_point"), view.input("bias")
    left = zero
    if left is None and right is not None:
        left = em.constant(np.zeros((), (codes.dtype or _D.UINT8).numpy()), "zero_point")
    product = em.op("MatMulInteger", codes, view.required("B"), left, right, dtype=_D.INT32)
    factor = op("Mul", scale, cast(em, view.required("b_scale"), _D.FLOAT), hint="scale")
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
