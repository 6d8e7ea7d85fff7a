"""Small decoders of transformers with random weights, as modules that exporters take."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["ARCHITECTURES", "Crossed", "Decoder", "configuration", "model_of"]

_LLAMA = {
    "vocab_size": 64, "hidden_size": 48, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 128, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_GPT2 = {
    "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48, "n_positions": 128,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_HYBRID = {
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention"],
}
_GPT_NEO = {
    "vocab_size": 64, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 128, "window_size": 6, "attention_types": [[["global", "local"], 1]],
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_ALIBI = {
    "vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_FALCON = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "multi_query": True, "alibi": False, "new_decoder_architecture": False,
    "parallel_attn": True, "bias": False, "ffn_hidden_size": 48,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_BART = {
    "vocab_size": 64, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48, "encoder_layers": 2, "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "max_position_embeddings": 128, "is_decoder": True,
    "is_encoder_decoder": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_T5 = {
    "vocab_size": 64, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2,
    "num_decoder_layers": 2, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16, "decoder_start_token_id": 0,
    "pad_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
_WHISPER = {
    **_BART, "is_decoder": False, "is_encoder_decoder": True, "num_mel_bins": 8,
    "max_source_positions": 1500, "max_target_positions": 128, "decoder_start_token_id": 1,
    "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip
_EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "decoder_sparse_step": 1, "shared_expert_intermediate_size": 24, "sliding_window": None,
}  # fmt: skip
_LATENT = {
    "num_key_value_heads": 6, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "head_dim": 4, "first_k_dense_replace": 1,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "moe_intermediate_size": 24, "n_shared_experts": 1,
}  # fmt: skip

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("BartForCausalLM", _BART),
    "cohere": ("CohereForCausalLM", {**_LLAMA, "use_qk_norm": True, "logit_scale": 1.0}),
    "falcon": ("FalconForCausalLM", _FALCON),
    "gemma2": ("Gemma2ForCausalLM", {**_LLAMA, **_HYBRID, "query_pre_attn_scalar": 12}),
    "gemma3": ("Gemma3ForCausalLM", {**_LLAMA, **_HYBRID, "query_pre_attn_scalar": 12}),
    "gpt2": ("GPT2LMHeadModel", _GPT2),
    "gptj": ("GPTJForCausalLM", {**_GPT2, "rotary_dim": 4, "tie_word_embeddings": False}),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {
            "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 48, "rotary_pct": 0.25, "max_position_embeddings": 128,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        },
    ),
    "granite": (
        "GraniteForCausalLM",
        {
            **_LLAMA, "embedding_multiplier": 3.0, "logits_scaling": 0.5,
            "residual_multiplier": 0.7, "attention_multiplier": 0.21,
        },
    ),
    "llama": ("LlamaForCausalLM", _LLAMA),
    "mistral": ("MistralForCausalLM", {**_LLAMA, "sliding_window": 6}),
    "mixtral": (
        "MixtralForCausalLM",
        {**_LLAMA, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": None},
    ),
    "olmo2": ("Olmo2ForCausalLM", _LLAMA),
    "opt": (
        "OPTForCausalLM",
        {
            "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 128,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        },
    ),
    "phi3": (
        "Phi3ForCausalLM",
        {
            **_LLAMA, "partial_rotary_factor": 0.5, "sliding_window": None,
            "original_max_position_embeddings": 128,
        },
    ),
    "qwen2": ("Qwen2ForCausalLM", _LLAMA),
    "qwen3": ("Qwen3ForCausalLM", _LLAMA),
    "smollm3": (
        "SmolLM3ForCausalLM",
        {**_LLAMA, "no_rope_layers": [1, 0], "use_sliding_window": False},
    ),
    "stablelm": ("StableLmForCausalLM", {**_LLAMA, "qk_layernorm": True}),
    "arcee": ("ArceeForCausalLM", _LLAMA),
    "bloom": ("BloomForCausalLM", _ALIBI),
    "codegen": ("CodeGenForCausalLM", {**_GPT2, "rotary_dim": 4, "tie_word_embeddings": False}),
    "cohere2": ("Cohere2ForCausalLM", {**_LLAMA, **_HYBRID, "logit_scale": 1.0}),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {**_LLAMA, **_LATENT, "topk_method": "group_limited_greedy"},
    ),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**_LLAMA, **_LATENT}),
    "diffllama": ("DiffLlamaForCausalLM", {**_LLAMA, "num_key_value_heads": 6}),
    "doge": (
        "DogeForCausalLM",
        {**_LLAMA, "keep_window_size": 4, "attn_implementation": "eager"},
    ),
    "ernie4_5": ("Ernie4_5ForCausalLM", _LLAMA),
    "exaone4": ("Exaone4ForCausalLM", {**_LLAMA, **_HYBRID, "sliding_window_pattern": "LG"}),
    "falcon_alibi": ("FalconForCausalLM", {**_FALCON, "alibi": True, "multi_query": False}),
    "gemma": ("GemmaForCausalLM", _LLAMA),
    "glm": ("GlmForCausalLM", {**_LLAMA, "partial_rotary_factor": 0.5}),
    "glm4": ("Glm4ForCausalLM", {**_LLAMA, "partial_rotary_factor": 0.5}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {**_GPT2, "multi_query": True}),
    "gpt_neo": ("GPTNeoForCausalLM", _GPT_NEO),
    "gpt_oss": ("GptOssForCausalLM", {**_LLAMA, **_EXPERTS, **_HYBRID}),
    "granitemoe": ("GraniteMoeForCausalLM", {**_LLAMA, **_EXPERTS}),
    "helium": ("HeliumForCausalLM", _LLAMA),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", _LLAMA),
    "marian": ("MarianForCausalLM", {**_BART, "decoder_vocab_size": 64}),
    "mistral_full": ("MistralForCausalLM", {**_LLAMA, "sliding_window": None}),
    "mpt": (
        "MptForCausalLM",
        {
            "vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "expansion_ratio": 2,
            "max_seq_len": 128, "pad_token_id": 0,
        },
    ),
    "nemotron": ("NemotronForCausalLM", _LLAMA),
    "olmo": ("OlmoForCausalLM", _LLAMA),
    "olmo3": ("Olmo3ForCausalLM", {**_LLAMA, **_HYBRID}),
    "olmoe": ("OlmoeForCausalLM", {**_LLAMA, **_EXPERTS}),
    "persimmon": ("PersimmonForCausalLM", {**_LLAMA, "num_key_value_heads": 6}),
    "phi": (
        "PhiForCausalLM",
        {**_LLAMA, "num_key_value_heads": 6, "partial_rotary_factor": 0.5},
    ),
    "phimoe": ("PhimoeForCausalLM", {**_LLAMA, **_EXPERTS}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**_LLAMA, **_EXPERTS}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**_LLAMA, **_EXPERTS}),
    "starcoder2": ("Starcoder2ForCausalLM", {**_LLAMA, "sliding_window": None}),
    "t5": ("T5ForConditionalGeneration", _T5),
    "whisper": ("WhisperForConditionalGeneration", _WHISPER),
}  # fmt: skip
"""Class of the model, and sizes: two layers, grouped heads where it has them, 64 tokens."""


def configuration(architecture: str, **more: Any) -> Any:
    """Return the configuration of an architecture.

    Args:
        architecture: One of `ARCHITECTURES`.
        more: What differs from its sizes, for instance `attn_implementation`.
    """
    import transformers

    name, sizes = ARCHITECTURES[architecture]
    kind = getattr(transformers, name).config_class
    return kind(**{**sizes, **more})


def model_of(architecture: str, **more: Any) -> Any:
    """Return a model of random weights, the same at each call, large enough that tokens matter."""
    import transformers

    torch.manual_seed(7)
    model = getattr(transformers, ARCHITECTURES[architecture][0])(
        configuration(architecture, **more)
    )
    with torch.no_grad():
        for weight in model.parameters():
            # All draws differ from what a layer starts with: a bias of zeros, a norm of ones.
            spread = 0.2 if weight.ndim > 1 else 0.1
            weight.add_(spread * torch.randn_like(weight))
    return model.eval()


class Crossed(nn.Module):
    """The decoder of an encoder-decoder, which takes what the encoder has found."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(
        self, input_ids: torch.Tensor, encoder_hidden_states: torch.Tensor, **given: Any
    ) -> Any:
        """Return what the whole model returns."""
        from transformers.modeling_outputs import BaseModelOutput

        found = BaseModelOutput(last_hidden_state=encoder_hidden_states)
        return self.model(decoder_input_ids=input_ids, encoder_outputs=found, **given)


class Decoder(nn.Module):
    """A causal decoder with its caches as inputs and outputs, as users wrap one for an exporter.

    Args:
        model: Of transformers, with a key/value cache.
        rolling: Whether layers with a window keep its last rows only, as transformers does when
            it generates.
        names: Its inputs in order, without caches: `input_ids`, `attention_mask`, `position_ids`,
            `encoder_hidden_states`.
    """

    def __init__(self, model: Any, names: tuple[str, ...], *, rolling: bool = False) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.rolling = rolling

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the logits, (B, S, V), and present keys and values, each (B, H, P + S, D)."""
        from transformers import DynamicCache, EncoderDecoderCache

        given, past = dict(zip(self.names, tensors, strict=False)), tensors[len(self.names) :]
        cache = DynamicCache(config=self.model.config) if self.rolling else DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        if "encoder_hidden_states" in given:
            whole: Any = EncoderDecoderCache(cache, DynamicCache())
        else:
            whole = cache
        found = self.model(**given, past_key_values=whole, use_cache=True)
        layers = found.past_key_values
        layers = getattr(layers, "self_attention_cache", layers).layers
        return found.logits, *(part for layer in layers for part in (layer.keys, layer.values))
