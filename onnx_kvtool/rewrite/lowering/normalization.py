"""BatchNormalization, LayerNormalization, RMSNormalization and Dropout."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    computed_in,
    dtype_of,
    known_dims,
    known_type,
    outputs_of,
)
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.dtypes import takes
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.resize import constant_numbers
from onnx_kvtool.symbolic.dimensions import contradict, dims_of, product

# BatchNormalization-14 in training mode, for opsets below 14.


def lower_batch_normalization_14(view: Rewritten, em: Emitter) -> Replacement:
    """Normalise with the statistics of the batch, and update the running ones.

    mean = ReduceMean(X), var = ReduceMean((X - mean) ** 2), both over all axes but 1
    Y = (X - mean) / Sqrt(var + epsilon) * scale + B
    running = input * momentum + current * (1 - momentum)

    Refuses an unknown rank, and element types that are not one float type throughout.
    """
    data, scale, bias = view.operands("X", "scale", "B")
    old_mean, old_var = view.operands("input_mean", "input_var")
    dtype, rank = dtype_of(data), len(dims_of(data) or ())
    if rank < 2:
        raise Refusal("unknown-rank", f"the rank of `{data.name}` is unknown")
    if dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE) or any(
        v.dtype != dtype for v in (scale, bias, old_mean, old_var)
    ):
        raise Refusal(
            "element-type",
            f"BatchNormalization-14 is written for opset {em.opset} where all its inputs are "
            "float32 or all are float64",
        )
    if view.integer("training_mode") == 0:
        inputs = (data, scale, bias, old_mean, old_var)
        epsilon, momentum = view.real("epsilon"), view.real("momentum")
        out = em.op("BatchNormalization", *inputs, epsilon=epsilon, momentum=momentum)
        return outputs_of(view.node, out, None, None)

    axes, column = [a for a in range(rank) if a != 1], [-1] + [1] * (rank - 2)
    x = Term(em, data)
    mean = x.op("ReduceMean", axes=axes)  # (1, C, 1, ...)
    centred = x - mean
    var = (centred * centred).op("ReduceMean", axes=axes)
    root = (var + view.real("epsilon")).op("Sqrt")
    result = centred / root * em.op("Reshape", scale, column) + em.op("Reshape", bias, column)
    momentum = float(np.float32(view.real("momentum")))
    running = (
        Term(em, old) * momentum + current.op("Reshape", [-1]) * (1 - momentum)
        for old, current in ((old_mean, mean), (old_var, var))
    )
    return outputs_of(view.node, result.value, *(one.value for one in running))


# LayerNormalization-17 for opsets below 17, and MeanVarianceNormalization in arithmetic.


def lower_layer_normalization_17(view: Rewritten, em: Emitter) -> Replacement:
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

    wide = Term(em, cast(em, x, stash))
    mean = wide.reduce("ReduceMean", axes)
    centred = wide - mean
    squared = centred.op("Pow", np.array(2, stash.numpy())) if fusible else centred * centred
    deviation = (squared.reduce("ReduceMean", axes) + view.real("epsilon")).op("Sqrt")
    y = (centred / deviation).cast(dtype) * scale
    if bias is not None:
        y += bias
    inverse = deviation.op("Reciprocal").value if len(view.node.outputs) > 2 else None
    return outputs_of(view.node, y.value, mean.value, inverse)


def lower_mean_variance_normalization_13(view: Rewritten, em: Emitter) -> ir.Value:
    """Write the axes out; where there is no such operator, (X - mean) / (deviation + 1e-9).

    16-bit floats are computed in float32. The body of the schema is not used: its constants are
    float32 whatever X is, and its E[X * X] - E[X] * E[X] cancels where the mean is large. onnx's
    inference and onnxruntime need the axes, although they have a default.

    Refuses types that are no float type.
    """
    x, given = view.required("X"), view.attribute("axes")
    if x.dtype not in FLOAT_TYPES or not isinstance(given, tuple):
        name = "an unknown type" if x.dtype is None else x.dtype.name
        raise Refusal("element-type", f"`MeanVarianceNormalization` of {name} cannot be written")
    dtype, axes = x.dtype, [int(axis) for axis in given]
    if view.context.keep_fused and takes(view.node.op_type, 0, dtype, em.opset):
        return em.op(view.node.op_type, x, axes=axes)
    stash = computed_in(dtype)
    wide = Term(em, cast(em, x, stash))
    centred = wide - wide.reduce("ReduceMean", axes)
    deviation = (centred * centred).reduce("ReduceMean", axes).op("Sqrt") + 1e-9
    return (centred / deviation).cast(dtype).value


def _axes(view: NodeView, x: ir.Value) -> list[int]:
    """Return the normalized axes, counted from the back."""
    axis, dims = view.integer("axis"), dims_of(x)
    if axis >= 0 or dims is not None:
        rank = len(known_dims(x, f"how many axes are normalized is unknown: `axis` is {axis} and "))
        axis = counted_axis(axis, rank) - rank
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


# RMSNormalization-23, for opsets below 23.


def lower_rms_normalization_23(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Write the normalisation in the form that PyTorch exports and runtimes recognise.

        x    = Cast(X, stash_type)                              # where it is another type
        y    = x / Sqrt(ReduceMean(Pow(x, 2)) + epsilon)
        Y    = Cast(y) * scale                                  # of the type of the scale

    onnxruntime (1.15 and later) fuses exactly this into the kernel of the operator itself, with
    equal bits; the schema's body, which multiplies x by itself, is left as nine nodes.

    Returns:
        None, for the schema's body, where the rank is unknown or a type is no ordinary float.
    """
    x, scale = view.operands("X", "scale")
    stash = ir.DataType(view.integer("stash_type"))
    dtype = x.dtype
    if (
        dtype not in FLOAT_TYPES
        or stash not in FLOAT_TYPES
        or x.shape is None
        or scale.dtype not in FLOAT_TYPES
    ):
        return None
    rank, axis = len(x.shape), view.integer("axis")
    if not -rank <= axis < rank:
        return None
    wide = Term(em, cast(em, x, stash))
    squared = wide.op("Pow", np.array(2, stash.numpy()))
    mean = squared.reduce("ReduceMean", range(axis % rank - rank, 0))
    root = (mean + view.real("epsilon")).op("Sqrt")
    return ((wide / root).cast(dtype).cast(scale.dtype) * scale).value


