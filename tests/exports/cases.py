"""Which decoders are exported, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CASES", "Case"]

_MASKED = ("input_ids", "attention_mask")
_PLACED = ("input_ids", "attention_mask", "position_ids")


@dataclass(frozen=True)
class Case:
    """One file of `fixtures/growing`.

    Attributes:
        architecture: A key of `ARCHITECTURES`.
        exporter: `dynamo`, `ts` (TorchScript) or `optimum`.
        opset: Requested of the exporter.
        inputs: What the decoder takes besides its caches; optimum decides that itself.
        attention: Implementation of attention in transformers, `sdpa` or `eager`.
        rolling: Whether layers with a window keep its last rows only.
        half: Whether weights and caches are float16.
        padded: Whether it can be run with padding.
        kept: The most rows of a cache where `attention_mask` is as long as they and the new tokens.
        tool: What rewrote the file after the exporter: `onnxslim`, `onnxsim` or `ort`.
        options: What differs from the sizes of the architecture.
    """

    architecture: str
    exporter: str
    opset: int = 18
    inputs: tuple[str, ...] = _MASKED
    attention: str = "sdpa"
    rolling: bool = False
    half: bool = False
    padded: bool = True
    kept: int | None = None
    tool: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        return {"attn_implementation": self.attention, **self.more}

    @property
    def name(self) -> str:
        """Return the stem of its file: `<case>__<exporter>_op<requested opset>[__<tool>]`."""
        words = [
            self.architecture,
            *(["eager"] if self.attention == "eager" else []),
            *(["fp16"] if self.half else []),
            *(["rolling"] if self.rolling else []),
        ]
        tool = f"__{self.tool}" if self.tool else ""
        return f"{'_'.join(words)}__{self.exporter}_op{self.opset}{tool}"


CASES = (
    Case("qwen2", "dynamo"),
    Case("qwen3", "dynamo", inputs=_PLACED),
    Case("falcon", "dynamo", inputs=_PLACED),
    Case("olmo2", "dynamo", 20),
    Case("granite", "dynamo", inputs=_PLACED, attention="eager"),
    Case("mixtral", "dynamo", inputs=_PLACED, more={"experts_implementation": "batched_mm"}),
    Case("mistral", "dynamo", inputs=_PLACED, rolling=True, kept=5),
    Case("gemma3", "dynamo", inputs=("input_ids", "position_ids"), rolling=True, padded=False),
    Case("cohere2", "dynamo", inputs=_PLACED, rolling=True),
    Case("llama", "dynamo", attention="eager", half=True),
    Case("llama", "dynamo", 23, inputs=_PLACED),
    Case("smollm3", "dynamo", 23, inputs=_PLACED),
    Case("cohere", "dynamo", 23),
    Case("gpt2", "dynamo", 23),
    Case("gemma2", "dynamo", 23, inputs=_PLACED, attention="eager"),
    Case("bart", "dynamo", inputs=(*_MASKED, "encoder_hidden_states")),
    Case("gpt_neox", "ts", 14, attention="eager"),
    Case("gptj", "ts", 17, inputs=_PLACED, attention="eager"),
    Case("qwen2", "ts", 17, attention="eager", half=True),
    Case("phi3", "ts", 17, tool="onnxslim"),
    Case("stablelm", "ts", 17, inputs=_PLACED, tool="ort"),
    Case("qwen2", "optimum"),
    Case("qwen3", "optimum"),
    Case("phi3", "optimum"),
    Case("gpt2", "optimum"),
    Case("gemma3", "optimum"),
    Case("falcon", "optimum"),
    Case("opt", "optimum"),
    Case("qwen3", "optimum", tool="onnxsim"),
    Case("gpt_neo", "optimum", attention="eager"),
    Case("gpt_oss", "optimum", attention="eager"),
    Case("mpt", "optimum", attention="eager"),
)
