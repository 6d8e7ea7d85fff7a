"""The table of shape rules names operators that exist."""

from __future__ import annotations

import onnx.defs

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.symbolic.rules.contrib import CONTRIB
from onnx_kvtool.symbolic.rules.table import OPERATOR_RULES


def test_every_rule_is_of_an_operator_of_onnx() -> None:
    known = {
        schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain
    }
    # Later releases of onnx bring more operators than the oldest one that is supported.
    assert set(OPERATOR_RULES) - known <= {"SwiGLU", "TensorScatter"}


def test_the_operators_of_exported_decoders_have_a_rule() -> None:
    assert {
        "BiasGelu",
        "FastGelu",
        "FusedConv",
        "FusedMatMul",
        "Gelu",
        "GroupQueryAttention",
        "MatMulNBits",
        "MultiHeadAttention",
        "QuickGelu",
        "RotaryEmbedding",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    } <= {*CONTRIB, *(op_type for _, op_type in CONTRIB_RULES)}
