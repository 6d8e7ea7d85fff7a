"""The words and numbers that flags and arguments allow.

The command line offers them, functions refuse others, and types of the engines use them. This file
imports only the standard library, because every `--help` reads it.
"""

from __future__ import annotations

from typing import Final, Literal

DEFAULT_OPSET: Final = 18
"""Opset of a lowered model when neither an opset, a target nor operators are given."""

LOWERED_OPSETS: Final = range(9, 24)
"""Opsets that a model can be lowered to."""

NATIVE_OPSET: Final = 24
"""First opset with TensorScatter, and the lowest that a model is raised to."""

AttentionChoice = Literal["auto", "keep", "sliced", "full"]
AttentionForm = Literal["sliced", "full"]
AttentionMask = Literal["kept", "causal", "none", "window"]
AssumedValue = Literal[
    "contiguous", "in-range", "finite", "covers-past", "rotated-rows", "unpadded"
]
BenchFormat = Literal["text", "json", "html"]
Bounds = Literal["checked", "unchecked"]
ContribChoice = Literal["standard", "keep"]
CheckFormat = Literal[
    "text", "concise", "json", "jsonl", "sarif", "github", "gitlab", "junit", "rdjson"
]
DiffFormat = Literal["text", "json", "markdown", "html"]
DiffPart = Literal["interface", "caches", "opset", "metadata", "nodes", "weights", "names"]
DiffWeights = Literal["values", "digest", "embedded", "none"]
ElementType = Literal["float16", "float32"]
ExternalData = Literal["reference", "link", "copy"]
IndexDtype = Literal["int64", "int32"]
InspectFormat = Literal["text", "json", "html", "dot", "mermaid"]
MergedFormat = Literal["json", "jsonl", "sarif", "junit"]
PrintedWeights = Literal["digest", "embedded", "none"]
ReportFormat = Literal["text", "json"]
RuleFormat = Literal["text", "json", "markdown"]
RuntimeName = Literal["reference", "onnxruntime"]
RuntimeChoice = Literal["auto", "reference", "onnxruntime"]
Severity = Literal["error", "warning", "info"]
Via = Literal["auto", "scatternd", "scatterelements"]
