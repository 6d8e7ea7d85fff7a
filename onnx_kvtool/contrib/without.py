"""Operators of onnxruntime without a rule, and why; the table has all others."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.contrib import DOMAIN, OperatorName

_FUSED = "is a fusion for GPUs, which onnxruntime makes of operators that have rules"
_GPU = "runs on GPUs alone, and nothing that runs on a CPU is exported with it"
_TRAINING = "is written for training"
_PAGED = "keeps its cache in pages that its host allocates, or selects the keys that it attends to"
_PACKED = "takes tokens without padding, of sequences that a list of lengths tells apart"
_ORDERED = "computes on quantized values in a memory order for GPUs, which no tensor of ONNX has"
_LAYOUT = "reads weights that were packed for one kernel"
_FLOATS = "multiplies blocks of floats of 8 bits or fewer, and ONNX has no such product"
_GENERATES = "is a loop that generates tokens with decoders inside: convert these"
_TEXT = "computes on tokens or text, in front of or behind a decoder"
_RECURRENT = (
    "keeps the state of a recurrence or a convolution, which has no rule, though onnxruntime has a "
    "kernel for CPUs"
)
_OLD = "is for internal use by its documentation, which says nothing of its mask"
_DEVICE = "contains a program for one device"
_COPY = "is put in by onnxruntime when it loads a model for several devices"
_UNWRITTEN = "is written by no exporter, optimiser or builder that is known"
_EXPERIMENTAL = (
    "was an experimental operator of ONNX before version 1.5, and onnxruntime has no kernel for it"
)
_PLUGIN = "is a plugin of TensorRT"

_GROUPS = {
    DOMAIN: {
        _FUSED: "GemmFloat8 MatMulNBitsQLoRA NhwcFusedConv",
        _GPU: "DecoderAttention DecoderMaskedSelfAttention LongformerAttention MoEPacked",
        "is a transform whose documentation and kernel differ in the number of elements": "Irfft",
        _TRAINING: "BitmaskBiasDropout BitmaskDropout",
        _PAGED: "DynamicSparseAttention PackedSparseAttentionIndexer "
        "PackedSparseAttentionIndexerMerge PagedAttention SparseAttentionIndexer "
        "SparsePagedAttention",
        _PACKED: "PackedAttention PackedMultiHeadAttention RemovePadding RestorePadding",
        _ORDERED: "DequantizeWithOrder QOrderedAttention QOrderedGelu QOrderedLayerNormalization "
        "QOrderedLongformerAttention QOrderedMatMul QuantizeWithOrder",
        _LAYOUT: "GatherPacked MatMulFpQ4 MatMulPacked SparseToDenseMatMul",
        _FLOATS: "DequantizeBFP MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight "
        "QuantizeBFP",
        _GENERATES: "BeamSearch GreedySearch Sampling WhisperBeamSearch",
        _TEXT: "BifurcationDetector DynamicTimeWarping MurmurHash3 NGramHashMapping "
        "NGramRepeatBlock SpeculativePrefixCommit Tokenizer VarlenNGramHashMapping "
        "WordConvEmbedding",
        _RECURRENT: "AttnLSTM DynamicQuantizeLSTM",
        "keeps the state of a recurrence for tokens that may be taken back, on GPUs alone": (
            "ConvStateReplay GatedDeltaNetStateReplay Mamba2Verify"
        ),
        _OLD: "MaxpoolWithMask",
        "is a sample for who writes operators": "SampleOp",
        _DEVICE: "EPContext Snpe",
        _UNWRITTEN: "ExpandDims GatherND HyperConnectionLowRankMix IsAllFinite MatMulInteger16 "
        "MoEGroupRouter MulInteger Pad QLinearReduceMean RMSNormRotary ReduceSumInteger "
        "RouterGateUpProj TorchEmbedding TransposeMatMul Unique",
    },
    "": {
        _COPY: "MemcpyFromHost MemcpyToHost",
        _EXPERIMENTAL: "GRUUnit GivenTensorFill",
        "was an experimental operator of ONNX before version 1.5, which nothing writes any more": (
            "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh"
        ),
        _PLUGIN: "DisentangledAttention_TRT EfficientNMS_TRT MultilevelCropAndResize_TRT "
        "PyramidROIAlign_TRT",
    },
}


def _lines() -> Iterator[tuple[OperatorName, str]]:
    for domain, groups in _GROUPS.items():
        for why, names in groups.items():
            yield from (((domain, name), why) for name in names.split())


WITHOUT_A_RULE: Table[OperatorName, str] = Table(
    "contrib operator without a rule", sorted(_lines())
)
"""By domain and name, a clause that follows the name of the operator."""
