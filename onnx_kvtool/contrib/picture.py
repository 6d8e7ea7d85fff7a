"""What onnxruntime's optimiser writes into the networks of diffusion models, and NhwcMaxPool."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder, is_read, known_rank, only, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView

__all__ = ["bias_add", "group_norm", "nhwc_max_pool", "skip_group_norm"]

_FLOAT = ir.DataType.FLOAT


def bias_add(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasAdd as Add of the bias, and Add of the residual."""
    x = view.required("X")
    op = Builder(em, x.dtype or ir.DataType.UNDEFINED)
    return only(op("Add", op("Add", x, view.required("bias")), view.required("skip")))


def group_norm(view: NodeView, em: Emitter) -> Replacement:
    """Write GroupNorm as GroupNormalization-21 in float32, and x * Sigmoid(x) if it is activated.

    Channels that come last are brought to the front, and back.
    """
    x = view.required("X")
    return only(_normalized(view, em, x, x.dtype or ir.DataType.UNDEFINED))


def skip_group_norm(view: NodeView, em: Emitter) -> Replacement:
    """Write SkipGroupNorm as Add, and what GroupNorm is written as.

    Refuses channels in front, of which onnxruntime does not say where those of `skip` are.
    """
    refuse_value(view, "channels_last", 1)
    x, skip, bias = view.required("X"), view.required("skip"), view.input("bias")
    op = Builder(em, x.dtype or ir.DataType.UNDEFINED)
    rank = known_rank(view, skip)
    if rank not in (2, 4):
        raise Refusal(
            "contrib-form", f"`skip` of `SkipGroupNorm` has {rank} dimensions, expected 2 or 4"
        )
    total = op("Add", x, unsqueeze(em, skip, [1, 2]) if rank == 2 else skip, hint="sum")
    total = total if bias is None else op("Add", total, bias, hint="biased")
    y = _normalized(view, em, total, op.dtype)
    return Replacement((y, total if is_read(view, 1) else None)[: len(view.node.outputs)])


def _normalized(view: NodeView, em: Emitter, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    refuse_value(view, "activation", 0, 1)
    op, is_last, rank = Builder(em, _FLOAT), view.integer("channels_last") != 0, 4
    y = cast(em, x, _FLOAT)
    if is_last:
        rank = known_rank(view, view.required("X"))
        y = op("Transpose", y, attributes={"perm": [0, rank - 1, *range(1, rank - 1)]})
    factors = (cast(em, view.required(name), _FLOAT) for name in ("gamma", "beta"))
    epsilon = view.attribute("epsilon")
    assert isinstance(epsilon, float)
    attributes = {"num_groups": view.integer("groups"), "epsilon": epsilon}
    y = op("GroupNormalization", y, *factors, attributes=attributes)
    if view.integer("activation") == 1:
        y = op("Mul", y, op("Sigmoid", y), hint="activated")
    if is_last:
        y = op("Transpose", y, attributes={"perm": [0, *range(2, rank), 1]})
    return cast(em, y, dtype)


def nhwc_max_pool(view: NodeView, em: Emitter) -> Replacement:
    """Write NhwcMaxPool, of which channels come last, as MaxPool with Transposes."""
    x = view.required("x")
    op, last = Builder(em, x.dtype or ir.DataType.UNDEFINED), known_rank(view, x) - 1
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    given = {name: view.attribute(name) for name in names}
    attributes = {name: value for name, value in given.items() if value is not None}
    front = op("Transpose", x, attributes={"perm": [0, last, *range(1, last)]})
    result = op("MaxPool", front, attributes=attributes)
    return only(op("Transpose", result, attributes={"perm": [0, *range(2, last + 1), 1]}))
