"""LayerNormalization-17 for opsets below 17, and MeanVarianceNormalization in arithmetic."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.dtypes import takes
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import contradict, dims_of, product

__all__ = ["lower_layer_normalization_17", "lower_mean_variance_normalization_13"]


def lower_layer_normalization_17(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Write the equations of the specification, each operand in its own shape.

        x         = Cast(X, stash_type)                         # where it is another type
        Mean      = ReduceMean(x),  D = x - Mean
        StdDev    = Sqrt(ReduceMean(D * D) + epsilon),  InvStdDev = Reciprocal(StdDev)
        Y         = Cast(D / StdDev) * Scale + B

    The body of the schema is not used: it flattens Scale and B, which is something else where they
    broadcast along or against the normalized axes, and its E[x * x] - E[x] * E[x] cancels where the
    mean is large.

    Where Scale and B have the very shape of the normalized axes and nothing is cast, D * D is
    written Pow(D, 2), which is how PyTorch exports it and what onnxruntime fuses; other shapes are
    left in a form that no runtime takes for a kernel of its own that reads Scale as a vector.

    Refuses an unknown rank where `axis` counts from the front; types that are not one float type;
    Scale and B that do not broadcast to X.
    """
    view = NodeView(node, context.opset_of(node))
    x, scale, bias = view.required("X"), view.required("Scale"), view.input("B")
    stash, dtype = ir.DataType(view.integer("stash_type")), x.dtype
    if stash not in FLOAT_TYPES or dtype not in FLOAT_TYPES:
        name = "an unknown type" if dtype is None else dtype.name
        text = f"`LayerNormalization` of {name} computed in {stash.name} cannot be written"
        raise Refusal("element-type", text)
    assert dtype is not None
    axes = _axes(view, x)
    factors = [value for value in (scale, bias) if value is not None]
    for value in factors:
        _require_broadcast(value, x)
    fusible = stash == dtype and all(_is_flat(value, x, len(axes)) for value in factors)

    def op(op_type: str, *inputs: ir.Value, hint: str | None = None) -> ir.Value:
        return em.op(op_type, *inputs, dtype=stash, hint=hint)

    def constant(number: object, hint: str) -> ir.Value:
        return em.constant(np.array(number, stash.numpy()), hint)

    wide = cast(em, x, stash)
    mean = reduce(em, "ReduceMean", wide, axes, hint="mean")
    centred = op("Sub", wide, mean, hint="centred")
    squared = (
        op("Pow", centred, constant(2, "two"), hint="squared")
        if fusible
        else op("Mul", centred, centred, hint="squared")
    )
    variance = reduce(em, "ReduceMean", squared, axes, hint="variance")
    shifted = op("Add", variance, constant(view.attribute("epsilon"), "epsilon"), hint="shifted")
    deviation = op("Sqrt", shifted, hint="deviation")
    normalized = cast(em, op("Div", centred, deviation, hint="normalized"), dtype)
    y = em.op("Mul", normalized, scale, dtype=dtype, hint="scaled")
    if bias is not None:
        y = em.op("Add", y, bias, dtype=dtype, hint="biased")
    outputs: list[ir.Value | None] = [y, None, None][: len(node.outputs)]
    if len(outputs) > 1 and node.outputs[1].name:
        outputs[1] = mean
    if len(outputs) > 2 and node.outputs[2].name:
        outputs[2] = op("Reciprocal", deviation, hint="inverse")
    return Replacement(tuple(outputs))


def lower_mean_variance_normalization_13(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Write the axes out; where there is no such operator, (X - mean) / (deviation + 1e-9).

    16-bit floats are computed in float32. The body of the schema is not used: its constants are
    float32 whatever X is, and its E[X * X] - E[X] * E[X] cancels where the mean is large. onnx's
    inference and onnxruntime need the axes, although they have a default.

    Refuses types that are no float type.
    """
    view = NodeView(node, context.opset_of(node))
    x, given = view.required("X"), view.attribute("axes")
    if x.dtype not in FLOAT_TYPES or not isinstance(given, tuple):
        name = "an unknown type" if x.dtype is None else x.dtype.name
        raise Refusal("element-type", f"`MeanVarianceNormalization` of {name} cannot be written")
    dtype, axes = x.dtype, [int(axis) for axis in given]
    if context.keep_fused and takes(node.op_type, 0, dtype, em.opset):
        return Replacement((em.op(node.op_type, x, attributes={"axes": axes}, dtype=dtype),))
    stash = ir.DataType.DOUBLE if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    wide = cast(em, x, stash)
    centred = em.op("Sub", wide, reduce(em, "ReduceMean", wide, axes, hint="mean"), dtype=stash)
    squared = em.op("Mul", centred, centred, dtype=stash, hint="squared")
    variance = reduce(em, "ReduceMean", squared, axes, hint="variance")
    tiny = em.constant(np.array(1e-9, stash.numpy()), "tiny")
    deviation = em.op("Add", em.op("Sqrt", variance, dtype=stash), tiny, dtype=stash)
    result = em.op("Div", centred, deviation, dtype=stash, hint="normalized")
    return Replacement((cast(em, result, dtype),))


def _axes(view: NodeView, x: ir.Value) -> list[int]:
    """Return the normalized axes, counted from the back."""
    axis, dims = view.integer("axis"), dims_of(x)
    if dims is not None:
        axis = counted_axis(axis, len(dims)) - len(dims)
    elif axis >= 0:
        raise Refusal(
            "unknown-rank",
            f"`axis` is {axis} and the rank of `{x.name}` is unknown, so how many axes are "
            "normalized is unknown",
            help="declare the shape of the input",
        )
    return list(range(axis, 0))


def _require_broadcast(value: ir.Value, x: ir.Value) -> None:
    """Refuse a scale that makes the result larger than X, which the operator does not."""
    dims, target = dims_of(value), dims_of(x)
    if dims is None or target is None:
        return
    aligned = target[max(0, len(target) - len(dims)) :]
    if len(dims) > len(target) or any(
        dim != 1 and contradict(dim, size) for dim, size in zip(dims, aligned, strict=True)
    ):
        raise Refusal(
            "scale-shape",
            f"`{value.name}` has shape {_text(dims)}, which does not broadcast to that of "
            f"`{x.name}`, {_text(target)}",
            help="check the node in the exporter",
        )


def _is_flat(value: ir.Value, x: ir.Value, count: int) -> bool:
    """Return whether a scale has the very shape of the last `count` axes of X."""
    dims, target = dims_of(value), dims_of(x)
    if dims is None or target is None or product(dims) is None:
        return False
    return dims == target[len(target) - count :]


def _text(dims: tuple[object, ...]) -> str:
    return f"({', '.join('?' if dim is None else str(dim) for dim in dims)})"
