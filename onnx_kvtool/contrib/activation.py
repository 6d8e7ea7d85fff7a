"""The Gelus, Dropout and Softmax of `com.microsoft`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder, is_read, only
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = [
    "bias_dropout",
    "bias_gelu",
    "bias_softmax",
    "bias_split_gelu",
    "fast_gelu",
    "gelu",
    "gemm_fast_gelu",
    "quick_gelu",
]


def gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write Gelu as the Gelu-20 of ONNX."""
    x = view.required("X")
    return only(_op(em, x)("Gelu", x))


def bias_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasGelu as Add and Gelu-20."""
    x = view.required("A")
    op = _op(em, x)
    return only(op("Gelu", op("Add", x, view.required("B"))))


def fast_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write FastGelu as Add, where it has a bias, and Gelu-20 of `tanh`."""
    x, bias = view.required("X"), view.input("bias")
    op = _op(em, x)
    total = x if bias is None else op("Add", x, bias)
    return only(op("Gelu", total, attributes={"approximate": "tanh"}))


def quick_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write QuickGelu as x * Sigmoid(alpha * x)."""
    x, alpha = view.required("X"), view.attribute("alpha")
    op = _op(em, x)
    factor = em.constant(np.array(alpha, op.dtype.numpy()), "alpha")
    scaled = x if alpha == 1.0 else op("Mul", x, factor, hint="scaled")
    return only(op("Mul", x, op("Sigmoid", scaled)))


def gemm_fast_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write GemmFastGelu as MatMul, Add, where it has a bias, and Gelu-20 of `tanh`."""
    x, bias = view.required("X"), view.input("bias")
    op = _op(em, x)
    total = op("MatMul", x, view.required("W"))
    total = total if bias is None else op("Add", total, bias)
    return only(op("Gelu", total, attributes={"approximate": "tanh"}))


def bias_softmax(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasSoftmax as Add and Softmax-13; all axes from `axis` on are one.

    The bias broadcasts as in ONNX, which is what the optimiser has made the operator of, whatever
    `is_inner_broadcast` says.
    """
    x = view.required("data")
    op = _op(em, x)
    total, dims = op("Add", x, view.required("bias")), dims_of(x)
    if dims is None:
        raise Refusal(
            "unknown-rank", f"the rank of `{x.name}` is unknown", help="declare its shape"
        )
    axis = counted_axis(view.integer("axis"), len(dims), "axis")
    if axis == len(dims) - 1:
        return only(op("Softmax", total, attributes={"axis": -1}))
    flat = op("Flatten", total, attributes={"axis": axis})
    flat = op("Softmax", flat, attributes={"axis": -1})
    return only(op("Reshape", flat, em.op("Shape", x)))


def bias_split_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasSplitGelu as Add, and the first half of the last axis times Gelu of the second."""
    x = view.required("X")
    op = _op(em, x)
    total = op("Add", x, view.required("bias"))
    halves = em.multi(
        "Split", total, attributes={"axis": -1, "num_outputs": 2}, dtypes=(op.dtype, op.dtype)
    )
    return only(op("Mul", halves[0], op("Gelu", halves[1])))


def bias_dropout(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasDropout as Add, Dropout-13 where it may do something, and Add of the residual."""
    x, residual = view.required("data"), view.input("residual")
    op, training = _op(em, x), view.input("training_mode")
    result, mask = op("Add", x, view.required("bias")), None
    if training is not None or is_read(view, 1):
        seed = view.attribute("seed")
        result, mask = em.multi(
            "Dropout",
            result,
            view.input("ratio"),
            training,
            attributes={} if seed is None else {"seed": seed},
            dtypes=(op.dtype, ir.DataType.BOOL),
        )
    if residual is not None:
        result = op("Add", result, residual)
    return only(result, *([mask] if len(view.node.outputs) > 1 else []))


def _op(em: Emitter, x: ir.Value) -> Builder:
    return Builder(em, x.dtype or ir.DataType.UNDEFINED)
