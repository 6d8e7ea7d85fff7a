"""Attention of three kinds, the rotary embedding, and the convolution that goes with a state."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.attention.attention import attention_23, attention_24
from onnx_kvtool.runtime.kernels.attention.rotary_embedding import rotary_embedding_23
from onnx_kvtool.runtime.kernels.attention.states import (
    causal_conv_with_state_27,
    linear_attention_27,
)
from onnx_kvtool.runtime.kernels.kernel import Lines

LINES: Lines = {
    "Attention": {23: attention_23, 24: attention_24},
    "CausalConvWithState": {27: causal_conv_with_state_27},
    "LinearAttention": {27: linear_attention_27},
    "RotaryEmbedding": {23: rotary_embedding_23},
}
"""Operators of this family with their kernels, oldest first."""
