"""Operators of `com.microsoft` that came with recent decoders of onnxruntime-genai."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import integer
from onnx_kvtool.symbolic.rules.elementwise import like
from onnx_kvtool.symbolic.rules.site import ShapeRule, ShapeSite, TypeOf, Unknown
from onnx_kvtool.symbolic.simplification import exact_quotient

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


def gemma_rotary_embedding(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GemmaRotaryEmbedding: the shapes of query and key."""
    return (site.shape(1), site.shape(3))


def n_bits_fusion(*names: str) -> ShapeRule:
    """Return the rule of products of one input, whose columns attributes tell, and its sum."""

    def rule(site: ShapeSite) -> Sequence[Shape | Unknown]:
        shape = site.shape(0)
        return (*((*shape[:-1], integer(site.integer(name))) for name in names), shape)

    return rule


_FLOAT = ir.DataType.FLOAT

LINES: Sequence[tuple[str, ShapeRule, Mapping[int, TypeOf]]] = (
    ("EngramGate", like(0, 2), {}),
    ("GemmaRotaryEmbedding", gemma_rotary_embedding, {0: (1,), 1: (3,)}),
    ("HyperConnectionPreMix", mixed_branches, {}),
    ("MatMulNBitsMlp", n_bits_fusion("N"), {}),
    ("MatMulNBitsQkv", n_bits_fusion("Nq", "Nkv", "Nkv"), {}),
    ("SwiGLU", swiglu, {}),
)
"""Of each operator the rule, and the types of outputs that have not that of input 0."""
