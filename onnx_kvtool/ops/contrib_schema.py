"""Operators of onnxruntime that onnx does not define, as facts of the same kind.

`onnx.defs` does not have them. They are written down from the schemas that onnxruntime 1.32.0
registers, and a test holds them against those of the installed one: an older release may lack the
last optional inputs and some attributes, a newer one may have more. Each has one version, 1.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.core.domains import canonical_domain, is_onnxruntimes
from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib_experts_schema import EXPERTS
from onnx_kvtool.ops.contrib_facts import (
    CODES,
    FLOAT,
    FLOATS,
    HALVES,
    INTEGER,
    INTEGERS,
    NUMBER,
    REQUIRED,
    TEXT,
    facts,
)
from onnx_kvtool.ops.contrib_layers_schema import LAYERS
from onnx_kvtool.ops.contrib_older_schema import OLDER
from onnx_kvtool.ops.contrib_recent_schema import RECENT
from onnx_kvtool.ops.contrib_states_schema import STATES
from onnx_kvtool.ops.schema import AttributeValue, OpFacts, is_standard, op_facts

__all__ = [
    "BLOCKED",
    "CONTRIB_SCHEMAS",
    "DOMAIN",
    "OperatorName",
    "contrib_facts",
    "default_of",
    "is_contrib",
]

DOMAIN = "com.microsoft"
"""The domain of onnxruntime's own operators."""

OperatorName = tuple[str, str]
"""Domain and name of an operator."""


_DEFAULT_DOMAIN = (
    # The optimiser makes it of a normalization below opset 17, where onnx has no such operator.
    facts(
        "LayerNormalization",
        "X:T Scale:V B?:V",
        "Y:V Mean?:U InvStdDev?:U",
        {"T": FLOATS, "U": f"{FLOAT} tensor(double)", "V": FLOATS},
        axis=(INTEGER, -1),
        epsilon=(NUMBER, 1e-5),
        stash_type=(INTEGER, 1),
    ),
    facts(
        "SimplifiedLayerNormalization",
        "X:T scale:V",
        "Y:V inv_std_var?:U",
        {"T": FLOATS, "U": f"{FLOAT} tensor(double)", "V": FLOATS},
        axis=(INTEGER, -1),
        epsilon=(NUMBER, 1e-5),
        stash_type=(INTEGER, 1),
    ),
)

