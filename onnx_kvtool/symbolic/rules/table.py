"""The table of rules, by operator of the default domain."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.schema import op_history
from onnx_kvtool.ops.traits import Trait, having, traits_of
from onnx_kvtool.symbolic.rules import (
    caches,
    elementwise,
    folding,
    folding_whole,
    movement,
    reshape,
    slicing,
    sources,
    windows,
)
from onnx_kvtool.symbolic.rules.folding import FoldRule
from onnx_kvtool.symbolic.rules.site import ElementRule, ShapeRule


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """What an operator says of its outputs beyond its traits.

    Attributes:
        shape: Their shapes; None where its traits say them, or nothing does.
        elements: What each of them holds; None where its elements are unknown.
        fold: The elements of its output, where those of its inputs are numbers; None where it is
            not folded.
    """

    shape: ShapeRule | None
    elements: ElementRule | None
    fold: FoldRule | None = None


def _of(
    op_type: str,
    shape: ShapeRule | None = None,
    elements: ElementRule | None = None,
    fold: FoldRule | None = None,
) -> tuple[str, OperatorRules]:
    return op_type, OperatorRules(shape, elements, fold)


OPERATOR_RULES: Table[str, OperatorRules] = Table(
    "rule of an operator",
    [
        _of("Abs", elements=elementwise.absolute_elements, fold=folding_whole.absolute),
        _of("Add", elements=elementwise.add_elements, fold=folding.add),
        _of("And", elements=elementwise.multiply_elements, fold=folding.and_),
        _of("ArgMax", windows.arg_reduce),
        _of("ArgMin", windows.arg_reduce),
        _of("Attention", caches.attention),
        _of("AveragePool", windows.pool),
        _of("Cast", elements=elementwise.cast_elements, fold=folding.cast),
        _of("CastLike", elements=elementwise.cast_elements, fold=folding.cast_like),
        _of("Clip", elements=elementwise.clip_elements, fold=folding_whole.clip),
        _of("Concat", movement.concat, movement.concat_elements, fold=folding.concat),
        _of("Constant", sources.constant, sources.constant_elements, fold=folding.constant),
        _of(
            "ConstantOfShape",
            sources.constant_of_shape,
            sources.constant_of_shape_elements,
            fold=folding_whole.constant_of_shape,
        ),
        _of("Conv", windows.conv()),
        _of("ConvInteger", windows.conv()),
        _of("ConvTranspose", windows.conv_transpose),
        _of("CumSum", elements=movement.cumulative_sum_elements, fold=folding_whole.cumulative_sum),
        _of("DeformConv", windows.conv()),
        _of("DepthToSpace", windows.depth_to_space),
        _of("Div", elements=elementwise.divide_elements, fold=folding.divide),
        _of("Dropout", elementwise.like(0, outputs=2)),
        _of("DynamicQuantizeLinear", lambda site: (site.shape(0), (), ())),
        _of("Equal", elements=elementwise.equal_elements, fold=folding.equal),
        _of("Expand", movement.expand, movement.expand_elements, fold=folding_whole.expand),
        _of("Flatten", movement.flatten, reshape.flatten_elements, fold=folding_whole.flatten),
        _of("Gather", movement.gather, movement.gather_elements, fold=folding.gather),
        _of("GatherElements", elementwise.like(1)),
        _of("GatherND", movement.gather_nd, movement.gather_nd_elements),
        _of("Gemm", windows.gemm),
        _of(
            "Greater",
            elements=elementwise.comparison_elements(less=True, swap=True),
            fold=folding.greater,
        ),
        _of(
            "GreaterOrEqual",
            elements=elementwise.comparison_elements(less=False, swap=False),
            fold=folding.greater_or_equal,
        ),
        _of("Identity", elements=movement.identity_elements, fold=folding.identity),
        _of("LayerNormalization", windows.layer_normalization),
        _of(
            "Less",
            elements=elementwise.comparison_elements(less=True, swap=False),
            fold=folding.less,
        ),
        _of(
            "LessOrEqual",
            elements=elementwise.comparison_elements(less=False, swap=True),
            fold=folding.less_or_equal,
        ),
        _of("LpPool", windows.pool),
        _of("MatMul", windows.mat_mul()),
        _of("MatMulInteger", windows.mat_mul()),
        _of("Max", elements=elementwise.largest_of_elements, fold=folding_whole.largest),
        _of("MaxPool", windows.pool),
        _of("Min", elements=elementwise.smallest_of_elements, fold=folding_whole.smallest),
        _of("Mod", elements=elementwise.mod_elements, fold=folding.modulo),
        _of("Mul", elements=elementwise.multiply_elements, fold=folding.multiply),
        _of("Neg", elements=elementwise.negate_elements, fold=folding.negate),
        _of("NonZero", sources.non_zero, fold=folding_whole.non_zero),
        _of("Not", elements=elementwise.not_elements, fold=folding.not_),
        _of("OneHot", sources.one_hot, sources.one_hot_elements),
        _of("Or", elements=elementwise.either_elements, fold=folding.or_),
        _of("Pad", windows.pad),
        _of("QLinearConv", windows.conv(weight=3)),
        _of("QLinearMatMul", windows.mat_mul(right=3)),
        _of("Range", sources.range_, sources.range_elements, fold=folding.range_),
        _of("ReduceMax", fold=folding_whole.reduce_(np.max, None)),
        _of("ReduceMin", fold=folding_whole.reduce_(np.min, None)),
        _of("ReduceProd", fold=folding_whole.reduce_(np.prod, 1)),
        _of("ReduceSum", fold=folding_whole.reduce_(np.sum, 0)),
        _of("Reshape", reshape.reshape, reshape.reshape_elements, fold=folding.reshape),
        _of("Resize", windows.resize),
        _of("ScatterElements", elements=movement.scattered_elements),
        _of("Shape", sources.shape_vector, sources.shape_elements, fold=folding.shape),
        _of("Sign", fold=folding_whole.sign),
        _of("Size", sources.scalar, sources.size_elements, fold=folding.size),
        _of("Slice", slicing.slice_, slicing.slice_elements, fold=folding_whole.slice_),
        _of("SpaceToDepth", windows.space_to_depth),
        _of("Split", slicing.split, slicing.split_elements),
        _of("Squeeze", movement.squeeze, movement.squeeze_elements, fold=folding.squeeze),
        _of("Sub", elements=elementwise.subtract_elements, fold=folding.subtract),
        _of("Sum", elements=elementwise.add_elements, fold=folding_whole.sum_),
        _of("SwiGLU", elementwise.one_shape),
        _of("TensorScatter", caches.tensor_scatter),
        _of("Tile", movement.tile, movement.tile_elements, fold=folding_whole.tile),
        _of("TopK", windows.top_k),
        _of(
            "Transpose",
            movement.transpose,
            movement.transpose_elements,
            fold=folding_whole.transpose,
        ),
        _of("Trilu", fold=folding_whole.trilu),
        _of("Unsqueeze", movement.unsqueeze, movement.unsqueeze_elements, fold=folding.unsqueeze),
        _of("Upsample", windows.upsample),
        _of("Where", elements=elementwise.where_elements, fold=folding.where),
        _of("Xor", elements=elementwise.xor_elements, fold=folding.xor),
    ],
)
"""Operators whose shape their traits do not say, and those that index arithmetic goes through."""

OTHER_RULES: Table[str, ShapeRule] = Table(
    "shape rule of another domain",
    [
        (f"ai.onnx.ml::{op}", elementwise.like(0))
        for op in sorted(having(Trait.KEEPS_SHAPE, domain="ai.onnx.ml"))
    ],
)
"""Of operators of other domains of ONNX that onnx has no rule for."""


@functools.cache
def shape_rule(op_type: str) -> ShapeRule | None:
    """Return what says the shapes of an operator's outputs: a rule of its own, or its traits.

    None for an operator that is left to onnx's own rule for a single node.
    """
    own = OPERATOR_RULES.get(op_type)
    if own is not None and own.shape is not None:
        return own.shape
    kinds = traits_of(op_type)
    if Trait.BROADCASTS in kinds:
        return elementwise.broadcast
    if Trait.REDUCES in kinds and Trait.DECIDES not in kinds:
        return windows.reduce
    facts = op_history(op_type) if Trait.KEEPS_SHAPE in kinds else ()
    return elementwise.like(0) if facts and facts[0].max_outputs == 1 else None


@functools.cache
def element_rule(op_type: str) -> ElementRule | None:
    """Return what says the elements of an operator's outputs; None where they are unknown."""
    own = OPERATOR_RULES.get(op_type)
    return None if own is None else own.elements
