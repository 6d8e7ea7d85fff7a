"""The normalizations that onnxruntime has beside those of ONNX."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import is_read, known_type, no_form, read_outputs, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import (
    cast,
    dtype_of,
    known_dims,
    outputs_of,
    positions,
    reduce,
    size,
    unsqueeze,
)
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

_D = ir.DataType


def layer_normalization(view: NodeView, em: Emitter) -> Replacement:
    """Write the LayerNormalization that stands below opset 17 as LayerNormalization-17.

    There X and Scale have one type: if they differ, the node is computed in the wider one.
    """
    refuse_value(view, "stash_type", 1)
    (x, scale), shift = view.operands("X", "Scale"), view.input("B")
    kind, wide = _types(x, scale)
    y, mean, inverse = em.multi(
        "LayerNormalization",
        cast(em, x, wide),
        cast(em, scale, wide),
        None if shift is None else cast(em, shift, wide),
        axis=view.integer("axis"),
        epsilon=view.real("epsilon"),
        dtypes=(wide, _D.FLOAT, _D.FLOAT),
    )
    return read_outputs(view, cast(em, y, kind), mean, inverse)


def simplified_layer_normalization(view: NodeView, em: Emitter) -> Replacement:
    """Write SimplifiedLayerNormalization as RMSNormalization-23.

    If the types of X and scale differ, it is computed in the wider one. `inv_std_var` is computed
    if somebody reads it.
    """
    refuse_value(view, "stash_type", 1)
    x, scale = view.operands("X", "scale")
    kind, wide = _types(x, scale)
    axis, epsilon = view.integer("axis"), view.real("epsilon")
    y = root_mean_square(em, cast(em, x, wide), scale, axis, epsilon)
    inverse = _inverse(em, x, axis, epsilon) if is_read(view, 1) else None
    return outputs_of(view.node, cast(em, y, kind), inverse)


def skip_layer_normalization(view: NodeView, em: Emitter) -> Replacement:
    """Write SkipLayerNormalization as Add and LayerNormalization-17 of the last axis."""
    total = _residual(view, em)
    y = _layer_norm(view, em, total, view.required("gamma"), view.input("beta"))
    return _with_sum(view, y, total)


def skip_simplified_layer_normalization(view: NodeView, em: Emitter) -> Replacement:
    """Write SkipSimplifiedLayerNormalization as Add and RMSNormalization-23 of the last axis."""
    total = _residual(view, em)
    y = root_mean_square(em, total, view.required("gamma"), -1, view.real("epsilon"))
    return _with_sum(view, y, total)


def embed_layer_normalization(view: NodeView, em: Emitter) -> Replacement:
    """Write EmbedLayerNormalization as a Gather for each table, Add and LayerNormalization-17.

    `mask_index` is the number of ones in each row of the mask.
    """
    places = view.input("position_ids")

    def rows(name: str, at: ir.Value) -> ir.Value:
        return em.op("Gather", view.required(name), at)

    total = _embedded(view, em, places or _places(view, em), rows)
    y = _layer_norm(view, em, total, *view.operands("gamma", "beta"))
    count = _ones(view, em) if is_read(view, 1) else None
    return outputs_of(view.node, y, count, total)


def _embedded(
    view: NodeView,
    em: Emitter,
    places: ir.Value,
    rows: Callable[[str, ir.Value], ir.Value],
    suffix: str = "",
) -> ir.Value:
    """Return the sum of the rows of all tables, which `rows` gathers by the name of the table."""
    segments, table = view.input("segment_ids"), view.input("segment_embedding")
    if (segments is None) != (table is None):
        raise no_form(
            f"`{view.node.op_type}` has one of `segment_ids` and `segment_embedding`, expected "
            "both or neither"
        )
    words = rows(f"word_embedding{suffix}", view.required("input_ids"))
    total = em.op("Add", words, rows(f"position_embedding{suffix}", places))
    return total if segments is None else em.op("Add", total, rows("segment_embedding", segments))


def _layer_norm(view: NodeView, em: Emitter, x: ir.Value, *factors: ir.Value | None) -> ir.Value:
    return em.op("LayerNormalization", x, *factors, axis=-1, epsilon=view.real("epsilon"))


def _places(view: NodeView, em: Emitter) -> ir.Value:
    """Return the places of the tokens of `input_ids`, (B, L), from 0 on: (1, L)."""
    ids = view.required("input_ids")
    dims = dims_of(ids)
    if dims is not None and len(dims) != 2:
        raise no_form(
            f"`{ids.name}` of `{view.node.op_type}` has {len(dims)} dimensions, expected 2"
        )
    return positions(em, None if dims is None else dims[1], ids, 1, place=1, rank=2)


def q_embed_layer_normalization(view: NodeView, em: Emitter) -> Replacement:
    """Write QEmbedLayerNormalization as a Gather and DequantizeLinear for each table, and so on."""

    def dequantized(name: str, at: ir.Value | None = None) -> ir.Value:
        short = name.removesuffix("_quant")
        quantized = view.required(name)
        if at is not None:
            quantized = em.op("Gather", quantized, at)
        scale, zero = view.required(f"{short}_scale"), view.required(f"{short}_zero_point")
        return em.op("DequantizeLinear", quantized, scale, zero, dtype=_D.FLOAT)

    total = _embedded(view, em, _places(view, em), dequantized, "_quant")
    factors = (dequantized(name) for name in ("gamma_quant", "beta_quant"))
    y = _layer_norm(view, em, total, *factors)
    return Replacement((y, _ones(view, em) if is_read(view, 1) else None))


def _ones(view: NodeView, em: Emitter) -> ir.Value:
    """Return the number of ones in each row of the mask, 0 without a mask: (B,), int32."""
    mask = view.input("mask")
    if mask is None:
        ids = view.required("input_ids")
        dims = dims_of(ids)
        batch = size(em, None if dims is None else dims[0], ids, 0)
        zero = ir.Tensor(np.zeros(1, np.int32))
        shape = unsqueeze(em, batch, [0])
        return em.op("ConstantOfShape", shape, value=zero)
    counted = cast(em, em.op("Equal", mask, 1), _D.INT32)
    return reduce(em, "ReduceSum", counted, [1], keepdims=False)


def _residual(view: NodeView, em: Emitter) -> ir.Value:
    """Return the sum that is normalized.

    Raises:
        Refusal: If the statistics are read: onnxruntime computes them in training only.
    """
    for index in (1, 2):
        if is_read(view, index):
            name = view.facts.outputs[index].name
            raise no_form(
                f"`{name}` of `{view.node.op_type}` is read, which onnxruntime gives in training "
                "only"
            )
    x, bias = view.required("input"), view.input("bias")
    op = em.op
    total = op("Add", x, view.required("skip"), hint="sum")
    return total if bias is None else op("Add", total, bias, hint="biased")


def _with_sum(view: NodeView, y: ir.Value, total: ir.Value) -> Replacement:
    return read_outputs(view, y, None, None, total)


def root_mean_square(
    em: Emitter, x: ir.Value, scale: ir.Value | None, axis: int, epsilon: float
) -> ir.Value:
    """Return x divided by its root mean square, times a scale that broadcasts to x (None: 1)."""
    op, dtype = em.op, dtype_of(x)
    attributes = {"axis": axis, "epsilon": epsilon}
    scale_dims = None if scale is None else dims_of(scale)
    dims = dims_of(x)
    normalized = -axis if axis < 0 else None if dims is None else len(dims) - axis
    fits = scale_dims is not None and normalized is not None and len(scale_dims) <= normalized
    if scale is not None and fits:
        return op("RMSNormalization", x, cast(em, scale, dtype), attributes=attributes)
    # In ONNX the scale has at most the axes that are normalized.
    normed = op("RMSNormalization", x, np.ones(1, dtype.numpy()), attributes=attributes)
    return normed if scale is None else op("Mul", normed, cast(em, scale, dtype))


def _inverse(em: Emitter, x: ir.Value, axis: int, epsilon: float) -> ir.Value:
    """Return 1 / the root mean square, float32, with the normalized axes of length 1."""
    if axis >= 0:
        axis -= len(known_dims(x, "how many axes are normalized is unknown: "))
    axes = list(range(axis, 0))
    op, wide = em.op, cast(em, x, _D.FLOAT)
    mean = reduce(em, "ReduceMean", op("Mul", wide, wide, hint="squared"), axes)
    shifted = op("Add", mean, epsilon)
    return op("Reciprocal", op("Sqrt", shifted))


def _types(x: ir.Value, scale: ir.Value) -> tuple[ir.DataType, ir.DataType]:
    """Return the type of the scale, which the result has, and the wider one that computes."""
    kind = known_type(scale)
    wide = _D.DOUBLE if _D.DOUBLE in (x.dtype, kind) else _D.FLOAT
    return kind, kind if x.dtype == kind else wide
