"""The table of rules for operators of onnxruntime, common to `lower` and `raise`."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib_schema import DOMAIN, OperatorName
from onnx_kvtool.rewrite.contrib import (
    activation,
    block_quantized,
    codes,
    normalization,
    product,
    quantized_product,
)
from onnx_kvtool.rewrite.contrib.group_query_attention import group_query_attention
from onnx_kvtool.rewrite.contrib.multi_head_attention import attention, multi_head_attention
from onnx_kvtool.rewrite.contrib.rotary import rotary_embedding
from onnx_kvtool.rewrite.contrib.rule import ContribRule

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
            ContribRule("BiasDropout", activation.bias_dropout),
            ContribRule("BiasGelu", activation.bias_gelu),
            ContribRule("BiasSplitGelu", activation.bias_split_gelu),
            ContribRule("DequantizeLinear", codes.dequantize_linear),
            ContribRule("DynamicQuantizeMatMul", quantized_product.dynamic_quantize_mat_mul),
            ContribRule("EmbedLayerNormalization", normalization.embed_layer_normalization),
            ContribRule("FastGelu", activation.fast_gelu),
            ContribRule("FusedConv", product.fused_conv),
            ContribRule("FusedGemm", product.fused_gemm),
            ContribRule("FusedMatMul", product.fused_mat_mul),
            ContribRule("GatherBlockQuantized", block_quantized.gather_block_quantized),
            ContribRule("Gelu", activation.gelu),
            ContribRule("GroupQueryAttention", group_query_attention),
            ContribRule("MatMulIntegerToFloat", quantized_product.mat_mul_integer_to_float),
            ContribRule("MatMulNBits", block_quantized.mat_mul_n_bits),
            ContribRule("MultiHeadAttention", multi_head_attention),
            ContribRule("NhwcConv", product.nhwc_conv),
            ContribRule("QGemm", quantized_product.q_gemm),
            ContribRule("QLinearAdd", codes.q_linear_add),
            ContribRule("QLinearAveragePool", codes.q_linear_average_pool),
            ContribRule("QLinearConcat", codes.q_linear_concat),
            ContribRule("QLinearGlobalAveragePool", codes.q_linear_global_average_pool),
            ContribRule("QLinearLeakyRelu", codes.q_linear_leaky_relu),
            ContribRule("QLinearMul", codes.q_linear_mul),
            ContribRule("QLinearSigmoid", codes.q_linear_sigmoid),
            ContribRule("QLinearSoftmax", codes.q_linear_softmax),
            ContribRule("QLinearWhere", codes.q_linear_where),
            ContribRule("QuantizeLinear", codes.quantize_linear),
            ContribRule("QuickGelu", activation.quick_gelu),
            ContribRule("RotaryEmbedding", rotary_embedding),
            ContribRule("SkipLayerNormalization", normalization.skip_layer_normalization),
            ContribRule(
                "SkipSimplifiedLayerNormalization",
                normalization.skip_simplified_layer_normalization,
            ),
        )
    ],
)
"""By domain and name."""
