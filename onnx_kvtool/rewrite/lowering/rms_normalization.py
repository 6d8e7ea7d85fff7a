"""RMSNormalization-23, for opsets below 23."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_rms_normalization_23"]


def lower_rms_normalization_23(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement | None:
    """Write the normalisation in the form that PyTorch exports and runtimes recognise.

        x    = Cast(X, stash_type)                              # where it is another type
        y    = x / Sqrt(ReduceMean(Pow(x, 2)) + epsilon)
        Y    = Cast(y) * scale                                  # of the type of the scale

    onnxruntime (1.15 and later) fuses exactly this into the kernel of the operator itself, with
    equal bits; the schema's body, which multiplies x by itself, is left as nine nodes.

    Returns:
        None, for the schema's body, where the rank is unknown or a type is no ordinary float.
    """
    view = NodeView(node, context.opset_of(node))
    x, scale = view.required("X"), view.required("scale")
    stash = ir.DataType(view.integer("stash_type"))
    dtype = x.dtype
    if (
        dtype not in FLOAT_TYPES
        or stash not in FLOAT_TYPES
        or x.shape is None
        or scale.dtype not in FLOAT_TYPES
    ):
        return None
    rank = len(x.shape)
    axis = view.integer("axis")
    axes = list(range(axis % rank, rank)) if -rank <= axis < rank else None
    if axes is None:
        return None
    axes = [a - rank for a in axes]
    epsilon = view.attribute("epsilon")
    number = stash.numpy()

    def op(op_type: str, *inputs: ir.Value, hint: str | None = None) -> ir.Value:
        return em.op(op_type, *inputs, dtype=stash, hint=hint)

    wide = cast(em, x, stash)
    squared = op("Pow", wide, em.constant(np.array(2, number), "two"), hint="squared")
    mean = reduce(em, "ReduceMean", squared, axes, hint="mean")
    shifted = op("Add", mean, em.constant(np.array(epsilon, number), "epsilon"), hint="shifted")
    normalized = cast(em, op("Div", wide, op("Sqrt", shifted), hint="normalized"), dtype)
    given = cast(em, normalized, scale.dtype)
    return Replacement((em.op("Mul", given, scale, dtype=scale.dtype, hint="scaled"),))