_MICROSOFT = (
    facts(
        "Attention",
        "input:T weights:T bias?:T mask_index?:M past?:T attention_bias?:T past_sequence_length?:M",
        "output:T present?:T",
        {"T": HALVES, "M": "tensor(int32)"},
        do_rotary=INTEGER,
        mask_filter_value=NUMBER,
        num_heads=(INTEGER, REQUIRED),
        past_present_share_buffer=INTEGER,
        qkv_hidden_sizes=INTEGERS,
        rotary_embedding_dim=INTEGER,
        scale=NUMBER,
        unidirectional=(INTEGER, 0),
    ),
    facts("BiasGelu", "A:T B:T", "C:T", {"T": FLOATS}),
    facts(
        "DecoderMaskedMultiHeadAttention",
        "query:T key?:T value?:T mask_index?:M attention_bias?:T past_key?:T past_value?:T "
        "past_sequence_length?:M beam_width?:M cache_indirection?:M bias?:T",
        "output:T present_key?:T present_value?:T qk?:QK",
        {
            "T": f"{FLOAT} tensor(float16)",
            "QK": f"{FLOAT} tensor(float16)",
            "M": "tensor(int32)",
        },
        mask_filter_value=NUMBER,
        num_heads=(INTEGER, REQUIRED),
        output_qk=INTEGER,
        past_present_share_buffer=INTEGER,
        scale=NUMBER,
    ),
    facts(
        "DynamicQuantizeMatMul",
        "A:T1 B:T2 b_scale:T1 b_zero_point?:T2 bias?:T1",
        "Y:T1",
        {"T1": FLOAT, "T2": CODES},
    ),
    facts(
        "EmbedLayerNormalization",
        "input_ids:T1 segment_ids?:T1 word_embedding:T position_embedding:T "
        "segment_embedding?:T gamma:T beta:T mask?:T1 position_ids?:T1",
        "output:T mask_index?:T1 embedding_sum?:T",
        {"T1": "tensor(int32)", "T": f"{FLOAT} tensor(float16)"},
        epsilon=(NUMBER, 1e-12),
        mask_index_type=INTEGER,
    ),
    facts("FastGelu", "X:T bias?:T", "Y:T", {"T": FLOATS}),
    facts(
        "FusedMatMul",
        "A:T B:T",
        "Y:T",
        {"T": FLOATS},
        alpha=(NUMBER, 1.0),
        transA=(INTEGER, 0),
        transB=(INTEGER, 0),
        transBatchA=(INTEGER, 0),
        transBatchB=(INTEGER, 0),
    ),
    facts(
        "GatherBlockQuantized",
        "data:T1 indices:Tind scales:T2 zero_points?:T1",
        "output:T2",
        {
            "T1": "tensor(int4) tensor(uint4) tensor(uint8) tensor(float8e4m3fn) "
            "tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float4e2m1)",
            "T2": HALVES,
            "Tind": "tensor(int32) tensor(int64)",
        },
        bits=(INTEGER, 4),
        block_size=(INTEGER, 128),
        gather_axis=(INTEGER, 0),
        quantize_axis=(INTEGER, 1),
    ),
    facts("Gelu", "X:T", "Y:T", {"T": FLOATS}),
    facts(
        "GroupQueryAttention",
        "query:T key?:T value?:T past_key?:T_CACHE past_value?:T_CACHE seqlens_k:M "
        "total_sequence_length:M cos_cache?:T sin_cache?:T position_ids?:tensor(int64) "
        "attention_bias?:T head_sink?:T k_scale?:T_KV_SCALE v_scale?:T_KV_SCALE "
        "q_norm_weight?:T k_norm_weight?:T query_seqlens?:M",
        "output:T present_key?:T_CACHE present_value?:T_CACHE output_qk?:T",
        {
            "T": HALVES,
            "T_CACHE": f"{HALVES} tensor(uint8) tensor(int8) tensor(float8e4m3fn)",
            "T_KV_SCALE": FLOAT,
            "M": "tensor(int32)",
        },
        causal=(INTEGER, 1),
        do_rotary=INTEGER,
        k_norm_epsilon=NUMBER,
        k_quant_type=(TEXT, "NONE"),
        kv_cache_bit_width=INTEGER,
        kv_num_heads=(INTEGER, REQUIRED),
        local_window_size=(INTEGER, -1),
        num_heads=(INTEGER, REQUIRED),
        q_norm_epsilon=NUMBER,
        qk_norm_epsilon=(NUMBER, 1e-6),
        qk_output=(INTEGER, 0),
        rotary_interleaved=INTEGER,
        scale=NUMBER,
        sliding_window_cache=(INTEGER, 0),
        smooth_softmax=(INTEGER, -1),
        softcap=NUMBER,
        v_quant_type=(TEXT, "NONE"),
    ),
    facts(
        "MatMulIntegerToFloat",
        "A:T1 B:T2 a_scale:T3 b_scale:T3 a_zero_point?:T1 b_zero_point?:T2 bias?:T3",
        "Y:T3",
        {"T1": CODES, "T2": CODES, "T3": f"{FLOAT} tensor(float16)"},
    ),
    facts(
        "MatMulNBits",
        "A:T1 B:T2 scales:T1 zero_points?:T3 g_idx?:T4 bias?:T1",
        "Y:T1",
        {
            "T1": HALVES,
            "T2": "tensor(uint8)",
            "T3": f"{HALVES} tensor(uint8)",
            "T4": "tensor(int32)",
        },
        K=(INTEGER, REQUIRED),
        N=(INTEGER, REQUIRED),
        accuracy_level=(INTEGER, 0),
        bits=(INTEGER, 4),
        block_size=(INTEGER, REQUIRED),
        weight_prepacked=(INTEGER, 0),
    ),
    facts(
        "MultiHeadAttention",
        "query:T key?:T value?:T bias?:T key_padding_mask?:M attention_bias?:T past_key?:T "
        "past_value?:T past_sequence_length?:M cache_indirection?:M",
        "output:T present_key?:T present_value?:T qk?:QK",
        {"T": HALVES, "QK": HALVES, "M": "tensor(int32)"},
        mask_filter_value=NUMBER,
        num_heads=(INTEGER, REQUIRED),
        scale=NUMBER,
        unidirectional=(INTEGER, 0),
    ),
    facts("QuickGelu", "X:T", "Y:T", {"T": FLOATS}, alpha=(NUMBER, 1.702)),
    facts(
        "RotaryEmbedding",
        "input:T position_ids:M cos_cache:T sin_cache:T",
        "output:T",
        {"T": HALVES, "M": "tensor(int64)"},
        interleaved=INTEGER,
        is_packed_batching=INTEGER,
        num_heads=INTEGER,
        rotary_embedding_dim=INTEGER,
        scale=NUMBER,
    ),
    facts(
        "SkipLayerNormalization",
        "input:T skip:T gamma:T beta?:T bias?:T",
        "output:T mean?:U inv_std_var?:U input_skip_bias_sum?:T",
        {"T": HALVES, "U": FLOAT},
        epsilon=(NUMBER, 1e-12),
    ),
    facts(
        "SkipSimplifiedLayerNormalization",
        "input:T skip:T gamma:T bias?:T",
        "output:T mean?:U inv_std_var?:U input_skip_bias_sum?:T",
        {"T": HALVES, "U": FLOAT},
        epsilon=(NUMBER, 1e-12),
    ),
)

