"""The standard form of each operator of onnxruntime, and what writes the operator."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.contrib import (
    activation,
    block_quantized,
    branches,
    causal_conv,
    experts,
    group_query_attention,
    linear_attention,
    multi_head_attention,
    normalization,
    older,
    picture,
    position_encodings,
    product,
    quantized,
    recurrence,
)
from onnx_kvtool.contrib.rule import ContribRule, Form
from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.contrib import DOMAIN, OperatorName

# Operators that nothing writes are listed in `without`.
_FORMS: Mapping[str, Mapping[str, Form]] = {
    "onnxruntime 1.32: its optimiser": {
        "BiasDropout": activation.bias_dropout,
        "BiasGelu": activation.bias_gelu,
        "BiasSoftmax": activation.bias_softmax,
        "DynamicQuantizeMatMul": quantized.dynamic_quantize_mat_mul,
        "EmbedLayerNormalization": normalization.embed_layer_normalization,
        "FastGelu": activation.fast_gelu,
        "FusedConv": product.fused_conv,
        "FusedGemm": product.fused_gemm,
        "FusedMatMul": product.fused_mat_mul,
        "FusedMatMulActivation": product.fused_mat_mul_activation,
        "Gelu": activation.gelu,
        "LayerNormalization": normalization.layer_normalization,
        "MatMulIntegerToFloat": quantized.mat_mul_integer_to_float,
        "MatMulNBitsMlp": quantized.mat_mul_n_bits_mlp,
        "MatMulNBitsQkv": quantized.mat_mul_n_bits_qkv,
        "NhwcMaxPool": picture.nhwc_max_pool,
        "QLinearConv": quantized.q_linear_conv,
        "QuickGelu": activation.quick_gelu,
        "SimplifiedLayerNormalization": normalization.simplified_layer_normalization,
        "SkipLayerNormalization": normalization.skip_layer_normalization,
        "SkipSimplifiedLayerNormalization": normalization.skip_simplified_layer_normalization,
        "SwiGLU": activation.swiglu,
    },
    "onnxruntime 1.32: `onnxruntime.transformers`": {
        "Attention": multi_head_attention.attention,
        "BiasAdd": picture.bias_add,
        "BiasSplitGelu": activation.bias_split_gelu,
        "DecoderMaskedMultiHeadAttention": multi_head_attention.decoder_masked_multi_head_attention,
        "GemmFastGelu": activation.gemm_fast_gelu,
        "GroupNorm": picture.group_norm,
        "MultiHeadAttention": multi_head_attention.multi_head_attention,
        "NhwcConv": product.nhwc_conv,
        "RelativePositionBias": position_encodings.relative_position_bias,
        "SkipGroupNorm": picture.skip_group_norm,
    },
    "onnxruntime 1.32: `onnxruntime.quantization`": {
        "DequantizeLinear": quantized.dequantize_linear,
        "MatMulBnb4": quantized.mat_mul_bnb4,
        "MatMulNBits": block_quantized.mat_mul_n_bits,
        "QAttention": multi_head_attention.q_attention,
        "QEmbedLayerNormalization": normalization.q_embed_layer_normalization,
        "QGemm": quantized.q_gemm,
        "QLinearAdd": quantized.q_linear_add,
        "QLinearAveragePool": quantized.q_linear_average_pool,
        "QLinearConcat": quantized.q_linear_concat,
        "QLinearGlobalAveragePool": quantized.q_linear_global_average_pool,
        "QLinearLeakyRelu": quantized.q_linear_leaky_relu,
        "QLinearMul": quantized.q_linear_mul,
        "QLinearSigmoid": quantized.q_linear_sigmoid,
        "QLinearSoftmax": quantized.q_linear_softmax,
        "QLinearWhere": quantized.q_linear_where,
        "QuantizeLinear": quantized.quantize_linear,
    },
    "onnxruntime 1.32: `onnxruntime.tools.pytorch_export_contrib_ops`": {
        "GridSample": older.grid_sample,
        "Inverse": older.inverse,
        "Trilu": older.trilu,
        "UnfoldTensor": older.unfold_tensor,
    },
    "onnxruntime-genai 0.18: its model builder": {
        "CausalConvWithState": causal_conv.causal_conv_with_state,
        "GatedAdd": activation.gated_add,
        "GatedDeltaNet": linear_attention.gated_delta_net,
        "GatedRMSNorm": activation.gated_rms_norm,
        "GatherBlockQuantized": block_quantized.gather_block_quantized,
        "GroupQueryAttention": group_query_attention.group_query_attention,
        "LinearAttention": linear_attention.linear_attention,
        "LinearAttentionGate": recurrence.linear_attention_gate,
        "MRotaryEmbedding": position_encodings.m_rotary_embedding,
        "MoE": experts.mixture_of_experts,
        "QMoE": experts.quantized_mixture_of_experts,
        "RotaryEmbedding": position_encodings.rotary_embedding,
        "SparseAttention": group_query_attention.sparse_attention,
        "VarlenCausalConvWithState": causal_conv.varlen_causal_conv_with_state,
    },
    "onnxruntime-genai: its model builder after 0.18": {
        "BranchwiseRMSNorm": branches.branchwise_rms_norm,
        "EngramGate": branches.engram_gate,
        "HyperConnectionPostMix": branches.hyper_connection_post_mix,
        "HyperConnectionPreMix": branches.hyper_connection_pre_mix,
        "ScaledSiLU": activation.scaled_silu,
    },
    "tf2onnx 1.17: `--extra_opset com.microsoft:1`": {
        "ConvTransposeWithDynamicPads": picture.conv_transpose_with_dynamic_pads,
        "CropAndResize": picture.crop_and_resize,
        "Range": older.range_,
    },
    "skl2onnx 1.19: `optim='cdist'`": {
        "CDist": older.c_dist,
    },
    "PhysicsNeMo 2.1": {
        "Rfft": older.rfft,
    },
    "yet-another-onnx-builder 0.1: its optimiser": {
        "ComplexMul": older.complex_mul,
        "ComplexMulConj": older.complex_mul_conj,
        "GatedRelativePositionBias": position_encodings.gated_relative_position_bias,
        "GemmaRotaryEmbedding": position_encodings.gemma_rotary_embedding,
    },
}
"""Forms by operator, and by what writes the operator today."""

_WITHOUT_DOMAIN = ("LayerNormalization", "SimplifiedLayerNormalization")

CONTRIB_RULES: Table[OperatorName, ContribRule] = Table(
    "contrib rule",
    [
        (("" if operator in _WITHOUT_DOMAIN else DOMAIN, operator), ContribRule(form, producer))
        for producer, forms in _FORMS.items()
        for operator, form in forms.items()
    ],
)
"""By domain and name."""
