"""The table of shape rules, by operator of the default domain."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
from onnx_kvtool.shapes.rules import (
    caches,
    computed,
    linear,
    movement,
    reduction,
    resizing,
    slicing,
    windows,
)
from onnx_kvtool.shapes.rules.elementwise import broadcast, like
from onnx_kvtool.shapes.rules.site import Rule

__all__ = ["BROADCAST", "LIKE_FIRST", "OTHER_RULES", "REDUCTIONS", "RULES"]

LIKE_FIRST = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Bernoulli", "BitCast", "BitwiseNot",
    "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Cosh", "CumProd", "CumSum",
    "DequantizeLinear", "Elu", "Erf", "Exp", "Floor", "Gelu", "GroupNormalization", "HardSigmoid",
    "HardSwish", "Hardmax", "Identity", "InstanceNormalization", "IsInf", "IsNaN", "LRN",
    "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "Mish", "Neg",
    "Not", "QuantizeLinear", "RMSNormalization", "RandomNormalLike", "RandomUniformLike",
    "Reciprocal", "Relu", "ReverseSequence", "RotaryEmbedding", "Round", "Scatter",
    "ScatterElements", "ScatterND", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu",
)  # fmt: skip
"""The output has the shape of input 0."""

BROADCAST = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub",
    "Sum", "Where", "Xor",
)  # fmt: skip
"""The output has the shape to which all inputs are broadcast."""

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: Table[str, Rule] = Table(
    "shape rule",
    [
        *((op, like(0)) for op in LIKE_FIRST),
        *((op, broadcast) for op in BROADCAST),
        *((op, reduction.reduce) for op in REDUCTIONS),
        ("ArgMax", reduction.arg_reduce),
        ("ArgMin", reduction.arg_reduce),
        ("Attention", caches.attention),
        ("AveragePool", windows.pool),
        ("Concat", movement.concat),
        ("Constant", computed.constant),
        ("ConstantOfShape", computed.constant_of_shape),
        ("Conv", windows.conv()),
        ("ConvInteger", windows.conv()),
        ("ConvTranspose", windows.conv_transpose),
        ("DeformConv", windows.deform_conv),
        ("DepthToSpace", resizing.depth_to_space),
        ("Dropout", like(0, outputs=2)),
        ("DynamicQuantizeLinear", lambda site: (site.shape(0), (), ())),
        ("Expand", computed.expand),
        ("EyeLike", like(0)),
        ("Flatten", movement.flatten),
        ("Gather", movement.gather),
        ("GatherElements", like(1)),
        ("GatherND", movement.gather_nd),
        ("Gemm", linear.gemm),
        ("LayerNormalization", reduction.layer_normalization),
        ("LpPool", windows.pool),
        ("MatMul", linear.mat_mul()),
        ("MatMulInteger", linear.mat_mul()),
        ("MaxPool", windows.pool),
        ("NonZero", slicing.non_zero),
        ("OneHot", computed.one_hot),
        ("PRelu", like(0)),
        ("Pad", computed.pad),
        ("QLinearConv", windows.conv(weight=3)),
        ("QLinearMatMul", linear.mat_mul(right=3)),
        ("Range", computed.range_),
        ("Reshape", computed.reshape),
        ("Resize", resizing.resize),
        ("Shape", slicing.shape_vector),
        ("Size", slicing.scalar),
        ("Slice", slicing.slice_),
        ("SpaceToDepth", resizing.space_to_depth),
        ("Split", movement.split),
        ("Squeeze", movement.squeeze),
        ("TensorScatter", caches.tensor_scatter),
        ("Tile", computed.tile),
        ("TopK", computed.top_k),
        ("Transpose", movement.transpose),
        ("Upsample", resizing.upsample),
        ("Unsqueeze", movement.unsqueeze),
    ],
)
"""An operator that is not here is left to onnx's own rule for a single node."""

OTHER_RULES: Table[str, Rule] = Table(
    "shape rule of another domain",
    [(f"ai.onnx.ml::{op}", like(0)) for op in ("Imputer", "Normalizer", "Scaler")],
)
"""Of operators of other domains of ONNX, for which onnx has no rule."""
