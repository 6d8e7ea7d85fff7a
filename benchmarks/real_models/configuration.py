"""The dimensions of a decoder, and those of models that people deploy."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "BLOCK",
    "CACHES",
    "CONFIGURATIONS",
    "DTYPES",
    "QUANTISATIONS",
    "Configuration",
    "tiny",
]

BLOCK = 32
"""Weights that share a scale where they are quantised in blocks."""

DTYPES = ("fp32", "fp16", "bf16")

QUANTISATIONS = ("none", "matmulnbits", "dq-int4", "qdq-int8")
"""How the matrices of the layers and of the head are stored.

- `none`: as they are, `(N, K)` behind a Transpose.
- `matmulnbits`: com.microsoft::MatMulNBits of 4 bits, blocks along K.
- `dq-int4`: int4, uint4 with zero points, `(K, N)`, DequantizeLinear in blocks along axis 0.
- `qdq-int8`: int8 `(K, N)` with a scale per column; QuantizeLinear and DequantizeLinear round the
  activation to uint8.
"""

CACHES = ("plain", "int8", "fp8")
"""What the caches hold: the type of the model, or int8 or float8e4m3fn between QuantizeLinear and
DequantizeLinear."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a decoder is.

    Attributes:
        layers: Number of layers.
        hidden: Hidden size.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_size: Of a head; query heads need not fill the hidden size.
        intermediate: Width of the gated MLP.
        vocabulary: Number of tokens.
        capacity: Rows of each cache and of the tables of the rotary embedding.
        dtype: One of `DTYPES`, that of activations, norms, scales and embedding.
        quantisation: One of `QUANTISATIONS`.
        zero_points: Whether 4-bit weights have zero points.
        caches: One of `CACHES`.
        bias: Whether the projections of query, key and value have one.
        tied: Whether the head is the embedding; a quantised head is a matrix of its own.
        std: Standard deviation of the weights.
        batch: What the batch dimension is declared as, a name or a size.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    capacity: int = 4096
    dtype: str = "fp32"
    quantisation: str = "none"
    zero_points: bool = False
    caches: str = "plain"
    bias: bool = False
    tied: bool = True
    std: float = 0.02
    batch: str | int = "batch"

    def __post_init__(self) -> None:
        for what, allowed in (
            ("dtype", DTYPES),
            ("quantisation", QUANTISATIONS),
            ("caches", CACHES),
        ):
            if getattr(self, what) not in allowed:
                raise ValueError(f"{what} is {getattr(self, what)!r}, expected one of {allowed}")
        widths = (self.hidden, self.heads * self.head_size, self.intermediate)
        if self.quantisation in ("matmulnbits", "dq-int4") and any(w % BLOCK for w in widths):
            raise ValueError(f"widths {widths} are quantised in blocks of {BLOCK}, which must fit")

    @property
    def kv_width(self) -> int:
        """Elements in a row of a cache."""
        return self.kv_heads * self.head_size


def tiny(configuration: Configuration) -> Configuration:
    """Return a decoder of the same kind with a few hundred KB of weights and short caches."""
    return replace(
        configuration,
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=4 if configuration.kv_heads == configuration.heads else 2,
        head_size=16,
        intermediate=96,
        vocabulary=160,
        capacity=24,
    )


_QWEN = Configuration(24, 896, 14, 2, 64, 4864, 151936, bias=True, tied=False)
"""Qwen2.5-0.5B, with a head of its own as exporters write it: 2.35 GiB."""

_LLAMA_1B = Configuration(16, 2048, 32, 8, 64, 8192, 128256)
"""Llama-3.2-1B."""

_LLAMA_7B = Configuration(32, 4096, 32, 32, 128, 11008, 32000, dtype="fp16", tied=False)
"""Llama 7B, whose heads share no keys."""

_LONG = Configuration(30, 128, 4, 4, 32, 384, 16384)
"""34 MB of weights, whose caches are longer than they are."""

_SMALL = Configuration(16, 1024, 16, 8, 64, 4096, 32000)

CONFIGURATIONS = {
    "qwen-0.5b-fp32": _QWEN,
    "qwen-0.5b-dq-int4": replace(_QWEN, quantisation="dq-int4"),
    "qwen-0.5b-dq-uint4": replace(_QWEN, quantisation="dq-int4", zero_points=True),
    "qwen-0.5b-qdq-int8": replace(_QWEN, quantisation="qdq-int8"),
    "llama-1b-fp16": replace(_LLAMA_1B, dtype="fp16"),
    "llama-1b-bf16": replace(_LLAMA_1B, dtype="bf16"),
    "llama-1b-int4": replace(_LLAMA_1B, quantisation="matmulnbits"),
    "llama-1b-int4-zero-points": replace(_LLAMA_1B, quantisation="matmulnbits", zero_points=True),
    "llama-1b-int4-fp16": replace(_LLAMA_1B, quantisation="matmulnbits", dtype="fp16"),
    "llama-7b-fp16": _LLAMA_7B,
    "long-32768": replace(_LONG, capacity=32768),
    "long-131072": replace(_LONG, capacity=131072),
    "16-layers-int4": replace(_SMALL, quantisation="matmulnbits"),
    "16-layers-qdq-int8": replace(_SMALL, quantisation="qdq-int8"),
    "16-layers-int8-caches": replace(_SMALL, caches="int8"),
    "16-layers-fp8-caches": replace(_SMALL, caches="fp8"),
    "4-layers-bf16-std-0.2": Configuration(4, 1024, 16, 8, 64, 4096, 32000, dtype="bf16", std=0.2),
}
"""By name, the models of the tables and one of every kind."""
