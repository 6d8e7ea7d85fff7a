"""Operators of onnxruntime that decoders are exported with or optimised to.

Most belong to `com.microsoft`. onnxruntime puts some into the default domain, where onnx knows no
such operator, or none yet.
"""

from __future__ import annotations

from onnx_kvtool.ops.contrib_schema import DOMAIN, OperatorName
from onnx_kvtool.runtime.kernels.contrib.attention import attention
from onnx_kvtool.runtime.kernels.contrib.embed_layer_normalization import (
    embed_layer_normalization,
)
from onnx_kvtool.runtime.kernels.contrib.fused_mat_mul import fused_mat_mul
from onnx_kvtool.runtime.kernels.contrib.gather_block_quantized import gather_block_quantized
from onnx_kvtool.runtime.kernels.contrib.gelu import bias_gelu, fast_gelu, gelu, quick_gelu
from onnx_kvtool.runtime.kernels.contrib.group_query_attention import group_query_attention
from onnx_kvtool.runtime.kernels.contrib.mat_mul_n_bits import mat_mul_n_bits
from onnx_kvtool.runtime.kernels.contrib.multi_head_attention import multi_head_attention
from onnx_kvtool.runtime.kernels.contrib.normalization import (
    layer_normalization,
    simplified_layer_normalization,
    skip_layer_normalization,
    skip_simplified_layer_normalization,
)
from onnx_kvtool.runtime.kernels.contrib.quantized import (
    dynamic_quantize_mat_mul,
    mat_mul_integer_to_float,
)
from onnx_kvtool.runtime.kernels.contrib.rotary_embedding import rotary_embedding
from onnx_kvtool.runtime.kernels.kernel import Kernel

__all__ = ["CONTRIB_LINES"]

CONTRIB_LINES: tuple[tuple[OperatorName, Kernel], ...] = (
    (("", "LayerNormalization"), Kernel(1, layer_normalization)),
    (("", "SimplifiedLayerNormalization"), Kernel(1, simplified_layer_normalization)),
    ((DOMAIN, "Attention"), Kernel(1, attention)),
    ((DOMAIN, "BiasGelu"), Kernel(1, bias_gelu)),
    ((DOMAIN, "DynamicQuantizeMatMul"), Kernel(1, dynamic_quantize_mat_mul)),
    ((DOMAIN, "EmbedLayerNormalization"), Kernel(1, embed_layer_normalization)),
    ((DOMAIN, "FastGelu"), Kernel(1, fast_gelu)),
    ((DOMAIN, "FusedMatMul"), Kernel(1, fused_mat_mul)),
    ((DOMAIN, "GatherBlockQuantized"), Kernel(1, gather_block_quantized)),
    ((DOMAIN, "Gelu"), Kernel(1, gelu)),
    ((DOMAIN, "GroupQueryAttention"), Kernel(1, group_query_attention)),
    ((DOMAIN, "MatMulIntegerToFloat"), Kernel(1, mat_mul_integer_to_float)),
    ((DOMAIN, "MatMulNBits"), Kernel(1, mat_mul_n_bits)),
    ((DOMAIN, "MultiHeadAttention"), Kernel(1, multi_head_attention)),
    ((DOMAIN, "QuickGelu"), Kernel(1, quick_gelu)),
    ((DOMAIN, "RotaryEmbedding"), Kernel(1, rotary_embedding)),
    ((DOMAIN, "SkipLayerNormalization"), Kernel(1, skip_layer_normalization)),
    (
        (DOMAIN, "SkipSimplifiedLayerNormalization"),
        Kernel(1, skip_simplified_layer_normalization),
    ),
)
"""Operators that onnx does not define, by domain and name, with their kernels; one version each."""
