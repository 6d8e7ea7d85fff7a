"""Operators of onnxruntime that decoders are exported with or optimised to.

Most belong to `com.microsoft`. onnxruntime puts some into the default domain, where onnx knows no
such operator, or none yet.
"""

from __future__ import annotations

from onnx_kvtool.ops.contrib_schema import DOMAIN, OperatorName
from onnx_kvtool.runtime.kernels.contrib.attention import attention, q_attention
from onnx_kvtool.runtime.kernels.contrib.branches import (
    branchwise_rms_norm,
    engram_gate,
    hyper_connection_post_mix,
    hyper_connection_pre_mix,
)
from onnx_kvtool.runtime.kernels.contrib.causal_conv import (
    causal_conv_with_state,
    varlen_causal_conv_with_state,
)
from onnx_kvtool.runtime.kernels.contrib.cropped import (
    conv_transpose_with_dynamic_pads,
    crop_and_resize,
)
from onnx_kvtool.runtime.kernels.contrib.embed_layer_normalization import (
    embed_layer_normalization,
    q_embed_layer_normalization,
)
from onnx_kvtool.runtime.kernels.contrib.fused import (
    bias_dropout,
    bias_softmax,
    bias_split_gelu,
    fused_conv,
    fused_gemm,
    fused_mat_mul_activation,
    gemm_fast_gelu,
)
from onnx_kvtool.runtime.kernels.contrib.fused_mat_mul import fused_mat_mul
from onnx_kvtool.runtime.kernels.contrib.gated import (
    gated_add,
    gated_rms_norm,
    scaled_si_lu,
    swi_glu,
)
from onnx_kvtool.runtime.kernels.contrib.gated_delta_net import gated_delta_net
from onnx_kvtool.runtime.kernels.contrib.gather_block_quantized import gather_block_quantized
from onnx_kvtool.runtime.kernels.contrib.gelu import bias_gelu, fast_gelu, gelu, quick_gelu
from onnx_kvtool.runtime.kernels.contrib.grid_sample import grid_sample
from onnx_kvtool.runtime.kernels.contrib.group_query_attention import group_query_attention
from onnx_kvtool.runtime.kernels.contrib.linear_attention import linear_attention
from onnx_kvtool.runtime.kernels.contrib.mat_mul_n_bits import mat_mul_n_bits
from onnx_kvtool.runtime.kernels.contrib.mixture import mo_e, q_mo_e
from onnx_kvtool.runtime.kernels.contrib.multi_head_attention import (
    decoder_masked_multi_head_attention,
    multi_head_attention,
)
from onnx_kvtool.runtime.kernels.contrib.n_bits_fusions import (
    mat_mul_n_bits_mlp,
    mat_mul_n_bits_qkv,
)
from onnx_kvtool.runtime.kernels.contrib.normalization import (
    layer_normalization,
    simplified_layer_normalization,
    skip_layer_normalization,
    skip_simplified_layer_normalization,
)
from onnx_kvtool.runtime.kernels.contrib.older import (
    c_dist,
    complex_mul,
    complex_mul_conj,
    inverse,
    range_,
    rfft,
    trilu,
    unfold_tensor,
)
from onnx_kvtool.runtime.kernels.contrib.picture import (
    bias_add,
    group_norm,
    nhwc_conv,
    nhwc_max_pool,
    skip_group_norm,
)
from onnx_kvtool.runtime.kernels.contrib.q_linear import (
    q_linear_add,
    q_linear_average_pool,
    q_linear_concat,
    q_linear_conv,
    q_linear_global_average_pool,
    q_linear_leaky_relu,
    q_linear_mul,
    q_linear_sigmoid,
    q_linear_softmax,
    q_linear_where,
)
from onnx_kvtool.runtime.kernels.contrib.quantized import (
    dequantize_linear,
    dynamic_quantize_mat_mul,
    mat_mul_bnb4,
    mat_mul_integer_to_float,
    q_gemm,
    quantize_linear,
)
from onnx_kvtool.runtime.kernels.contrib.recurrent_gates import linear_attention_gate
from onnx_kvtool.runtime.kernels.contrib.relative_position import (
    gated_relative_position_bias,
    relative_position_bias,
)
from onnx_kvtool.runtime.kernels.contrib.rotary_embedding import (
    gemma_rotary_embedding,
    m_rotary_embedding,
    rotary_embedding,
)
from onnx_kvtool.runtime.kernels.contrib.sparse_attention import sparse_attention
from onnx_kvtool.runtime.kernels.kernel import Kernel