CONTRIB_SCHEMAS: Table[OperatorName, OpFacts] = Table(
    "schema of onnxruntime",
    [
        *((("", one.op_type), one) for one in _DEFAULT_DOMAIN),
        *(
            ((DOMAIN, one.op_type), one)
            for one in (*_MICROSOFT, *LAYERS, *EXPERTS, *RECENT, *STATES, *OLDER)
        ),
    ],
)
"""By domain and name: operators of `com.microsoft`, and those in the default domain."""


BLOCKED = frozenset(
    (DOMAIN, name)
    for name in (
        "GatherBlockQuantized",
        "MatMulNBits",
        "MatMulNBitsMlp",
        "MatMulNBitsQkv",
        "QMoE",
    )
)
"""Operators on weights in blocks of codes: what they are in ONNX has a DequantizeLinear."""


def contrib_facts(domain: str, op_type: str) -> OpFacts | None:
    """Return what is known of an operator of onnxruntime; None for any other."""
    return CONTRIB_SCHEMAS.get((domain, op_type))


def is_contrib(node: ir.Node, opset: int) -> bool:
    """Return whether a node is of an operator that onnxruntime has beside those of ONNX.

    Args:
        node: A node that calls no function of its model.
        opset: Version of the default domain that the graph was written for.
    """
    if is_onnxruntimes(node.domain):
        return True
    if node.domain != "":
        return False
    if not is_standard(node):
        return True
    # onnxruntime has it below the opset that brought it to ONNX.
    known = op_facts(node.op_type, opset if node.version is None else node.version) is not None
    return not known and contrib_facts("", node.op_type) is not None


def default_of(op_type: str, attribute: str, opset: int, domain: str = "") -> AttributeValue:
    """Return the default of an attribute, for who reads a node without a view.

    Args:
        op_type: The operator.
        attribute: Name of the attribute.
        opset: Version of the domain; for operators of onnxruntime it does not matter.
        domain: The domain; the default one may be spelled `ai.onnx`.

    Returns:
        None where the operator, the attribute or a default does not exist.
    """
    domain = canonical_domain(domain)
    facts = op_facts(op_type, opset, domain) or contrib_facts(domain, op_type)
    declared = None if facts is None else facts.attributes.get(attribute)
    return None if declared is None else declared.default
