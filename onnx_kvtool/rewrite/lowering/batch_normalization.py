"""BatchNormalization-14 in training mode, for opsets below 14."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_batch_normalization_14"]


def lower_batch_normalization_14(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Normalise with the statistics of the batch, and update the running ones.

    mean = ReduceMean(X), var = ReduceMean((X - mean) ** 2), both over all axes but 1
    Y = (X - mean) / Sqrt(var + epsilon) * scale + B
    running = input * momentum + current * (1 - momentum)

    Refuses an unknown rank, and element types that are not one float type throughout.
    """
    view = NodeView(node, context.opset_of(node))
    data, scale, bias = view.required("X"), view.required("scale"), view.required("B")
    old_mean, old_var = view.required("input_mean"), view.required("input_var")
    dtype = data.dtype or ir.DataType.UNDEFINED
    if dims_of(data) is None or len(dims_of(data) or ()) < 2:
        raise Refusal("unknown-rank", f"the rank of `{data.name}` is unknown")
    if dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE) or any(
        v.dtype != dtype for v in (scale, bias, old_mean, old_var)
    ):
        raise Refusal(
            "element-type",
            f"BatchNormalization-14 is written for opset {em.opset} where all its inputs are "
            "float32 or all are float64",
        )
    rank = len(dims_of(data) or ())
    if view.integer("training_mode") == 0:
        inputs = (data, scale, bias, old_mean, old_var)
        given = {"epsilon": _number(view, "epsilon"), "momentum": _number(view, "momentum")}
        out = em.op("BatchNormalization", *inputs, attributes=given, dtype=dtype)
        return Replacement((out, None, None)[: len(node.outputs)])

    def op(kind: str, *inputs: ir.Value) -> ir.Value:
        return em.op(kind, *inputs, dtype=dtype)

    def constant(value: float) -> ir.Value:
        return em.constant(np.array(value, dtype.numpy()), "constant")

    axes: dict[str, AttributeValue] = {"axes": [a for a in range(rank) if a != 1], "keepdims": 1}
    column = em.constant([-1] + [1] * (rank - 2), "channels")
    mean = em.op("ReduceMean", data, attributes=axes, dtype=dtype)  # (1, C, 1, ...)
    centred = op("Sub", data, mean)
    var = em.op("ReduceMean", op("Mul", centred, centred), attributes=axes, dtype=dtype)
    root = op("Sqrt", op("Add", var, constant(_number(view, "epsilon"))))
    scaled = op("Mul", op("Div", centred, root), op("Reshape", scale, column))
    result = op("Add", scaled, op("Reshape", bias, column))
    momentum = np.float32(_number(view, "momentum"))
    outputs: list[ir.Value | None] = [result]
    flat = em.constant([-1], "flat")
    for old, current in ((old_mean, mean), (old_var, var)):
        kept = op("Mul", old, constant(float(momentum)))
        taken = op("Mul", op("Reshape", current, flat), constant(1 - float(momentum)))
        outputs.append(op("Add", kept, taken))
    return Replacement(tuple(outputs[: len(node.outputs)]))


def _number(view: NodeView, name: str) -> float:
    value = view.attribute(name)
    assert isinstance(value, float)
    return value
