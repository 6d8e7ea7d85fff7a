"""The table of shape rules, by operator of the default domain."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.schema import op_history
from onnx_kvtool.ops.traits import Trait, having
from onnx_kvtool.symbolic.rules import (
    caches,
    linear,
    movement,
    padding,
    reduction,
    reshape,
    resizing,
    select,
    slicing,
    sources,
    windows,
)
from onnx_kvtool.symbolic.rules.elementwise import broadcast, like, one_shape
from onnx_kvtool.symbolic.rules.site import ShapeRule

__all__ = ["OTHER_RULES", "SHAPE_RULES"]

_OWN: Table[str, ShapeRule] = Table(
    "shape rule of one operator",
    [
        ("ArgMax", reduction.arg_reduce),
        ("ArgMin", reduction.arg_reduce),
        ("Attention", caches.attention),
        ("AveragePool", windows.pool),
        ("Concat", select.concat),
        ("Constant", sources.constant),
        ("ConstantOfShape", sources.constant_of_shape),
        ("Conv", windows.conv()),
        ("ConvInteger", windows.conv()),
        ("ConvTranspose", windows.conv_transpose),
        ("DeformConv", windows.deform_conv),
        ("DepthToSpace", resizing.depth_to_space),
        ("Dropout", like(0, outputs=2)),
        ("DynamicQuantizeLinear", lambda site: (site.shape(0), (), ())),
        ("Expand", movement.expand),
        ("Flatten", movement.flatten),
        ("Gather", select.gather),
        ("GatherElements", like(1)),
        ("GatherND", select.gather_nd),
        ("Gemm", linear.gemm),
        ("LayerNormalization", reduction.layer_normalization),
        ("LpPool", windows.pool),
        ("MatMul", linear.mat_mul()),
        ("MatMulInteger", linear.mat_mul()),
        ("MaxPool", windows.pool),
        ("NonZero", sources.non_zero),
        ("OneHot", sources.one_hot),
        ("Pad", padding.pad),
        ("QLinearConv", windows.conv(weight=3)),
        ("QLinearMatMul", linear.mat_mul(right=3)),
        ("Range", sources.range_),
        ("Reshape", reshape.reshape),
        ("Resize", resizing.resize),
        ("Shape", sources.shape_vector),
        ("Size", sources.scalar),
        ("Slice", slicing.slice_),
        ("SpaceToDepth", resizing.space_to_depth),
        ("Split", slicing.split),
        ("Squeeze", movement.squeeze),
        ("SwiGLU", one_shape),
        ("TensorScatter", caches.tensor_scatter),
        ("Tile", movement.tile),
        ("TopK", padding.top_k),
        ("Transpose", movement.transpose),
        ("Upsample", resizing.upsample),
        ("Unsqueeze", movement.unsqueeze),
    ],
)
"""What the traits of an operator do not say."""


def _by_traits() -> Iterator[tuple[str, ShapeRule]]:
    for op in sorted(having(Trait.BROADCASTS)):
        yield op, broadcast
    for op in sorted(having(Trait.REDUCES) - having(Trait.DECIDES)):
        yield op, reduction.reduce
    for op in sorted(having(Trait.KEEPS_SHAPE) - having(Trait.BROADCASTS)):
        facts = op_history(op)
        if facts and facts[0].max_outputs == 1:
            yield op, like(0)


SHAPE_RULES: Table[str, ShapeRule] = Table(
    "shape rule",
    [*_OWN.items(), *((op, rule) for op, rule in _by_traits() if op not in _OWN)],
)
"""An operator that is not here is left to onnx's own rule for a single node."""

OTHER_RULES: Table[str, ShapeRule] = Table(
    "shape rule of another domain",
    [
        (f"ai.onnx.ml::{op}", like(0))
        for op in sorted(having(Trait.KEEPS_SHAPE, domain="ai.onnx.ml"))
    ],
)
"""Of operators of other domains of ONNX, for which onnx has no rule."""
