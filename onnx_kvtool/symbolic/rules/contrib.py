"""Operators of `com.microsoft` that exporters and onnxruntime's optimiser write.

Inputs and outputs are those of docs/ContribOperators.md of microsoft/onnxruntime (release 1.31);
what it leaves open is said at the rule. The operators have since_version 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib_schema import DOMAIN
from onnx_kvtool.ops.traits import Trait, having
from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.rules import contrib_older, contrib_recent
from onnx_kvtool.symbolic.rules.contrib_attention import (
    fused_attention,
    group_query_attention,
    multi_head_attention,
    sparse_attention,
)
from onnx_kvtool.symbolic.rules.contrib_states import (
    causal_conv_with_state,
    gated_delta_net,
    linear_attention,
    varlen_causal_conv_with_state,
)
from onnx_kvtool.symbolic.rules.elementwise import broadcast_shapes, like
from onnx_kvtool.symbolic.rules.site import ShapeRule, ShapeSite, TypeOf, Unknown, placed
from onnx_kvtool.symbolic.rules.windows import (
    conv,
    mat_mul,
    normalized,
    pool_of_any_layout,
    product_shape,
)
from onnx_kvtool.symbolic.simplification import exact_quotient

__all__ = ["CONTRIB", "Contrib"]


@dataclass(frozen=True, slots=True)
class Contrib:
    """What is known of one operator without a schema.

    Attributes:
        rule: Shapes of its outputs.
        types: For each output that has not the type of input 0, the inputs whose type it has, the
            first one that is given; or an element type, perhaps as the node says.
    """

    rule: ShapeRule
    types: Mapping[int, TypeOf] = field(default_factory=dict)


def simplified_layer_normalization(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """SimplifiedLayerNormalization, also in the default domain: Y and inv_std_var."""
    y, reduced, _ = normalized(site.shape(0), site.integer("axis"))
    return (y, reduced)


def skip_normalization(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """SkipLayerNormalization, also simplified: output, two of training, and the sum."""
    shape = site.shape(0)
    none = Unknown("training-output", "onnxruntime gives this output in training only")
    return (shape, none, none, shape)


def embed_layer_normalization(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """EmbedLayerNormalization: rows of the tables, how many tokens count, and the sum."""
    ids, words = site.shape(0), site.shape(2)
    if len(ids) != 2 or len(words) != 2:
        raise Unknown("malformed", "`EmbedLayerNormalization` takes matrices")
    rows = (*ids, words[1])
    return (rows, ids[:1], rows)


def bias_split_gelu(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """BiasSplitGelu: half of the last axis."""
    shape = site.shape(0)
    half = exact_quotient(shape[-1], integer(2)) if shape else None
    if half is None:
        return ((*shape[:-1], site.lost(len(shape) - 1, "half of it is no expression")),)
    return ((*shape[:-1], half),)


def mat_mul_nbits(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """MatMulNBits: (..., K) and a packed (K, N) of which the attributes tell the sizes."""
    shape = site.shape(0)
    inner, columns = site.integer("K"), site.integer("N")
    if not shape or inner < 1 or columns < 1:
        raise Unknown("malformed", "`MatMulNBits` lacks its input, `K` or `N`")
    site.same(integer(inner), shape[-1], 0, len(shape) - 1, "size `K`")
    return ((*shape[:-1], integer(columns)),)


def fused_mat_mul(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """FusedMatMul: a MatMul of operands that are transposed first."""
    shapes = []
    for index, letter in enumerate("AB"):
        shape = site.shape(index)
        if site.integer(f"transBatch{letter}") and len(shape) > 2:
            shape = (*shape[1:-1], shape[0], shape[-1])
        if site.integer(f"trans{letter}") and len(shape) > 1:
            shape = (*shape[:-2], shape[-1], shape[-2])
        shapes.append(shape)
    return (product_shape(site, shapes[0], shapes[1], 1),)


def coded(*places: int) -> ShapeRule:
    """Return the rule of an operator on codes that broadcasts the inputs at `places`."""

    def rule(site: ShapeSite) -> Sequence[Shape | Unknown]:
        return (broadcast_shapes(site, [(place, site.shape(place)) for place in places]),)

    return rule


def fused_gemm(right: int) -> ShapeRule:
    """Return the rule of (M, K) and (K, N) at `right`, each perhaps transposed."""

    def rule(site: ShapeSite) -> Sequence[Shape | Unknown]:
        a, b = site.shape(0), site.shape(right)
        if len(a) != 2 or len(b) != 2:
            raise Unknown("malformed", f"`{site.node.op_type}` takes matrices")
        return ((a[1 if site.integer("transA") else 0], b[0 if site.integer("transB") else 1]),)

    return rule


def q_linear_concat(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """QLinearConcat: every third input from the third on, one after another."""
    places = range(2, len(site.node.inputs), 3)
    shapes = [site.shape(place) for place in places]
    if not shapes or any(len(shape) != len(shapes[0]) for shape in shapes):
        raise Unknown("malformed", "`QLinearConcat` takes parts of one rank")
    axis = placed(site.integer("axis"), len(shapes[0]))
    total = shapes[0][axis]
    for shape in shapes[1:]:
        total = total + shape[axis]
    return ((*shapes[0][:axis], total, *shapes[0][axis + 1 :]),)


def q_embed_layer_normalization(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """QEmbedLayerNormalization: rows of the tables, and how many tokens count."""
    return embed_layer_normalization(site)[:2]


def relative_position_bias(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """RelativePositionBias: (1, heads, queries, keys) of what its inputs hold."""
    table = site.shape(0)
    if len(table) != 2:
        raise Unknown("malformed", "`bias_table` is no matrix")
    sizes: list[Expr] = []
    for index in (1, 2):
        held = site.elements(site.value(index))
        known = held[0] if held is not None and len(held) == 1 else None
        sizes.append(known or site.lost(index + 1, "it is a number in an input"))
    return ((integer(1), table[1], *sizes),)


def gated_relative_position_bias(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GatedRelativePositionBias: (B, heads, queries, keys)."""
    query, places = site.shape(0), site.shape(2)
    if len(query) != 3 or len(places) != 4:
        raise Unknown("no-rule", "tokens without padding")
    return ((query[0], *places[1:]),)


