"""The normalizations that onnxruntime has beside those of ONNX."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, is_read, known_type, no_form, read_outputs, refuse_value
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
from onnx_kvtool.symbolic.dimensions import dims_of

_D = ir.DataType


def layer_normalization(site: Site) -> Replacement:
    """Write the LayerNormalization that stands below opset 17 as LayerNormalization-17.

    There X and Scale have one type: if they differ, the node is computed in the wider one.
    """
    refuse_value(site, "stash_type", 1)
    (x, scale), shift = site.operands("X", "Scale"), site.input("B")
    kind, wide = _types(x, scale)
    y, mean, inverse = site.multi(
        "LayerNormalization",
        cast(site, x, wide),
        cast(site, scale, wide),
        None if shift is None else cast(site, shift, wide),
        axis=site.integer("axis"),
        epsilon=site.real("epsilon"),
        dtypes=(wide, _D.FLOAT, _D.FLOAT),
    )
    return read_outputs(site, cast(site, y, kind), mean, inverse)


def simplified_layer_normalization(site: Site) -> Replacement:
    """Write SimplifiedLayerNormalization as RMSNormalization-23.

    If the types of X and scale differ, it is computed in the wider one. `inv_std_var` is computed
    if somebody reads it.
    """
    refuse_value(site, "stash_type", 1)
    x, scale = site.operands("X", "scale")
    kind, wide = _types(x, scale)
    axis, epsilon = site.integer("axis"), site.real("epsilon")
    y = root_mean_square(site, cast(site, x, wide), scale, axis, epsilon)
    inverse = _inverse(site, x, axis, epsilon) if is_read(site, 1) else None
    return outputs_of(site.node, cast(site, y, kind), inverse)


def skip_layer_normalization(site: Site) -> Replacement:
    """Write SkipLayerNormalization as Add and LayerNormalization-17 of the last axis."""
    total = _residual(site)
    y = _layer_norm(site, total, site.required("gamma"), site.input("beta"))
    return read_outputs(site, y, None, None, total)


def skip_simplified_layer_normalization(site: Site) -> Replacement:
    """Write SkipSimplifiedLayerNormalization as Add and RMSNormalization-23 of the last axis."""
    total = _residual(site)
    y = root_mean_square(site, total, site.required("gamma"), -1, site.real("epsilon"))
    return read_outputs(site, y, None, None, total)


def embed_layer_normalization(site: Site) -> Replacement:
    """Write EmbedLayerNormalization as a Gather for each table, Add and LayerNormalization-17.

    `mask_index` is the number of ones in each row of the mask.
    """
    places = site.input("position_ids")

    def rows(name: str, at: ir.Value) -> ir.Value:
        return site.op("Gather", site.required(name), at)

    total = _embedded(site, places or _places(site), rows)
    y = _layer_norm(site, total, *site.operands("gamma", "beta"))
    count = _ones(site) if is_read(site, 1) else None
    return outputs_of(site.node, y, count, total)


def _embedded(
    site: Site,
    places: ir.Value,
    rows: Callable[[str, ir.Value], ir.Value],
    suffix: str = "",
) -> ir.Value:
    """Return the sum of the rows of all tables, which `rows` gathers by the name of the table."""
    segments, table = site.input("segment_ids"), site.input("segment_embedding")
    if (segments is None) != (table is None):
        raise no_form(
            f"`{site.node.op_type}` has one of `segment_ids` and `segment_embedding`, expected "
            "both or neither"
        )
    words = rows(f"word_embedding{suffix}", site.required("input_ids"))
    total = site.op("Add", words, rows(f"position_embedding{suffix}", places))
    return total if segments is None else site.op("Add", total, rows("segment_embedding", segments))


def _layer_norm(site: Site, x: ir.Value, *factors: ir.Value | None) -> ir.Value:
    return site.op("LayerNormalization", x, *factors, axis=-1, epsilon=site.real("epsilon"))


def _places(site: Site) -> ir.Value:
    """Return the places of the tokens of `input_ids`, (B, L), from 0 on: (1, L)."""
    ids = site.required("input_ids")
    dims = dims_of(ids)
    if dims is not None and len(dims) != 2:
        raise no_form(
            f"`{ids.name}` of `{site.node.op_type}` has {len(dims)} dimensions, expected 2"
        )
    return positions(site, ids, 1, place=1, rank=2)


def q_embed_layer_normalization(site: Site) -> Replacement:
    """Write QEmbedLayerNormalization as a Gather and DequantizeLinear for each table, and so on."""

    def dequantized(name: str, at: ir.Value | None = None) -> ir.Value:
        short = name.removesuffix("_quant")
        quantized = site.required(name)
        if at is not None:
            quantized = site.op("Gather", quantized, at)
        scale, zero = site.required(f"{short}_scale"), site.required(f"{short}_zero_point")
        return site.op("DequantizeLinear", quantized, scale, zero, dtype=_D.FLOAT)

    total = _embedded(site, _places(site), dequantized, "_quant")
    factors = (dequantized(name) for name in ("gamma_quant", "beta_quant"))
    y = _layer_norm(site, total, *factors)
    return Replacement((y, _ones(site) if is_read(site, 1) else None))


def _ones(site: Site) -> ir.Value:
    """Return the number of ones in each row of the mask, 0 without a mask: (B,), int32."""
    mask = site.input("mask")
    if mask is None:
        shape = unsqueeze(site, size(site, site.required("input_ids"), 0), [0])
        return site.op("ConstantOfShape", shape, value=ir.Tensor(np.zeros(1, np.int32)))
    counted = cast(site, site.op("Equal", mask, 1), _D.INT32)
    return reduce(site, "ReduceSum", counted, [1], keepdims=False)


def _residual(site: Site) -> ir.Value:
    """Return the sum that is normalized.

    Raises:
        Refusal: If the statistics are read: onnxruntime computes them in training only.
    """
    for index in (1, 2):
        if is_read(site, index):
            name = site.facts.outputs[index].name
            raise no_form(
                f"`{name}` of `{site.node.op_type}` is read, which onnxruntime gives in training "
                "only"
            )
    x, bias = site.required("input"), site.input("bias")
    op = site.op
    total = op("Add", x, site.required("skip"), hint="sum")
    return total if bias is None else op("Add", total, bias, hint="biased")


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
