"""Products of one normalized input with weights of few bits, which onnxruntime has for GPUs."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.contrib.block_quantized import block_product
from onnx_kvtool.contrib.normalization import root_mean_square
from onnx_kvtool.contrib.packed import known_type
from onnx_kvtool.contrib.rule import Builder, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView

__all__ = ["mat_mul_n_bits_mlp", "mat_mul_n_bits_qkv"]


def mat_mul_n_bits_mlp(view: NodeView, em: Emitter) -> Replacement:
    """Write MatMulNBitsMlp as RMSNormalization-23, two of what MatMulNBits is, Sigmoid and Mul.

    Refuses other activations than `silu`, which its documentation does not name.
    """
    refuse_value(view, "activation", "silu")
    x, total = _normalized(view, em)
    op = Builder(em, known_type(view.required("A")))
    gate, up = (block_product(view, em, x, name, view.integer("N")) for name in ("gate", "up"))
    silu = op("Mul", gate, op("Sigmoid", gate), hint="silu")
    return _with_total(view, op("Mul", silu, up), total=total)


def mat_mul_n_bits_qkv(view: NodeView, em: Emitter) -> Replacement:
    """Write MatMulNBitsQkv as RMSNormalization-23, and three of what MatMulNBits is."""
    x, total = _normalized(view, em)
    widths = {"q": "Nq", "k": "Nkv", "v": "Nkv"}
    found = (block_product(view, em, x, name, view.integer(n)) for name, n in widths.items())
    return _with_total(view, *found, total=total)


def _normalized(view: NodeView, em: Emitter) -> tuple[ir.Value, ir.Value | None]:
    """Return what is multiplied, and the sum that is normalized where there is one."""
    x, skip, scale = view.required("A"), view.input("skip"), view.input("norm_scale")
    total = None if skip is None else Builder(em, known_type(x))("Add", x, skip, hint="sum")
    if scale is None:
        if total is not None:
            raise Refusal("contrib-form", f"`{view.node.op_type}` has `skip` without `norm_scale`")
        return x, None
    return root_mean_square(em, total or x, scale, -1, view.real("epsilon")), total


def _with_total(view: NodeView, *found: ir.Value, total: ir.Value | None) -> Replacement:
    """Return the outputs; the last is the sum."""
    count = len(view.node.outputs)
    if count > len(found) and view.node.outputs[-1].name and total is None:
        raise Refusal("contrib-form", f"`{view.node.op_type}` gives a sum without `skip`")
    return Replacement((*found, total)[:count])
