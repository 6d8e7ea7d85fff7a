"""Operators of `com.microsoft` that came with recent decoders of onnxruntime-genai."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.symbolic.division import exact_quotient
from onnx_kvtool.symbolic.expression import integer
from onnx_kvtool.symbolic.rules.elementwise import like
from onnx_kvtool.symbolic.rules.site import ShapeRule, ShapeSite, TypeOf, Unknown
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["LINES"]


def swiglu(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """SwiGLU: the shape of both inputs, or half of the last axis of one."""
    shape = site.shape(0)
    if site.given(1) is not None:
        return (shape,)
    half = exact_quotient(shape[-1], integer(2)) if shape else None
    if half is None:
        raise Unknown("no-expression", "half of the last dimension is no expression")
    return ((*shape[:-1], half),)


def mixed_branches(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """HyperConnectionPreMix: (..., H) of (..., C, H), or of C branches side by side."""
    shape, branches = site.shape(0), site.integer("num_branches")
    if branches == 0 and len(shape) > 1:
        return ((*shape[:-2], shape[-1]),)
    width = exact_quotient(shape[-1], integer(branches)) if shape and branches > 0 else None
    if width is None:
        raise Unknown("no-expression", "the branches are no whole part of the last dimension")
    return ((*shape[:-1], width),)


def low_rank_mix(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """HyperConnectionLowRankMix: (..., H), (..., C), and the streams."""
    (mixed,) = mixed_branches(site)
    shape = site.shape(0)
    return (mixed, (*shape[:-1], integer(site.integer("num_branches"))), shape)


def gemma_rotary_embedding(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GemmaRotaryEmbedding: the shapes of query and key."""
    return (site.shape(1), site.shape(3))


def moe_group_router(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """MoEGroupRouter: (T, E) three times."""
    (experts,), shape = site.shape(1), site.shape(0)
    tokens = functools.reduce(lambda a, b: a * b, shape[:-1], integer(1))
    return ((tokens, experts),) * 3


def router_gate_up_proj(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """RouterGateUpProj: the first columns of a product, and half of the others."""
    front, weight, first = site.shape(0)[:-1], site.shape(1), integer(site.integer("router_size"))
    if len(weight) != 2:
        raise Unknown("malformed", "`RouterGateUpProj` takes a matrix")
    half = exact_quotient(weight[1] - first, integer(2))
    if half is None:
        raise Unknown("no-expression", "half of the columns is no expression")
    return ((*front, first), (*front, half))


def n_bits_fusion(*names: str) -> ShapeRule:
    """Return the rule of products of one input, whose columns attributes tell, and its sum."""

    def rule(site: ShapeSite) -> Sequence[Shape | Unknown]:
        shape = site.shape(0)
        return (*((*shape[:-1], integer(site.integer(name))) for name in names), shape)

    return rule


def rms_norm_rotary(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """RMSNormRotary: heads side by side, perhaps of all tokens in one row, and apart."""
    shape = site.shape(0)
    if len(shape) != 4:
        raise Unknown("malformed", "`RMSNormRotary` takes (B, L, heads, width)")
    width = integer(site.integer("input_width")) if site.integer("input_width") else shape[3]
    rows = (integer(1), shape[0] * shape[1]) if site.integer("flatten_batch") else shape[:2]
    return ((*rows, shape[2] * width), (*shape[:3], width))


def rotated_type(node: ir.Node) -> ir.DataType:
    """Return the type of the first output of RMSNormRotary."""
    asked = node.attributes.get("output_fp16")
    is_half = asked is not None and not asked.is_ref() and asked.as_int() != 0
    return ir.DataType.FLOAT16 if is_half else ir.DataType.BFLOAT16


_FLOAT = ir.DataType.FLOAT

LINES: Sequence[tuple[str, ShapeRule, Mapping[int, TypeOf]]] = (
    ("EngramGate", like(0, 2), {}),
    ("GemmaRotaryEmbedding", gemma_rotary_embedding, {0: (1,), 1: (3,)}),
    ("HyperConnectionLowRankMix", low_rank_mix, {}),
    ("HyperConnectionPreMix", mixed_branches, {}),
    ("MatMulNBitsMlp", n_bits_fusion("N"), {}),
    ("MatMulNBitsQkv", n_bits_fusion("Nq", "Nkv", "Nkv"), {}),
    ("MoEGroupRouter", moe_group_router, {1: _FLOAT, 2: _FLOAT}),
    ("RMSNormRotary", rms_norm_rotary, {0: rotated_type, 1: _FLOAT}),
    ("RouterGateUpProj", router_gate_up_proj, {}),
    ("SwiGLU", swiglu, {}),
)
"""Of each operator the rule, and the types of outputs that have not that of input 0."""
