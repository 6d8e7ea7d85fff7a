"""What decoders of onnxruntime-genai are, of the sizes that people deploy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.real_models.configuration import Configuration

__all__ = ["GENAI", "Genai"]


@dataclass(frozen=True, slots=True)
class Genai:
    """What such a decoder has beside the dimensions.

    Attributes:
        sizes: The dimensions; `quantisation` is `none` or `matmulnbits`, which holds for the
            embedding as well, of codes of GatherBlockQuantized.
        is_packed: Whether query, key and value are one product.
        turned: Elements of a head that are turned; 0 for all.
        window: Rows that a layer reads; in each other layer, as Gemma has it. 0 for all.
        softcap: Of the scores; 0 for none.
        is_normed: Whether the heads of queries and keys are normalized, as those of Qwen3.
        experts: How many experts a layer has, of which a token chooses `chosen`; 0 for one MLP.
        chosen: See `experts`.
    """

    sizes: Configuration
    is_packed: bool = True
    turned: int = 0
    window: int = 0
    softcap: float = 0.0
    is_normed: bool = False
    experts: int = 0
    chosen: int = 2


_1B = Configuration(16, 2048, 32, 8, 64, 8192, 128256, tied=False)
_7B = Configuration(4, 4096, 32, 8, 128, 14336, 32000, tied=False)
_QWEN = Configuration(28, 1024, 16, 8, 128, 3072, 151936, tied=False)
_GEMMA = Configuration(26, 2304, 8, 4, 256, 9216, 256000, tied=False)
_PHI = Configuration(32, 3072, 24, 8, 128, 8192, 200064, tied=False)
_MIXTRAL = replace(_7B, layers=4)
_MANY = Configuration(4, 2048, 32, 4, 128, 768, 151936, tied=False)


def _int4(sizes: Configuration, *, zero_points: bool = False, dtype: str = "fp32") -> Configuration:
    return replace(sizes, quantisation="matmulnbits", zero_points=zero_points, dtype=dtype)


GENAI = {
    "llama-1b-fp32": Genai(_1B),
    "llama-1b-fp16": Genai(replace(_1B, dtype="fp16")),
    "llama-1b-bf16": Genai(replace(_1B, dtype="bf16")),
    "llama-1b-int4": Genai(_int4(_1B)),
    "llama-1b-int4-zero-points": Genai(_int4(_1B, zero_points=True)),
    "llama-1b-int4-fp16": Genai(_int4(_1B, dtype="fp16")),
    "llama-7b-wide-fp16": Genai(replace(_7B, dtype="fp16")),
    "llama-7b-wide-int4": Genai(_int4(_7B)),
    "qwen3-0.6b-fp32": Genai(_QWEN, is_packed=False, is_normed=True),
    "qwen3-0.6b-int4": Genai(_int4(_QWEN), is_packed=False, is_normed=True),
    "gemma2-2b-fp16": Genai(replace(_GEMMA, dtype="fp16"), window=4096, softcap=50.0),
    "gemma2-2b-int4": Genai(_int4(_GEMMA), window=4096, softcap=50.0),
    "phi4-mini-fp16": Genai(replace(_PHI, dtype="fp16"), turned=96),
    "phi4-mini-int4": Genai(_int4(_PHI), turned=96),
    "moe-8-fp16": Genai(replace(_MIXTRAL, dtype="fp16"), experts=8),
    "moe-8-int4": Genai(_int4(_MIXTRAL), experts=8),
    "moe-64-fp16": Genai(replace(_MANY, dtype="fp16"), is_packed=False, is_normed=True,
                         experts=64, chosen=8),
    "moe-64-int4": Genai(_int4(_MANY), is_packed=False, is_normed=True, experts=64, chosen=8),
}  # fmt: skip
"""By name."""
