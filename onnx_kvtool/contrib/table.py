"""The table of rules for operators of onnxruntime, common to `lower` and `raise`."""

from __future__ import annotations

from onnx_kvtool.contrib import (
    activation,
    block_quantized,
    branches,
    codes,
    cropped,
    gated,
    normalization,
    older,
    picture,
    product,
    quantized_product,
    renamed,
)
from onnx_kvtool.contrib.attention import attention, q_attention
from onnx_kvtool.contrib.bnb4 import mat_mul_bnb4
from onnx_kvtool.contrib.causal_conv import (
    causal_conv_with_state,
    varlen_causal_conv_with_state,
)
from onnx_kvtool.contrib.gated_delta_net import gated_delta_net
from onnx_kvtool.contrib.group_query_attention import group_query_attention
from onnx_kvtool.contrib.inverse import inverse
from onnx_kvtool.contrib.linear_attention import linear_attention
from onnx_kvtool.contrib.mixture import (
    mixture_of_experts,
    quantized_mixture_of_experts,
)
from onnx_kvtool.contrib.multi_head_attention import (
    decoder_masked_multi_head_attention,
    multi_head_attention,
)
from onnx_kvtool.contrib.n_bits_fusions import mat_mul_n_bits_mlp, mat_mul_n_bits_qkv
from onnx_kvtool.contrib.recurrent_gates import linear_attention_gate
from onnx_kvtool.contrib.relative_position import (
    gated_relative_position_bias,
    relative_position_bias,
)
from onnx_kvtool.contrib.rotary import (
    gemma_rotary_embedding,
    m_rotary_embedding,
    rotary_embedding,
)
from onnx_kvtool.contrib.rule import ContribRule
from onnx_kvtool.contrib.sparse_attention import sparse_attention
from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib_schema import DOMAIN, OperatorName

__all__ = ["CONTRIB_RULES"]

