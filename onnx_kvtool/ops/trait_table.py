"""The traits of each operator that kvtool knows, in one line of one table.

All operators of onnx 1.23 are here, the two that are gone (Scatter, Upsample) included, and those
of onnxruntime whose schemas stand in `contrib_schemas.json`. An operator that only
computes in a way of its own is opaque, and is listed as such.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib import DOMAIN
from onnx_kvtool.ops.traits import OPAQUE, Trait, Traits, TypeSource

_T = Trait
_Line = tuple[tuple[str, str], Traits]


def _each(names: str, *kinds: Trait, domain: str = "") -> Iterator[_Line]:
    """Yield the lines of operators that have only traits."""
    shared = Traits.of(*kinds) if kinds else OPAQUE
    return (((domain, name), shared) for name in names.split())


def _one(
    name: str,
    *kinds: Trait,
    sizes: str = "",
    positions: str | None = None,
    element_type: TypeSource | None = None,
) -> _Line:
    given = Traits.of(*kinds, sizes=sizes, positions=positions, element_type=element_type)
    return ("", name), given


_ELEMENTWISE = (
    *_each(
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Dropout Elu Erf "
        "Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Not PRelu Reciprocal Relu "
        "Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt SwiGLU Swish Tan Tanh "
        "ThresholdedRelu",
        _T.ELEMENTWISE,
    ),
    *_each("IsInf IsNaN RegexFullMatch", _T.ELEMENTWISE, _T.DECIDES),
    _one("Bernoulli", _T.ELEMENTWISE, _T.RANDOM, element_type=TypeSource("dtype", 0)),
    _one("BitCast", _T.ELEMENTWISE, element_type=TypeSource("to")),
    _one("Cast", _T.CASTS, element_type=TypeSource("to")),
    _one("CastLike", _T.CASTS),
    *_each(
        "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Max Mean Min Mod Mul Or Pow "
        "StringConcat Sub Sum Xor",
        _T.BROADCASTS,
    ),
    *_each("Equal Greater GreaterOrEqual Less LessOrEqual", _T.BROADCASTS, _T.DECIDES),
    _one("Where", _T.BROADCASTS, _T.MOVES),
)

_MOVING = (
    _one("Identity", _T.SAME),
    *_each("Flatten Squeeze Unsqueeze", _T.VIEW),
    _one("Reshape", _T.VIEW, sizes="shape"),
    *_each("DepthToSpace SpaceToDepth Transpose", _T.REARRANGES),
    _one("Compress", _T.PART, _T.COUNTS),
    _one("Gather", _T.PART, positions="indices"),
    _one("GatherElements", _T.PART, _T.KEEPS_AXES, positions="indices"),
    _one("GatherND", _T.PART, positions="indices"),
    _one("Slice", _T.PART, _T.KEEPS_AXES),
    _one("Split", _T.PART, _T.KEEPS_AXES, sizes="split"),
    _one("Expand", _T.REPEATS, sizes="shape"),
    _one("Tile", _T.REPEATS, _T.KEEPS_AXES, sizes="tiles repeats"),
    *_each("Concat", _T.SHIFTS, _T.KEEPS_AXES),
    _one("CenterCropPad", _T.SHIFTS, _T.KEEPS_AXES, sizes="shape"),
    _one("Pad", _T.SHIFTS, _T.KEEPS_AXES, sizes="paddings pads"),
    *_each("ReverseSequence", _T.SHIFTS, _T.KEEPS_SHAPE),
    *_each("Trilu", _T.MOVES, _T.KEEPS_SHAPE),
    _one("OneHot", _T.MOVES, sizes="depth", positions="indices"),
    _one("Scatter", _T.UPDATES, positions="indices"),
    _one("ScatterElements", _T.UPDATES, positions="indices"),
    _one("ScatterND", _T.UPDATES, positions="indices"),
    _one("TensorScatter", _T.UPDATES, positions="write_indices"),
)

_MADE = (
    _one("Constant", _T.FILLS, element_type=TypeSource("value")),
    _one(
        "ConstantOfShape",
        _T.FILLS,
        sizes="input",
        element_type=TypeSource("value", ir.DataType.FLOAT),
    ),
    _one(
        "EyeLike",
        _T.FILLS,
        _T.READS_SHAPE,
        _T.KEEPS_SHAPE,
        element_type=TypeSource("dtype", 0),
    ),
    _one("Range", sizes="start limit"),
    *_each("Shape Size", _T.GIVES_SIZES),
    _one("Multinomial", _T.RANDOM, element_type=TypeSource("dtype", ir.DataType.INT32)),
    *(
        _one(name, _T.RANDOM, sizes="shape", element_type=TypeSource("dtype", ir.DataType.FLOAT))
        for name in ("RandomNormal", "RandomUniform")
    ),
    *(
        _one(
            name,
            _T.RANDOM,
            _T.READS_SHAPE,
            _T.KEEPS_SHAPE,
            element_type=TypeSource("dtype", 0),
        )
        for name in ("RandomNormalLike", "RandomUniformLike")
    ),
    *(
        _one(name, sizes="size", element_type=TypeSource("output_datatype", ir.DataType.FLOAT))
        for name in ("BlackmanWindow", "HammingWindow", "HannWindow")
    ),
    _one(
        "MelWeightMatrix",
        sizes="num_mel_bins dft_length",
        element_type=TypeSource("output_datatype", ir.DataType.FLOAT),
    ),
)

_ALONG_AXES = (
    *_each(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
        "ReduceProd ReduceSum ReduceSumSquare",
        _T.REDUCES,
    ),
    *_each("ArgMax ArgMin", _T.REDUCES, _T.DECIDES),
    *_each(
        "BatchNormalization GroupNormalization Hardmax InstanceNormalization LRN "
        "LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization "
        "RMSNormalization Softmax",
        _T.NORMALIZES,
    ),
    *_each("CausalConvWithState CumProd CumSum RotaryEmbedding", _T.KEEPS_SHAPE),
    *_each("DequantizeLinear DynamicQuantizeLinear QuantizeLinear", _T.CONVERTS),
    *_each("Conv ConvInteger DeformConv QLinearConv", _T.CONVOLVES),
    *_each("AveragePool LpPool MaxPool", _T.POOLS),
    *_each("GlobalAveragePool GlobalLpPool GlobalMaxPool", _T.KEEPS_AXES),
    _one("TopK", _T.KEEPS_AXES, sizes="k K"),
    _one("Resize", _T.KEEPS_AXES, sizes="scales sizes"),
    _one("Upsample", _T.KEEPS_AXES, sizes="width_scale height_scale scales"),
)

_BY_CONTENT = (
    _one("NonMaxSuppression", _T.COUNTS),
    _one("NonZero", _T.COUNTS, _T.DECIDES),
    *_each("StringNormalizer StringSplit Unique", _T.COUNTS),
)

_BODIES = (
    *_each("If", _T.BRANCHES),
    *_each("Loop Scan", _T.LOOPS),
    *_each("SequenceMap", _T.HAS_BODY),
)

_SIZED = (
    _one("AffineGrid", sizes="size"),
    _one("Col2Im", sizes="image_shape block_shape"),
    _one("DFT", sizes="dft_length"),
    _one("MaxUnpool", sizes="output_shape"),
    _one("RoiAlign", sizes="output_height output_width"),
    _one("SplitToSequence", sizes="split"),
)

_OPAQUE = (
    *_each(
        "Attention ConcatFromSequence ConvTranspose Det Einsum GRU Gemm GridSample ImageDecoder "
        "LSTM LinearAttention MatMul MatMulInteger MaxRoiPool NegativeLogLikelihoodLoss Optional "
        "OptionalGetElement OptionalHasElement QLinearMatMul RNN STFT SequenceAt "
        "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
        "SoftmaxCrossEntropyLoss TfIdfVectorizer",
    ),
)

_ML = (
    *_each("Binarizer Imputer LabelEncoder", _T.ELEMENTWISE, domain="ai.onnx.ml"),
    *_each("Normalizer", _T.NORMALIZES, domain="ai.onnx.ml"),
    *_each("Scaler", _T.KEEPS_SHAPE, domain="ai.onnx.ml"),
    *_each(
        "ArrayFeatureExtractor CastMap CategoryMapper DictVectorizer FeatureVectorizer "
        "LinearClassifier LinearRegressor OneHotEncoder SVMClassifier SVMRegressor TreeEnsemble "
        "TreeEnsembleClassifier TreeEnsembleRegressor ZipMap",
        domain="ai.onnx.ml",
    ),
    *_each("FlexAttention", domain="ai.onnx.preview"),
    *_each("Adagrad Adam Gradient Momentum", domain="ai.onnx.preview.training"),
)

_ONNXRUNTIME = (
    *_each("SimplifiedLayerNormalization", _T.NORMALIZES),
    *_each("SkipLayerNormalization SkipSimplifiedLayerNormalization", _T.NORMALIZES, domain=DOMAIN),
    *_each("FastGelu Gelu QuickGelu", _T.ELEMENTWISE, domain=DOMAIN),
    *_each(
        "BiasAdd BiasDropout BiasGelu BiasSoftmax BranchwiseRMSNorm DequantizeLinear GatedAdd "
        "GatedRMSNorm GroupNorm HyperConnectionPostMix Inverse MRotaryEmbedding MoE "
        "QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QMoE QuantizeLinear RotaryEmbedding "
        "ScaledSiLU SkipGroupNorm",
        _T.KEEPS_SHAPE,
        domain=DOMAIN,
    ),
    *_each(
        "Attention BiasSplitGelu CDist CausalConvWithState ComplexMul ComplexMulConj "
        "ConvTransposeWithDynamicPads CropAndResize DecoderMaskedMultiHeadAttention "
        "DynamicQuantizeMatMul EmbedLayerNormalization EngramGate FusedGemm FusedMatMul "
        "FusedMatMulActivation GatedDeltaNet GatedRelativePositionBias GatherBlockQuantized "
        "GemmFastGelu GemmaRotaryEmbedding GridSample GroupQueryAttention HyperConnectionPreMix "
        "LinearAttention LinearAttentionGate MatMulBnb4 MatMulIntegerToFloat MatMulNBits "
        "MatMulNBitsMlp MatMulNBitsQkv MultiHeadAttention QAttention QEmbedLayerNormalization "
        "QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearMul "
        "QLinearWhere Range RelativePositionBias Rfft SparseAttention SwiGLU UnfoldTensor "
        "VarlenCausalConvWithState",
        domain=DOMAIN,
    ),
    *_each("NhwcMaxPool", _T.POOLS, domain=DOMAIN),
    *_each("FusedConv NhwcConv QLinearConv", _T.CONVOLVES, domain=DOMAIN),
    *_each("Trilu", _T.MOVES, _T.KEEPS_SHAPE, domain=DOMAIN),
)

TRAITS: Table[tuple[str, str], Traits] = Table(
    "traits of an operator",
    [
        *_ELEMENTWISE,
        *_MOVING,
        *_MADE,
        *_ALONG_AXES,
        *_BY_CONTENT,
        *_BODIES,
        *_SIZED,
        *_OPAQUE,
        *_ML,
        *_ONNXRUNTIME,
    ],
)
"""By domain, the default one being `""`, and name."""