__all__ = ["CONTRIB_LINES"]

CONTRIB_LINES: tuple[tuple[OperatorName, Kernel], ...] = (
    (("", "LayerNormalization"), Kernel(1, layer_normalization)),
    (("", "SimplifiedLayerNormalization"), Kernel(1, simplified_layer_normalization)),
    ((DOMAIN, "Attention"), Kernel(1, attention)),
    ((DOMAIN, "BiasAdd"), Kernel(1, bias_add)),
    ((DOMAIN, "BiasDropout"), Kernel(1, bias_dropout)),
    ((DOMAIN, "BiasGelu"), Kernel(1, bias_gelu)),
    ((DOMAIN, "BiasSoftmax"), Kernel(1, bias_softmax)),
    ((DOMAIN, "BiasSplitGelu"), Kernel(1, bias_split_gelu)),
    ((DOMAIN, "CausalConvWithState"), Kernel(1, causal_conv_with_state)),
    ((DOMAIN, "CDist"), Kernel(1, c_dist)),
    ((DOMAIN, "ComplexMul"), Kernel(1, complex_mul)),
    ((DOMAIN, "ComplexMulConj"), Kernel(1, complex_mul_conj)),
    ((DOMAIN, "BranchwiseRMSNorm"), Kernel(1, branchwise_rms_norm)),
    ((DOMAIN, "ConvTransposeWithDynamicPads"), Kernel(1, conv_transpose_with_dynamic_pads)),
    ((DOMAIN, "CropAndResize"), Kernel(1, crop_and_resize)),
    ((DOMAIN, "DecoderMaskedMultiHeadAttention"), Kernel(1, decoder_masked_multi_head_attention)),
    ((DOMAIN, "DequantizeLinear"), Kernel(1, dequantize_linear)),
    ((DOMAIN, "DynamicQuantizeMatMul"), Kernel(1, dynamic_quantize_mat_mul)),
    ((DOMAIN, "EmbedLayerNormalization"), Kernel(1, embed_layer_normalization)),
    ((DOMAIN, "EngramGate"), Kernel(1, engram_gate)),
    ((DOMAIN, "FastGelu"), Kernel(1, fast_gelu)),
    ((DOMAIN, "FusedConv"), Kernel(1, fused_conv)),
    ((DOMAIN, "FusedGemm"), Kernel(1, fused_gemm)),
    ((DOMAIN, "FusedMatMul"), Kernel(1, fused_mat_mul)),
    ((DOMAIN, "GatedRelativePositionBias"), Kernel(1, gated_relative_position_bias)),
    ((DOMAIN, "FusedMatMulActivation"), Kernel(1, fused_mat_mul_activation)),
    ((DOMAIN, "GatedAdd"), Kernel(1, gated_add)),
    ((DOMAIN, "GatedDeltaNet"), Kernel(1, gated_delta_net)),
    ((DOMAIN, "GatedRMSNorm"), Kernel(1, gated_rms_norm)),
    ((DOMAIN, "GatherBlockQuantized"), Kernel(1, gather_block_quantized)),
    ((DOMAIN, "Gelu"), Kernel(1, gelu)),
    ((DOMAIN, "GemmaRotaryEmbedding"), Kernel(1, gemma_rotary_embedding)),
    ((DOMAIN, "GemmFastGelu"), Kernel(1, gemm_fast_gelu)),
    ((DOMAIN, "GridSample"), Kernel(1, grid_sample)),
    ((DOMAIN, "GroupNorm"), Kernel(1, group_norm)),
    ((DOMAIN, "GroupQueryAttention"), Kernel(1, group_query_attention)),
    ((DOMAIN, "HyperConnectionPostMix"), Kernel(1, hyper_connection_post_mix)),
    ((DOMAIN, "HyperConnectionPreMix"), Kernel(1, hyper_connection_pre_mix)),
    ((DOMAIN, "Inverse"), Kernel(1, inverse)),
    ((DOMAIN, "LinearAttention"), Kernel(1, linear_attention)),
    ((DOMAIN, "LinearAttentionGate"), Kernel(1, linear_attention_gate)),
    ((DOMAIN, "MRotaryEmbedding"), Kernel(1, m_rotary_embedding)),
    ((DOMAIN, "MatMulBnb4"), Kernel(1, mat_mul_bnb4)),
    ((DOMAIN, "MatMulIntegerToFloat"), Kernel(1, mat_mul_integer_to_float)),
    ((DOMAIN, "MatMulNBits"), Kernel(1, mat_mul_n_bits)),
    ((DOMAIN, "MatMulNBitsMlp"), Kernel(1, mat_mul_n_bits_mlp)),
    ((DOMAIN, "MatMulNBitsQkv"), Kernel(1, mat_mul_n_bits_qkv)),
    ((DOMAIN, "MoE"), Kernel(1, mo_e)),
    ((DOMAIN, "MultiHeadAttention"), Kernel(1, multi_head_attention)),
    ((DOMAIN, "NhwcConv"), Kernel(1, nhwc_conv)),
    ((DOMAIN, "NhwcMaxPool"), Kernel(1, nhwc_max_pool)),
    ((DOMAIN, "QAttention"), Kernel(1, q_attention)),
    ((DOMAIN, "QEmbedLayerNormalization"), Kernel(1, q_embed_layer_normalization)),
    ((DOMAIN, "QGemm"), Kernel(1, q_gemm)),
    ((DOMAIN, "QLinearAdd"), Kernel(1, q_linear_add)),
    ((DOMAIN, "QLinearAveragePool"), Kernel(1, q_linear_average_pool)),
    ((DOMAIN, "QLinearConcat"), Kernel(1, q_linear_concat)),
    ((DOMAIN, "QLinearConv"), Kernel(1, q_linear_conv)),
    ((DOMAIN, "QLinearGlobalAveragePool"), Kernel(1, q_linear_global_average_pool)),
    ((DOMAIN, "QLinearLeakyRelu"), Kernel(1, q_linear_leaky_relu)),
    ((DOMAIN, "QLinearMul"), Kernel(1, q_linear_mul)),
    ((DOMAIN, "QLinearSigmoid"), Kernel(1, q_linear_sigmoid)),
    ((DOMAIN, "QLinearSoftmax"), Kernel(1, q_linear_softmax)),
    ((DOMAIN, "QLinearWhere"), Kernel(1, q_linear_where)),
    ((DOMAIN, "QMoE"), Kernel(1, q_mo_e)),
    ((DOMAIN, "QuantizeLinear"), Kernel(1, quantize_linear)),
    ((DOMAIN, "QuickGelu"), Kernel(1, quick_gelu)),
    ((DOMAIN, "Range"), Kernel(1, range_)),
    ((DOMAIN, "RelativePositionBias"), Kernel(1, relative_position_bias)),
    ((DOMAIN, "Rfft"), Kernel(1, rfft)),
    ((DOMAIN, "RotaryEmbedding"), Kernel(1, rotary_embedding)),
    ((DOMAIN, "ScaledSiLU"), Kernel(1, scaled_si_lu)),
    ((DOMAIN, "SkipGroupNorm"), Kernel(1, skip_group_norm)),
    ((DOMAIN, "SkipLayerNormalization"), Kernel(1, skip_layer_normalization)),
    ((DOMAIN, "SkipSimplifiedLayerNormalization"), Kernel(1, skip_simplified_layer_normalization)),
    ((DOMAIN, "SparseAttention"), Kernel(1, sparse_attention)),
    ((DOMAIN, "SwiGLU"), Kernel(1, swi_glu)),
    ((DOMAIN, "Trilu"), Kernel(1, trilu)),
    ((DOMAIN, "UnfoldTensor"), Kernel(1, unfold_tensor)),
    ((DOMAIN, "VarlenCausalConvWithState"), Kernel(1, varlen_causal_conv_with_state)),
)
"""Operators that onnx does not define, by domain and name, with their kernels; one version each."""