# Dropout-12, for opset 11.


_FLOAT = ir.DataType.FLOAT


def lower_dropout_12(view: Rewritten, em: Emitter) -> Replacement:
    """Write a Dropout that drops nothing as an Identity with a mask of true.

    In training the elements are kept whose random number is not below the ratio:

        y = x / (1 - ratio) where RandomUniformLike(x) >= ratio, else 0

    The ratio counts as 0 where `training_mode` turns out to be false. Numbers are drawn anew in
    each run, from the seed if there is one; nobody says which numbers a seed stands for.
    """
    data, training = view.required("data"), view.input("training_mode")
    known = view.known(training)
    ratio = constant_numbers(view.input("ratio"))
    drops = view.input("ratio") is None or ratio is None or bool(ratio.any())
    if drops and training is not None and (known is None or known.any()):
        result, mask = _dropped(em, view, data, training if known is None else None)
        return outputs_of(view.node, result, mask)
    kept = em.op("Identity", data)
    if len(view.node.outputs) < 2:
        return Replacement((kept,))
    true = ir.tensor(np.ones(1, np.bool_))
    mask = em.op("ConstantOfShape", em.op("Shape", data), value=true)
    return outputs_of(view.node, kept, mask)


def _dropped(
    em: Emitter, view: NodeView, data: ir.Value, training: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Return the scaled data, and which elements stay; all if `training` is false at run time."""
    dtype = known_type(data)
    wide = computed_in(dtype)
    given = view.input("ratio")
    ratio = Term(em, em.constant(np.array(0.5, wide.numpy()), "ratio"))
    if given is not None:
        ratio = Term(em, given).cast(wide)
    if training is not None:
        ratio *= cast(em, training, wide)
    seed, attributes = view.attribute("seed"), dict[str, AttributeValue](dtype=_FLOAT.value)
    if isinstance(seed, int):
        attributes["seed"] = float(seed)
    x = Term(em, data)
    mask = ~(x.op("RandomUniformLike", attributes=attributes).cast(wide) < ratio)
    scaled = x.cast(wide) / (1 - ratio)
    return mask.where(scaled, 0).cast(dtype).value, mask.value
