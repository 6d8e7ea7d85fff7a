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
from onnx_kvtool.symbolic.division import exact_quotient
from onnx_kvtool.symbolic.expression import integer
from onnx_kvtool.symbolic.rules.contrib_attention import (
    fused_attention,
    group_query_attention,
    multi_head_attention,
)
from onnx_kvtool.symbolic.rules.elementwise import like
from onnx_kvtool.symbolic.rules.linear import product_shape
from onnx_kvtool.symbolic.rules.reduction import normalized
from onnx_kvtool.symbolic.rules.site import ShapeRule, ShapeSite, Unknown
from onnx_kvtool.symbolic.rules.windows import conv
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["CONTRIB", "Contrib"]


@dataclass(frozen=True, slots=True)
class Contrib:
    """What is known of one operator without a schema.

    Attributes:
        rule: Shapes of its outputs.
        types: For each output that has not the type of input 0, the inputs whose type it has, the
            first one that is given; or an element type.
    """

    rule: ShapeRule
    types: Mapping[int, tuple[int, ...] | ir.DataType] = field(default_factory=dict)


def simplified_layer_normalization(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """SimplifiedLayerNormalization, also in the default domain: Y and inv_std_var."""
    y, reduced, _ = normalized(site.shape(0), site.integer("axis"))
    return (y, reduced)


def skip_normalization(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """SkipLayerNormalization, also simplified: output, two of training, and the sum."""
    shape = site.shape(0)
    none = Unknown("training-output", "onnxruntime gives this output in training only")
    return (shape, none, none, shape)


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


_LIKE_FIRST = having(Trait.KEEPS_SHAPE, domain=DOMAIN) - having(Trait.NORMALIZES, domain=DOMAIN)

CONTRIB: Table[str, Contrib] = Table(
    "contrib shape rule",
    [
        *((op, Contrib(like(0))) for op in sorted(_LIKE_FIRST)),
        ("Attention", Contrib(fused_attention)),
        ("BiasAdd", Contrib(like(0))),
        ("BiasSplitGelu", Contrib(bias_split_gelu)),
        ("FusedConv", Contrib(conv())),
        ("FusedMatMul", Contrib(fused_mat_mul)),
        ("GroupQueryAttention", Contrib(group_query_attention, {1: (3, 0), 2: (4, 0)})),
        ("MatMulNBits", Contrib(mat_mul_nbits)),
        ("MultiHeadAttention", Contrib(multi_head_attention)),
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
    ],
)
"""By operator of `com.microsoft`; SimplifiedLayerNormalization stands in the default domain too."""
