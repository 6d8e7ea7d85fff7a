"""The traits of each operator that kvtool knows, in one line of one table.

All operators of onnx 1.23 are here, the two that are gone (Scatter, Upsample) included, and those
of onnxruntime whose schemas stand in `contrib_schemas.json`. An operator that only
computes in a way of its own is opaque, and is listed as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import onnx_ir as ir

from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.contrib import DOMAIN
from onnx_kvtool.ops.traits import Trait, Traits, TypeSource

_Name = tuple[str, str]


def _each(
    names: str,
    kinds: str = "",
    *,
    domain: str = "",
    sizes: str = "",
    positions: str | None = None,
    element_type: TypeSource | None = None,
) -> Iterator[tuple[_Name, Traits]]:
    """Yield the lines of operators; names and kinds have spaces between them."""
    traits = [Trait[kind] for kind in kinds.split()]
    given = Traits.of(*traits, sizes=sizes, positions=positions, element_type=element_type)
    return (((domain, name), given) for name in names.split())


TRAITS: Table[_Name, Traits] = Table(
    "traits of an operator",
    chain(
        # Elementwise.
        _each(
            "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Dropout "
            "Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Not PRelu "
            "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt "
            "SwiGLU Swish Tan Tanh ThresholdedRelu",
            "ELEMENTWISE",
        ),
        _each("IsInf IsNaN RegexFullMatch", "ELEMENTWISE DECIDES"),
        _each("Bernoulli", "ELEMENTWISE RANDOM", element_type=TypeSource("dtype", 0)),
        _each("BitCast", "ELEMENTWISE", element_type=TypeSource("to")),
        _each("Cast", "CASTS", element_type=TypeSource("to")),
        _each("CastLike", "CASTS"),
        _each(
            "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Max Mean Min Mod Mul Or Pow "
            "StringConcat Sub Sum Xor",
            "BROADCASTS",
        ),
        _each("Equal Greater GreaterOrEqual Less LessOrEqual", "BROADCASTS DECIDES"),
        _each("Where", "BROADCASTS MOVES"),
        # Moving elements.
        _each("Identity", "SAME"),
        _each("Flatten Squeeze Unsqueeze", "VIEW"),
        _each("Reshape", "VIEW", sizes="shape"),
        _each("DepthToSpace SpaceToDepth Transpose", "REARRANGES"),
        _each("Compress", "PART COUNTS"),
        _each("Gather", "PART", positions="indices"),
        _each("GatherElements", "PART KEEPS_AXES", positions="indices"),
        _each("GatherND", "PART", positions="indices"),
        _each("Slice", "PART KEEPS_AXES"),
        _each("Split", "PART KEEPS_AXES", sizes="split"),
        _each("Expand", "REPEATS", sizes="shape"),
        _each("Tile", "REPEATS KEEPS_AXES", sizes="tiles repeats"),
        _each("Concat", "SHIFTS KEEPS_AXES"),
        _each("CenterCropPad", "SHIFTS KEEPS_AXES", sizes="shape"),
        _each("Pad", "SHIFTS KEEPS_AXES", sizes="paddings pads"),
        _each("ReverseSequence", "SHIFTS KEEPS_SHAPE"),
        _each("Trilu", "MOVES KEEPS_SHAPE"),
        _each("OneHot", "MOVES", sizes="depth", positions="indices"),
        _each("Scatter", "UPDATES", positions="indices"),
        _each("ScatterElements", "UPDATES", positions="indices"),
        _each("ScatterND", "UPDATES", positions="indices"),
        _each("TensorScatter", "UPDATES", positions="write_indices"),
        # Made from nothing but sizes.
        _each("Constant", "FILLS", element_type=TypeSource("value")),
        _each(
            "ConstantOfShape",
            "FILLS",
            sizes="input",
            element_type=TypeSource("value", ir.DataType.FLOAT),
        ),
        _each("EyeLike", "FILLS READS_SHAPE KEEPS_SHAPE", element_type=TypeSource("dtype", 0)),
        _each("Range", sizes="start limit"),
        _each("Shape Size", "GIVES_SIZES"),
        _each("Multinomial", "RANDOM", element_type=TypeSource("dtype", ir.DataType.INT32)),
        _each(
            "RandomNormal RandomUniform",
            "RANDOM",
            sizes="shape",
            element_type=TypeSource("dtype", ir.DataType.FLOAT),
        ),
        _each(
            "RandomNormalLike RandomUniformLike",
            "RANDOM READS_SHAPE KEEPS_SHAPE",
            element_type=TypeSource("dtype", 0),
        ),
        _each(
            "BlackmanWindow HammingWindow HannWindow",
            sizes="size",
            element_type=TypeSource("output_datatype", ir.DataType.FLOAT),
        ),
        _each(
            "MelWeightMatrix",
            sizes="num_mel_bins dft_length",
            element_type=TypeSource("output_datatype", ir.DataType.FLOAT),
        ),
        # Along axes.
        _each(
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
            "ReduceProd ReduceSum ReduceSumSquare",
            "REDUCES",
        ),
        _each("ArgMax ArgMin", "REDUCES DECIDES"),
        _each(
            "BatchNormalization GroupNormalization Hardmax InstanceNormalization LRN "
            "LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization "
            "RMSNormalization Softmax",
            "NORMALIZES",
        ),
        _each("CausalConvWithState CumProd CumSum RotaryEmbedding", "KEEPS_SHAPE"),
        _each("DequantizeLinear DynamicQuantizeLinear QuantizeLinear", "CONVERTS"),
        _each("Conv ConvInteger DeformConv QLinearConv", "CONVOLVES"),
        _each("AveragePool LpPool MaxPool", "POOLS"),
        _each("GlobalAveragePool GlobalLpPool GlobalMaxPool", "KEEPS_AXES"),
        _each("TopK", "KEEPS_AXES", sizes="k K"),
        _each("Resize", "KEEPS_AXES", sizes="scales sizes"),
        _each("Upsample", "KEEPS_AXES", sizes="width_scale height_scale scales"),
        # As many elements as the content says.
        _each("NonMaxSuppression", "COUNTS"),
        _each("NonZero", "COUNTS DECIDES"),
        _each("StringNormalizer StringSplit Unique", "COUNTS"),
        # With bodies.
        _each("If", "BRANCHES"),
        _each("Loop Scan", "LOOPS"),
        _each("SequenceMap", "HAS_BODY"),
        # Opaque, with sizes.
        _each("AffineGrid", sizes="size"),
        _each("Col2Im", sizes="image_shape block_shape"),
        _each("DFT", sizes="dft_length"),
        _each("MaxUnpool", sizes="output_shape"),
        _each("RoiAlign", sizes="output_height output_width"),
        _each("SplitToSequence", sizes="split"),
        # Opaque.
        _each(
            "Attention ConcatFromSequence ConvTranspose Det Einsum GRU Gemm GridSample "
            "ImageDecoder LSTM LinearAttention MatMul MatMulInteger MaxRoiPool "
            "NegativeLogLikelihoodLoss Optional OptionalGetElement OptionalHasElement "
            "QLinearMatMul RNN STFT SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
            "SequenceInsert SequenceLength SoftmaxCrossEntropyLoss TfIdfVectorizer"
        ),
        # Of other domains of ONNX.
        _each("Binarizer Imputer LabelEncoder", "ELEMENTWISE", domain="ai.onnx.ml"),
        _each("Normalizer", "NORMALIZES", domain="ai.onnx.ml"),
        _each("Scaler", "KEEPS_SHAPE", domain="ai.onnx.ml"),
        _each(
            "ArrayFeatureExtractor CastMap CategoryMapper DictVectorizer FeatureVectorizer "
            "LinearClassifier LinearRegressor OneHotEncoder SVMClassifier SVMRegressor "
            "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor ZipMap",
            domain="ai.onnx.ml",
        ),
        _each("FlexAttention", domain="ai.onnx.preview"),
        _each("Adagrad Adam Gradient Momentum", domain="ai.onnx.preview.training"),
        # Of onnxruntime.
        _each("SimplifiedLayerNormalization", "NORMALIZES"),
        _each(
            "SkipLayerNormalization SkipSimplifiedLayerNormalization", "NORMALIZES", domain=DOMAIN
        ),
        _each("FastGelu Gelu QuickGelu", "ELEMENTWISE", domain=DOMAIN),
        _each(
            "BiasAdd BiasDropout BiasGelu BiasSoftmax BranchwiseRMSNorm DequantizeLinear "
            "GatedAdd GatedRMSNorm GroupNorm HyperConnectionPostMix Inverse MRotaryEmbedding "
            "MoE QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QMoE QuantizeLinear "
            "RotaryEmbedding ScaledSiLU SkipGroupNorm",
            "KEEPS_SHAPE",
            domain=DOMAIN,
        ),
        _each(
            "Attention BiasSplitGelu CDist CausalConvWithState ComplexMul ComplexMulConj "
            "ConvTransposeWithDynamicPads CropAndResize DecoderMaskedMultiHeadAttention "
            "DynamicQuantizeMatMul EmbedLayerNormalization EngramGate FusedGemm FusedMatMul "
            "FusedMatMulActivation GatedDeltaNet GatedRelativePositionBias "
            "GatherBlockQuantized GemmFastGelu GemmaRotaryEmbedding GridSample "
            "GroupQueryAttention HyperConnectionPreMix LinearAttention LinearAttentionGate "
            "MatMulBnb4 MatMulIntegerToFloat MatMulNBits MatMulNBitsMlp MatMulNBitsQkv "
            "MultiHeadAttention QAttention QEmbedLayerNormalization QGemm QLinearAdd "
            "QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearMul "
            "QLinearWhere Range RelativePositionBias Rfft SparseAttention SwiGLU UnfoldTensor "
            "VarlenCausalConvWithState",
            domain=DOMAIN,
        ),
        _each("NhwcMaxPool", "POOLS", domain=DOMAIN),
        _each("FusedConv NhwcConv QLinearConv", "CONVOLVES", domain=DOMAIN),
        _each("Trilu", "MOVES KEEPS_SHAPE", domain=DOMAIN),
    ),
)
"""By domain, the default one being `""`, and name."""
