"""The table of rules, by operator of the default domain."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.schema import op_history
from onnx_kvtool.ops.traits import Trait, having, traits_of
from onnx_kvtool.symbolic.rules import (
    caches,
    elementwise,
    folding,
    movement,
    reshape,
    slicing,
    sources,
    windows,
)
from onnx_kvtool.symbolic.rules.folding import FoldRule
from onnx_kvtool.symbolic.rules.site import ElementRule, ShapeRule


class OperatorRules(NamedTuple):
    """What an operator says of its outputs beyond its traits.

    Attributes:
        shape: Their shapes; None where its traits say them, or nothing does.
        elements: What each of them holds; None where its elements are unknown.
        fold: The elements of its output, where those of its inputs are numbers; None where it is
            not folded.
    """

    op_type: str
    shape: ShapeRule | None = None
    elements: ElementRule | None = None
    fold: FoldRule | None = None


_of = OperatorRules


def _compared(op_type: str, compute: np.ufunc, *, less: bool, swap: bool) -> OperatorRules:
    elements = elementwise.comparison_elements(less=less, swap=swap)
    return OperatorRules(op_type, None, elements, folding.elementwise(compute))


OPERATOR_RULES: Table[str, OperatorRules] = Table(
    "rule of an operator",
    (
        (rules.op_type, rules)
        for rules in (
            _of("Abs", None, elementwise.absolute_elements, folding.absolute),
            _of("Add", None, elementwise.add_elements, folding.elementwise(np.add)),
            _of("And", None, elementwise.multiply_elements, folding.elementwise(np.logical_and)),
            _of("ArgMax", windows.arg_reduce),
            _of("ArgMin", windows.arg_reduce),
            _of("Attention", caches.attention),
            _of("AveragePool", windows.pool),
            _of("Cast", None, elementwise.cast_elements, folding.cast),
            _of("CastLike", None, elementwise.cast_elements, folding.cast_like),
            _of("Clip", None, elementwise.clip_elements, folding.clip),
            _of("Concat", movement.concat, movement.concat_elements, folding.concat),
            _of("Constant", sources.constant, sources.constant_elements, folding.constant),
            _of(
                "ConstantOfShape",
                sources.constant_of_shape,
                sources.constant_of_shape_elements,
                folding.constant_of_shape,
            ),
            _of("Conv", windows.conv()),
            _of("ConvInteger", windows.conv()),
            _of("ConvTranspose", windows.conv_transpose),
            _of("CumSum", None, movement.cumulative_sum_elements, folding.cumulative_sum),
            _of("DeformConv", windows.conv()),
            _of("DepthToSpace", windows.depth_to_space),
            _of("Div", None, elementwise.divide_elements, folding.divide),
            _of("Dropout", elementwise.like(0, outputs=2)),
            _of("DynamicQuantizeLinear", lambda site: (site.shape(0), (), ())),
            _of("Equal", None, elementwise.equal_elements, folding.elementwise(np.equal)),
            _of("Expand", movement.expand, movement.expand_elements, folding.expand),
            _of("Flatten", movement.flatten, reshape.reshape_elements, folding.flatten),
            _of("Gather", movement.gather, movement.gather_elements, folding.gather),
            _of("GatherElements", elementwise.like(1)),
            _of("GatherND", movement.gather_nd, movement.gather_nd_elements),
            _of("Gemm", windows.gemm),
            _compared("Greater", np.greater, less=True, swap=True),
            _compared("GreaterOrEqual", np.greater_equal, less=False, swap=False),
            _of("Identity", None, movement.identity_elements, folding.identity),
            _of("LayerNormalization", windows.layer_normalization),
            _compared("Less", np.less, less=True, swap=False),
            _compared("LessOrEqual", np.less_equal, less=False, swap=True),
            _of("LpPool", windows.pool),
            _of("MatMul", windows.mat_mul()),
            _of("MatMulInteger", windows.mat_mul()),
            _of("Max", None, elementwise.largest_of_elements, folding.of_all(np.maximum)),
            _of("MaxPool", windows.pool),
            _of("Min", None, elementwise.smallest_of_elements, folding.of_all(np.minimum)),
            _of("Mod", None, elementwise.mod_elements, folding.modulo),
            _of("Mul", None, elementwise.multiply_elements, folding.elementwise(np.multiply)),
            _of("Neg", None, elementwise.negate_elements, folding.elementwise(np.negative)),
            _of("NonZero", sources.non_zero, None, folding.non_zero),
            _of("Not", None, elementwise.not_elements, folding.elementwise(np.logical_not)),
            _of("OneHot", sources.one_hot, sources.one_hot_elements),
            _of("Or", None, elementwise.either_elements, folding.elementwise(np.logical_or)),
            _of("Pad", windows.pad),
            _of("QLinearConv", windows.conv(weight=3)),
            _of("QLinearMatMul", windows.mat_mul(right=3)),
            _of("Range", sources.range_, sources.range_elements, folding.range_),
            _of("ReduceMax", None, None, folding.reduce_(np.max)),
            _of("ReduceMin", None, None, folding.reduce_(np.min)),
            _of("ReduceProd", None, None, folding.reduce_(np.prod)),
            _of("ReduceSum", None, None, folding.reduce_(np.sum)),
            _of("Reshape", reshape.reshape, reshape.reshape_elements, folding.reshape),
            _of("Resize", windows.resize),
            _of("ScatterElements", None, movement.scattered_elements),
            _of("Shape", sources.shape_vector, sources.shape_elements, folding.shape),
            _of("Sign", None, None, folding.elementwise(np.sign)),
            _of("Size", sources.scalar, sources.size_elements, folding.size),
            _of("Slice", slicing.slice_, slicing.slice_elements, folding.slice_),
            _of("SpaceToDepth", windows.space_to_depth),
            _of("Split", slicing.split, slicing.split_elements),
            _of("Squeeze", movement.squeeze, movement.squeeze_elements, folding.squeeze),
            _of("Sub", None, elementwise.subtract_elements, folding.elementwise(np.subtract)),
            _of("Sum", None, elementwise.add_elements, folding.of_all(np.add)),
            _of("SwiGLU", elementwise.one_shape),
            _of("TensorScatter", caches.tensor_scatter),
            _of("Tile", movement.tile, movement.tile_elements, folding.tile),
            _of("TopK", windows.top_k),
            _of(
                "Transpose",
                movement.transpose,
                movement.transpose_elements,
                folding.transpose,
            ),
            _of("Trilu", None, None, folding.trilu),
            _of("Unsqueeze", movement.unsqueeze, movement.unsqueeze_elements, folding.unsqueeze),
            _of("Upsample", windows.upsample),
            _of("Where", None, elementwise.where_elements, folding.where),
            _of("Xor", None, elementwise.xor_elements, folding.elementwise(np.logical_xor)),
        )
    ),
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
