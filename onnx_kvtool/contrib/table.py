"""The standard form of each operator of onnxruntime, and what writes the operator."""

from __future__ import annotations

from onnx_kvtool.contrib import (
    activation,
    block_quantized,
    branches,
    normalization,
    older,
    picture,
    product,
    quantized,
    renamed,
)
from onnx_kvtool.contrib.causal_conv import (
    causal_conv_with_state,
    varlen_causal_conv_with_state,
)
from onnx_kvtool.contrib.experts import mixture_of_experts, quantized_mixture_of_experts
from onnx_kvtool.contrib.group_query_attention import group_query_attention, sparse_attention
from onnx_kvtool.contrib.linear_attention import gated_delta_net, linear_attention
from onnx_kvtool.contrib.multi_head_attention import (
    attention,
    decoder_masked_multi_head_attention,
    multi_head_attention,
    q_attention,
)
from onnx_kvtool.contrib.older import inverse
from onnx_kvtool.contrib.positions import (
    gated_relative_position_bias,
    gemma_rotary_embedding,
    m_rotary_embedding,
    relative_position_bias,
    rotary_embedding,
)
from onnx_kvtool.contrib.quantized import mat_mul_bnb4, mat_mul_n_bits_mlp, mat_mul_n_bits_qkv
from onnx_kvtool.contrib.recurrence import linear_attention_gate
from onnx_kvtool.contrib.rule import ContribRule
from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib import DOMAIN, OperatorName

# What writes an operator today. Operators that nothing writes stand in `without`.
_SESSION = "onnxruntime 1.32: its optimiser"
_TRANSFORMERS = "onnxruntime 1.32: `onnxruntime.transformers`"
_QUANTIZER = "onnxruntime 1.32: `onnxruntime.quantization`"
_TORCH = "onnxruntime 1.32: `onnxruntime.tools.pytorch_export_contrib_ops`"
_BUILDER = "onnxruntime-genai 0.18: its model builder"
_LATER = "onnxruntime-genai: its model builder after 0.18"
_TF2ONNX = "tf2onnx 1.17: `--extra_opset com.microsoft:1`"
_SKL2ONNX = "skl2onnx 1.19: `optim='cdist'`"
_PHYSICS = "PhysicsNeMo 2.1"
_YOBX = "yet-another-onnx-builder 0.1: its optimiser"

