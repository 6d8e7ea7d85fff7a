"""Small decoders of transformers with random weights, as modules that exporters take."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["ARCHITECTURES", "Decoder", "configuration", "model_of"]

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

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": (
        "BartForCausalLM",
        {
            "vocab_size": 64, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
            "decoder_ffn_dim": 48, "encoder_layers": 2, "encoder_attention_heads": 4,
            "encoder_ffn_dim": 48, "max_position_embeddings": 128, "is_decoder": True,
            "is_encoder_decoder": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        },
    ),
    "cohere": ("CohereForCausalLM", {**_LLAMA, "use_qk_norm": True, "logit_scale": 1.0}),
    "cohere2": ("Cohere2ForCausalLM", {**_LLAMA, **_HYBRID, "logit_scale": 1.0}),
    "falcon": (
        "FalconForCausalLM",
        {
            "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "multi_query": True, "alibi": False, "new_decoder_architecture": False,
            "parallel_attn": True, "bias": False, "ffn_hidden_size": 48,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        },
    ),
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
    "phi3": ("Phi3ForCausalLM", {**_LLAMA, "partial_rotary_factor": 0.5, "sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", _LLAMA),
    "qwen3": ("Qwen3ForCausalLM", _LLAMA),
    "smollm3": (
        "SmolLM3ForCausalLM",
        {**_LLAMA, "no_rope_layers": [1, 0], "use_sliding_window": False},
    ),
    "stablelm": ("StableLmForCausalLM", {**_LLAMA, "qk_layernorm": True}),
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
