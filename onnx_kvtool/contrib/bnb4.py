"""MatMulBnb4 of `com.microsoft`: weights of 4 bits that stand for sixteen real numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder, only, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.contrib import numbers_of_codes
from onnx_kvtool.ops.view import NodeView

__all__ = ["mat_mul_bnb4"]


def mat_mul_bnb4(view: NodeView, em: Emitter) -> Replacement:
    """Write MatMulBnb4 as Gather of the two numbers of each byte, Mul, and MatMul.

    The bytes of the weight are not touched.

    Refuses weights that are no whole number of blocks, and those that are not transposed, of which
    the kernel of onnxruntime 1.32 for CPUs reads what lies outside.
    """
    refuse_value(view, "transB", 1)
    refuse_value(view, "quant_type", 0, 1)
    a, scales = view.required("A"), view.required("absmax")
    width, columns, block = (view.integer(name) for name in ("K", "N", "block_size"))
    if block < 2 or width < 1 or columns < 1 or width * columns % block:
        raise Refusal(
            "contrib-form",
            f"`MatMulBnb4` has weights ({columns}, {width}) in blocks of {block}, expected a whole "
            "number of them",
        )
    op = Builder(em, scales.dtype or ir.DataType.UNDEFINED)
    # The first element of a byte is in its high bits.
    pairs = numbers_of_codes(view.integer("quant_type"))
    table = em.constant(
        np.stack([np.repeat(pairs, 16), np.tile(pairs, 16)], axis=-1).astype(op.dtype.numpy()),
        "numbers_of_byte",
    )
    codes = cast(em, view.required("B"), ir.DataType.INT32)
    numbers = op("Reshape", op("Gather", table, codes), em.constant([-1, block], "blocks"))
    factors = op("Reshape", scales, em.constant([-1, 1], "column"))
    weights = op("Mul", numbers, factors, hint="scaled")
    weights = op("Reshape", weights, em.constant([columns, width], "shape"), hint="weight")
    weights = op("Transpose", weights, attributes={"perm": [1, 0]})
    return only(op("MatMul", a, weights))