CONTRIB_RULES: Table[OperatorName, ContribRule] = Table(
    "contrib rule",
    [
        (("", rule.operator), rule)
        for rule in (
            ContribRule("LayerNormalization", normalization.layer_normalization),
            ContribRule(
                "SimplifiedLayerNormalization", normalization.simplified_layer_normalization
            ),
        )
    ]
    + [
        ((DOMAIN, rule.operator), rule)
        for rule in (
            ContribRule("Attention", attention),
            ContribRule("BiasAdd", picture.bias_add),
            ContribRule("BiasDropout", activation.bias_dropout),
            ContribRule("BiasGelu", activation.bias_gelu),
            ContribRule("BiasSoftmax", activation.bias_softmax),
            ContribRule("BiasSplitGelu", activation.bias_split_gelu),
            ContribRule("CausalConvWithState", causal_conv_with_state),
            ContribRule("CDist", older.c_dist),
            ContribRule("ComplexMul", older.complex_mul),
            ContribRule("ComplexMulConj", older.complex_mul_conj),
            ContribRule("BranchwiseRMSNorm", branches.branchwise_rms_norm),
            ContribRule("ConvTransposeWithDynamicPads", cropped.conv_transpose_with_dynamic_pads),
            ContribRule("CropAndResize", cropped.crop_and_resize),
            ContribRule("DecoderMaskedMultiHeadAttention", decoder_masked_multi_head_attention),
            ContribRule("DequantizeLinear", codes.dequantize_linear),
            ContribRule("DynamicQuantizeMatMul", quantized_product.dynamic_quantize_mat_mul),
            ContribRule("EmbedLayerNormalization", normalization.embed_layer_normalization),
            ContribRule("EngramGate", branches.engram_gate),
            ContribRule("FastGelu", activation.fast_gelu),
            ContribRule("FusedConv", product.fused_conv),
            ContribRule("FusedGemm", product.fused_gemm),
            ContribRule("FusedMatMul", product.fused_mat_mul),
            ContribRule("GatedRelativePositionBias", gated_relative_position_bias),
            ContribRule("FusedMatMulActivation", product.fused_mat_mul_activation),
            ContribRule("GatedAdd", gated.gated_add),
            ContribRule("GatedDeltaNet", gated_delta_net),
            ContribRule("GatedRMSNorm", gated.gated_rms_norm),
            ContribRule("GatherBlockQuantized", block_quantized.gather_block_quantized),
            ContribRule("Gelu", activation.gelu),
            ContribRule("GemmaRotaryEmbedding", gemma_rotary_embedding),
            ContribRule("GemmFastGelu", activation.gemm_fast_gelu),
            ContribRule("GridSample", renamed.grid_sample),
            ContribRule("GroupNorm", picture.group_norm),
            ContribRule("GroupQueryAttention", group_query_attention),
            ContribRule("HyperConnectionPostMix", branches.hyper_connection_post_mix),
            ContribRule("HyperConnectionPreMix", branches.hyper_connection_pre_mix),
            ContribRule("Inverse", inverse),
            ContribRule("LinearAttention", linear_attention),
            ContribRule("LinearAttentionGate", linear_attention_gate),
            ContribRule("MRotaryEmbedding", m_rotary_embedding),
            ContribRule("MatMulBnb4", mat_mul_bnb4),
            ContribRule("MatMulIntegerToFloat", quantized_product.mat_mul_integer_to_float),
            ContribRule("MatMulNBits", block_quantized.mat_mul_n_bits),
            ContribRule("MatMulNBitsMlp", mat_mul_n_bits_mlp),
            ContribRule("MatMulNBitsQkv", mat_mul_n_bits_qkv),
            ContribRule("MoE", mixture_of_experts),
            ContribRule("MultiHeadAttention", multi_head_attention),
            ContribRule("NhwcConv", product.nhwc_conv),
            ContribRule("NhwcMaxPool", picture.nhwc_max_pool),
            ContribRule("QAttention", q_attention),
            ContribRule("QEmbedLayerNormalization", normalization.q_embed_layer_normalization),
            ContribRule("QGemm", quantized_product.q_gemm),
            ContribRule("QLinearAdd", codes.q_linear_add),
            ContribRule("QLinearAveragePool", codes.q_linear_average_pool),
            ContribRule("QLinearConcat", codes.q_linear_concat),
            ContribRule("QLinearConv", codes.q_linear_conv),
            ContribRule("QLinearGlobalAveragePool", codes.q_linear_global_average_pool),
            ContribRule("QLinearLeakyRelu", codes.q_linear_leaky_relu),
            ContribRule("QLinearMul", codes.q_linear_mul),
            ContribRule("QLinearSigmoid", codes.q_linear_sigmoid),
            ContribRule("QLinearSoftmax", codes.q_linear_softmax),
            ContribRule("QLinearWhere", codes.q_linear_where),
            ContribRule("QMoE", quantized_mixture_of_experts),
            ContribRule("QuantizeLinear", codes.quantize_linear),
            ContribRule("QuickGelu", activation.quick_gelu),
            ContribRule("Range", renamed.range_),
            ContribRule("RelativePositionBias", relative_position_bias),
            ContribRule("Rfft", older.rfft),
            ContribRule("RotaryEmbedding", rotary_embedding),
            ContribRule("ScaledSiLU", gated.scaled_silu),
            ContribRule("SkipGroupNorm", picture.skip_group_norm),
            ContribRule("SkipLayerNormalization", normalization.skip_layer_normalization),
            ContribRule(
                "SkipSimplifiedLayerNormalization",
                normalization.skip_simplified_layer_normalization,
            ),
            ContribRule("SparseAttention", sparse_attention),
            ContribRule("SwiGLU", gated.swiglu),
            ContribRule("Trilu", renamed.trilu),
            ContribRule("UnfoldTensor", older.unfold_tensor),
            ContribRule("VarlenCausalConvWithState", varlen_causal_conv_with_state),
        )
    ],
)
"""By domain and name."""