CONTRIB_RULES: Table[OperatorName, ContribRule] = Table(
    "contrib rule",
    [
        (("", rule.operator), rule)
        for rule in (
            ContribRule("LayerNormalization", normalization.layer_normalization, _SESSION),
            ContribRule(
                "SimplifiedLayerNormalization",
                normalization.simplified_layer_normalization,
                _SESSION,
            ),
        )
    ]
    + [
        ((DOMAIN, rule.operator), rule)
        for rule in (
            ContribRule("Attention", attention, _TRANSFORMERS),
            ContribRule("BiasAdd", picture.bias_add, _TRANSFORMERS),
            ContribRule("BiasDropout", activation.bias_dropout, _SESSION),
            ContribRule("BiasGelu", activation.bias_gelu, _SESSION),
            ContribRule("BiasSoftmax", activation.bias_softmax, _SESSION),
            ContribRule("BiasSplitGelu", activation.bias_split_gelu, _TRANSFORMERS),
            ContribRule("CausalConvWithState", causal_conv_with_state, _BUILDER),
            ContribRule("CDist", older.c_dist, _SKL2ONNX),
            ContribRule("ComplexMul", older.complex_mul, _YOBX),
            ContribRule("ComplexMulConj", older.complex_mul_conj, _YOBX),
            ContribRule("BranchwiseRMSNorm", branches.branchwise_rms_norm, _LATER),
            ContribRule(
                "ConvTransposeWithDynamicPads", picture.conv_transpose_with_dynamic_pads, _TF2ONNX
            ),
            ContribRule("CropAndResize", picture.crop_and_resize, _TF2ONNX),
            ContribRule(
                "DecoderMaskedMultiHeadAttention",
                decoder_masked_multi_head_attention,
                _TRANSFORMERS,
            ),
            ContribRule("DequantizeLinear", quantized.dequantize_linear, _QUANTIZER),
            ContribRule("DynamicQuantizeMatMul", quantized.dynamic_quantize_mat_mul, _SESSION),
            ContribRule(
                "EmbedLayerNormalization", normalization.embed_layer_normalization, _SESSION
            ),
            ContribRule("EngramGate", branches.engram_gate, _LATER),
            ContribRule("FastGelu", activation.fast_gelu, _SESSION),
            ContribRule("FusedConv", product.fused_conv, _SESSION),
            ContribRule("FusedGemm", product.fused_gemm, _SESSION),
            ContribRule("FusedMatMul", product.fused_mat_mul, _SESSION),
            ContribRule("GatedRelativePositionBias", gated_relative_position_bias, _YOBX),
            ContribRule("FusedMatMulActivation", product.fused_mat_mul_activation, _SESSION),
            ContribRule("GatedAdd", activation.gated_add, _BUILDER),
            ContribRule("GatedDeltaNet", gated_delta_net, _BUILDER),
            ContribRule("GatedRMSNorm", activation.gated_rms_norm, _BUILDER),
            ContribRule("GatherBlockQuantized", block_quantized.gather_block_quantized, _BUILDER),
            ContribRule("Gelu", activation.gelu, _SESSION),
            ContribRule("GemmaRotaryEmbedding", gemma_rotary_embedding, _YOBX),
            ContribRule("GemmFastGelu", activation.gemm_fast_gelu, _TRANSFORMERS),
            ContribRule("GridSample", renamed.grid_sample, _TORCH),
            ContribRule("GroupNorm", picture.group_norm, _TRANSFORMERS),
            ContribRule("GroupQueryAttention", group_query_attention, _BUILDER),
            ContribRule("HyperConnectionPostMix", branches.hyper_connection_post_mix, _LATER),
            ContribRule("HyperConnectionPreMix", branches.hyper_connection_pre_mix, _LATER),
            ContribRule("Inverse", inverse, _TORCH),
            ContribRule("LinearAttention", linear_attention, _BUILDER),
            ContribRule("LinearAttentionGate", linear_attention_gate, _BUILDER),
            ContribRule("MRotaryEmbedding", m_rotary_embedding, _BUILDER),
            ContribRule("MatMulBnb4", mat_mul_bnb4, _QUANTIZER),
            ContribRule("MatMulIntegerToFloat", quantized.mat_mul_integer_to_float, _SESSION),
            ContribRule("MatMulNBits", block_quantized.mat_mul_n_bits, _QUANTIZER),
            ContribRule("MatMulNBitsMlp", mat_mul_n_bits_mlp, _SESSION),
            ContribRule("MatMulNBitsQkv", mat_mul_n_bits_qkv, _SESSION),
            ContribRule("MoE", mixture_of_experts, _BUILDER),
            ContribRule("MultiHeadAttention", multi_head_attention, _TRANSFORMERS),
            ContribRule("NhwcConv", product.nhwc_conv, _TRANSFORMERS),
            ContribRule("NhwcMaxPool", picture.nhwc_max_pool, _SESSION),
            ContribRule("QAttention", q_attention, _QUANTIZER),
            ContribRule(
                "QEmbedLayerNormalization", normalization.q_embed_layer_normalization, _QUANTIZER
            ),
            ContribRule("QGemm", quantized.q_gemm, _QUANTIZER),
            ContribRule("QLinearAdd", quantized.q_linear_add, _QUANTIZER),
            ContribRule("QLinearAveragePool", quantized.q_linear_average_pool, _QUANTIZER),
            ContribRule("QLinearConcat", quantized.q_linear_concat, _QUANTIZER),
            ContribRule("QLinearConv", quantized.q_linear_conv, _SESSION),
            ContribRule(
                "QLinearGlobalAveragePool", quantized.q_linear_global_average_pool, _QUANTIZER
            ),
            ContribRule("QLinearLeakyRelu", quantized.q_linear_leaky_relu, _QUANTIZER),
            ContribRule("QLinearMul", quantized.q_linear_mul, _QUANTIZER),
            ContribRule("QLinearSigmoid", quantized.q_linear_sigmoid, _QUANTIZER),
            ContribRule("QLinearSoftmax", quantized.q_linear_softmax, _QUANTIZER),
            ContribRule("QLinearWhere", quantized.q_linear_where, _QUANTIZER),
            ContribRule("QMoE", quantized_mixture_of_experts, _BUILDER),
            ContribRule("QuantizeLinear", quantized.quantize_linear, _QUANTIZER),
            ContribRule("QuickGelu", activation.quick_gelu, _SESSION),
            ContribRule("Range", renamed.range_, _TF2ONNX),
            ContribRule("RelativePositionBias", relative_position_bias, _TRANSFORMERS),
            ContribRule("Rfft", older.rfft, _PHYSICS),
            ContribRule("RotaryEmbedding", rotary_embedding, _BUILDER),
            ContribRule("ScaledSiLU", activation.scaled_silu, _LATER),
            ContribRule("SkipGroupNorm", picture.skip_group_norm, _TRANSFORMERS),
            ContribRule("SkipLayerNormalization", normalization.skip_layer_normalization, _SESSION),
            ContribRule(
                "SkipSimplifiedLayerNormalization",
                normalization.skip_simplified_layer_normalization,
                _SESSION,
            ),
            ContribRule("SparseAttention", sparse_attention, _BUILDER),
            ContribRule("SwiGLU", activation.swiglu, _SESSION),
            ContribRule("Trilu", renamed.trilu, _TORCH),
            ContribRule("UnfoldTensor", older.unfold_tensor, _TORCH),
            ContribRule("VarlenCausalConvWithState", varlen_causal_conv_with_state, _BUILDER),
        )
    ],
)
"""By domain and name."""
