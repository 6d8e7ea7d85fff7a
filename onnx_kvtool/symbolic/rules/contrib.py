"""Operators of `com.microsoft` whose shapes are not inferred through their standard form.

Their form does not say all that they do, or decoders have so many of them that it would take long.
Inputs and outputs are those of docs/ContribOperators.md of microsoft/onnxruntime (release 1.31);
what it leaves open is said at the rule. The operators have since_version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.contrib import DOMAIN, ContribAttention, kept_window
from onnx_kvtool.ops.traits import Trait, having
from onnx_kvtool.symbolic.dimensions import Shape, exact_quotient
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Expr, integer
from onnx_kvtool.symbolic.rules.elementwise import like
from onnx_kvtool.symbolic.rules.site import (
    ShapeRule,
    Shapes,
    ShapeSite,
    TypeOf,
    Unknown,
    changed,
    malformed_if,
    placed,
)
from onnx_kvtool.symbolic.rules.windows import conv, normalized
from onnx_kvtool.symbolic.simplification import largest


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


def simplified_layer_normalization(site: ShapeSite) -> Shapes:
    """SimplifiedLayerNormalization, also in the default domain: Y and inv_std_var."""
    y, reduced, _ = normalized(site.shape(0), site.integer("axis"))
    return (y, reduced)


def skip_normalization(site: ShapeSite) -> Shapes:
    """SkipLayerNormalization, also simplified: output, two of training, and the sum."""
    shape = site.shape(0)
    none = Unknown("training-output", "onnxruntime computes this output only in training")
    return (shape, none, none, shape)


def mat_mul_nbits(site: ShapeSite) -> Shapes:
    """MatMulNBits: (..., K) times a packed (K, N) with sizes from attributes."""
    shape = site.shape(0)
    inner, columns = site.integer("K"), site.integer("N")
    malformed_if(not shape or inner < 1 or columns < 1, "`MatMulNBits` has no input, `K` or `N`")
    site.same(integer(inner), shape[-1], 0, len(shape) - 1, "size `K`")
    return ((*shape[:-1], integer(columns)),)


def gather_block_quantized(site: ShapeSite) -> Shapes:
    """GatherBlockQuantized: slices; a byte of uint8 data stores several elements."""
    data, indices = site.shape(0), site.shape(1)
    known = site.knowledge.types.get(site.value(0))
    if known is None:
        raise Unknown("unknown-input", "", site.value(0))
    if known.dtype == ir.DataType.UINT8 and data:
        data = (*data[:-1], data[-1] * (8 // max(site.integer("bits"), 1)))
    axis = placed(site.integer("gather_axis"), len(data))
    return (changed(data, axis, *indices),)


def gated_delta_net(site: ShapeSite) -> Shapes:
    """GatedDeltaNet: rows of the heads of values, and a state for each sequence."""
    query, value, bounds, state = site.shape(0), site.given(2), site.given(3), site.given(6)
    state_shape = None if state is None else site.shape_of(state)
    malformed_if(
        state_shape is not None and len(state_shape) != 4, "initial_state is not of rank 4"
    )
    if value is None:
        if state_shape is None:
            raise Unknown("malformed", "packed heads without initial_state")
        row: Shape = (*query[:-1], state_shape[1], state_shape[2])
    else:
        row = site.shape_of(value)
    if state_shape is None:
        count = site.shape_of(bounds)[0] - ONE if bounds is not None else query[0]
        state_shape = (count, *row[-2:], query[-1])
    unknown = Unknown("no-rule", "onnxruntime computes this output on GPUs only")
    return (row, state_shape, unknown)


def _queried(site: ShapeSite) -> tuple[Shape, Expr]:
    """Return the shape of the output, and the size of a head; keys may be packed with queries."""
    query, heads = site.shape(0), _heads(site, "num_heads")
    malformed_if(len(query) != 3, "the query is not of rank 3")
    if ContribAttention(site.node).input("key") is not None:
        return query, _part(query[2], heads)
    size = _part(query[2], heads + 2 * _heads(site, "kv_num_heads"))
    return (query[0], query[1], size * heads), size


def group_query_attention(site: ShapeSite) -> Shapes:
    """GroupQueryAttention: present holds past, and grows to total_sequence_length if that is more.

    onnxruntime 1.31 takes max(past_sequence_length, total_sequence_length) rows; with a buffer of
    fixed size, or one that drops rows, that is past's.
    """
    view, (output, size) = ContribAttention(site.node), _queried(site)
    heads, kv_heads = _heads(site, "num_heads"), _heads(site, "kv_num_heads")
    key = view.input("key")
    if site.rank_of(key) == 3:
        rows = site.shape(1)
        site.same(output[0], rows[0], 1, 0, "batch size")
        site.same(size * kv_heads, rows[2], 1, 2, "width of the key")
    value = view.input("total_sequence_length")
    total = None if value is None else site.content(value).scalar()
    most = total if kept_window(site.node) is None else ZERO
    empty = (output[0], integer(kv_heads), ZERO, size)
    presents = [
        _grown(site, view.input(name), index, empty, most)
        for index, name in ((1, "past_key"), (2, "past_value"))
    ]
    scores: Shape | Unknown = Unknown("data-dependent", "total_sequence_length is unknown")
    if total is not None:
        scores = (output[0], integer(heads), output[1], total)
    return (output, *presents, scores)


def sparse_attention(site: ShapeSite) -> Shapes:
    """SparseAttention: queries, packed or not; presents are the buffers of past."""
    return (_queried(site)[0], site.shape(3), site.shape(4))


def _grown(
    site: ShapeSite, past: ir.Value | None, output: int, empty: Shape, total: Expr | None
) -> Shape | Unknown:
    """Return the shape of a present that may share the buffer of past; `empty` has no rows."""
    if output >= len(site.node.outputs):
        return Unknown("absent", "the output is absent")
    shape = empty if past is None else site.knowledge.shapes.get(past)
    if shape is None:
        return Unknown("unknown-input", "", past)
    if past is not None:
        if len(shape) != 4:
            return Unknown("malformed", f"`{past.name}` is not of rank 4")
        site.same(empty[0], shape[0], site.node.inputs.index(past), 0, "batch size")
    if total is None:
        why = "it depends on the number in `total_sequence_length`"
        rows = site.lost(2, why, output=output)
    else:
        rows = total if past is None else largest((shape[2], total))
    return (shape[0], shape[1], rows, shape[3])


def multi_head_attention(site: ShapeSite) -> Shapes:
    """MultiHeadAttention: (B, L, hidden) queries, packed or not; past and key one after another."""
    view = ContribAttention(site.node)
    query, heads = site.shape(0), _heads(site, "num_heads")
    key, value = view.input("key"), view.input("value")
    malformed_if(len(query) not in (3, 5), "the query is neither of rank 3 nor of rank 5")
    batch, length, *_ = query
    size = query[4] if len(query) == 5 else _part(query[2], heads)  # (B, L, H, 3, D) packed
    rows, value_size = length, size
    if key is not None:
        keys = site.shape_of(key)
        rows = keys[2] if len(keys) == 4 else keys[1]
    if value is not None:
        values = site.shape_of(value)
        value_size = values[3] if len(values) == 4 else _part(values[2], heads)
    total = rows
    shared = view.input("past_sequence_length") is not None
    past = view.input("past_key")
    if past is not None:
        shape = site.shape_of(past)
        malformed_if(len(shape) != 4, "past_key is not of rank 4")
        site.same(batch, shape[0], view.index("past_key"), 0, "batch size")
        total = shape[2] if shared else shape[2] + rows
    count = integer(heads)
    return (
        (batch, length, count * value_size),
        (batch, count, total, size),
        (batch, count, total, value_size),
        Unknown("unspecified", "the width of the scores is not documented")
        if shared
        else (batch, count, length, total),
    )


def _heads(site: ShapeSite, name: str) -> int:
    count = site.integer(name)
    malformed_if(count < 1, f"`{site.node.op_type}` has no `{name}`")
    return count


def _part(width: Expr, count: int) -> Expr:
    part = exact_quotient(width, integer(count))
    if part is None:
        raise Unknown("no-expression", "the head size does not divide the width")
    return part


_LIKE_FIRST = having(Trait.KEEPS_SHAPE, domain=DOMAIN) - having(Trait.NORMALIZES, domain=DOMAIN)
_TYPES: Mapping[str, Mapping[int, TypeOf]] = {
    "DequantizeLinear": {0: (1,)},
    "QuantizeLinear": {0: (2,)},
}
"""Of operators whose shape is that of input 0."""

CONTRIB: Table[str, Contrib] = Table(
    "contrib shape rule",
    [
        *(
            (op, Contrib(like(0), _TYPES.get(op, {})))
            for op in sorted(_LIKE_FIRST - {"BiasDropout"})
        ),
        ("DecoderMaskedMultiHeadAttention", Contrib(multi_head_attention)),
        ("FusedConv", Contrib(conv())),
        (
            "GatedDeltaNet",
            Contrib(gated_delta_net, {1: ir.DataType.FLOAT, 2: ir.DataType.FLOAT}),
        ),
        ("GatherBlockQuantized", Contrib(gather_block_quantized, {0: (2,)})),
        ("GroupQueryAttention", Contrib(group_query_attention, {1: (3, 0), 2: (4, 0)})),
        ("MatMulNBits", Contrib(mat_mul_nbits)),
        ("MultiHeadAttention", Contrib(multi_head_attention)),
        (
            "SimplifiedLayerNormalization",
            Contrib(simplified_layer_normalization, {0: (1, 0), 1: ir.DataType.FLOAT}),
        ),
        *(
            (op, Contrib(skip_normalization, {1: ir.DataType.FLOAT, 2: ir.DataType.FLOAT}))
            for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
        ),
        ("SparseAttention", Contrib(sparse_attention, {1: (3,), 2: (4,)})),
    ],
)
"""By operator of `com.microsoft`; some stand in the default domain too, or there alone."""