def gather_block_quantized(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GatherBlockQuantized: slices, of which a byte of uint8 data holds more than one element."""
    data, indices = site.shape(0), site.shape(1)
    known = site.knowledge.types.get(site.value(0))
    kind = known.dtype if known is not None else None
    if kind is None:
        raise Unknown("unknown-input", "", site.value(0))
    if kind == ir.DataType.UINT8 and data:
        data = (*data[:-1], data[-1] * (8 // max(site.integer("bits"), 1)))
    axis = placed(site.integer("gather_axis"), len(data))
    return ((*data[:axis], *indices, *data[axis + 1 :]),)


def mat_mul_bnb4(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """MatMulBnb4: (..., K) and (K, N) of which the attributes tell the sizes, or (..., N)."""
    shape, names = site.shape(0), ("K", "N") if site.integer("transB") else ("N", "K")
    inner, columns = (site.integer(name) for name in names)
    if not shape:
        raise Unknown("malformed", "`MatMulBnb4` takes no scalar")
    site.same(integer(inner), shape[-1], 0, len(shape) - 1, f"size `{names[0]}`")
    return ((*shape[:-1], integer(columns)),)


def q_attention(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """QAttention: that of Attention, whose keys and values are as wide as the query."""
    x, weights, heads = site.shape(0), site.shape(1), site.integer("num_heads")
    if len(x) != 3 or len(weights) != 2 or heads < 1:
        raise Unknown("malformed", "input or weights are not of rank 3 and 2")
    width = exact_quotient(weights[1], integer(3))
    size = None if width is None else exact_quotient(width, integer(heads))
    if width is None or size is None:
        raise Unknown("no-expression", "the head size is no whole part of the width")
    past, total = site.given(8), x[1]
    if past is not None:
        shape = site.shape_of(past)
        if len(shape) != 5:
            raise Unknown("malformed", "past is not of rank 5")
        total = shape[3] + x[1]
    return ((x[0], x[1], width), (integer(2), x[0], integer(heads), total, size))


def q_linear_global_average_pool(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """QLinearGlobalAveragePool: all axes but batch and channels become 1."""
    shape = site.shape(0)
    channels = len(shape) - 1 if site.integer("channels_last") else 1
    return (tuple(s if axis in (0, channels) else integer(1) for axis, s in enumerate(shape)),)


_LIKE_FIRST = having(Trait.KEEPS_SHAPE, domain=DOMAIN) - having(Trait.NORMALIZES, domain=DOMAIN)
_TYPES: Mapping[str, Mapping[int, tuple[int, ...] | ir.DataType]] = {
    "BiasDropout": {1: ir.DataType.BOOL},
    "DequantizeLinear": {0: (1,)},
    "QuantizeLinear": {0: (2,)},
}
"""Of operators whose shape is that of input 0."""

CONTRIB: Table[str, Contrib] = Table(
    "contrib shape rule",
    [
        *((op, Contrib(like(0), _TYPES.get(op, {}))) for op in sorted(_LIKE_FIRST)),
        ("Attention", Contrib(fused_attention)),
        ("CausalConvWithState", Contrib(causal_conv_with_state)),
        ("DecoderMaskedMultiHeadAttention", Contrib(multi_head_attention)),
        ("DynamicQuantizeMatMul", Contrib(mat_mul(1))),
        ("BiasSplitGelu", Contrib(bias_split_gelu)),
        (
            "EmbedLayerNormalization",
            Contrib(embed_layer_normalization, {0: (2,), 1: ir.DataType.INT32, 2: (2,)}),
        ),
        ("FusedConv", Contrib(conv())),
        ("FusedGemm", Contrib(fused_gemm(1))),
        ("FusedMatMul", Contrib(fused_mat_mul)),
        ("FusedMatMulActivation", Contrib(fused_mat_mul)),
        ("GatedRelativePositionBias", Contrib(gated_relative_position_bias)),
        (
            "GatedDeltaNet",
            Contrib(gated_delta_net, {1: ir.DataType.FLOAT, 2: ir.DataType.FLOAT}),
        ),
        ("GatherBlockQuantized", Contrib(gather_block_quantized, {0: (2,)})),
        ("GemmFastGelu", Contrib(mat_mul(1))),
        ("GroupQueryAttention", Contrib(group_query_attention, {1: (3, 0), 2: (4, 0)})),
        ("LinearAttention", Contrib(linear_attention, {1: (3, 0)})),
        ("LinearAttentionGate", Contrib(like(0, 2))),
        ("MatMulBnb4", Contrib(mat_mul_bnb4)),
        ("MatMulIntegerToFloat", Contrib(mat_mul(1), {0: (3,)})),
        ("MatMulNBits", Contrib(mat_mul_nbits)),
        ("MultiHeadAttention", Contrib(multi_head_attention)),
        ("NhwcConv", Contrib(conv(filters_last=True))),
        ("NhwcMaxPool", Contrib(pool_of_any_layout)),
        ("QAttention", Contrib(q_attention, {0: (3,), 1: (3,)})),
        (
            "QEmbedLayerNormalization",
            Contrib(q_embed_layer_normalization, {0: (8,), 1: ir.DataType.INT32}),
        ),
        ("QGemm", Contrib(fused_gemm(3), {0: (8, 1)})),
        ("QLinearAdd", Contrib(coded(0, 3))),
        ("QLinearAveragePool", Contrib(pool_of_any_layout)),
        ("QLinearConcat", Contrib(q_linear_concat, {0: (1,)})),
        ("QLinearConv", Contrib(conv(3), {0: (7,)})),
        ("QLinearGlobalAveragePool", Contrib(q_linear_global_average_pool)),
        ("QLinearMul", Contrib(coded(0, 3))),
        ("QLinearWhere", Contrib(coded(0, 1, 4), {0: (1,)})),
        (
            "SimplifiedLayerNormalization",
            Contrib(simplified_layer_normalization, {0: (1, 0), 1: ir.DataType.FLOAT}),
        ),
        (
            "SkipLayerNormalization",
            Contrib(skip_normalization, {1: ir.DataType.FLOAT, 2: ir.DataType.FLOAT}),
        ),
        (
            "SkipSimplifiedLayerNormalization",
            Contrib(skip_normalization, {1: ir.DataType.FLOAT, 2: ir.DataType.FLOAT}),
        ),
        ("RelativePositionBias", Contrib(relative_position_bias)),
        ("SparseAttention", Contrib(sparse_attention, {1: (3,), 2: (4,)})),
        ("VarlenCausalConvWithState", Contrib(varlen_causal_conv_with_state)),
        ("ComplexMul", Contrib(coded(0, 1))),
        ("ComplexMulConj", Contrib(coded(0, 1))),
        *(
            (op, Contrib(rule, types))
            for op, rule, types in (*contrib_older.LINES, *contrib_recent.LINES)
        ),
    ],
)
"""By operator of `com.microsoft`; some stand in the default domain too, or there alone."""
