"""Which limits are no reason to refuse a model, because what they strike has another form."""

from __future__ import annotations

from typing import Any

import onnx.defs

from onnx_kvtool.analysis.conditions import OF_SHAPES, OF_TYPES
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.targets.release import Limit

__all__ = ["REMEDIED", "REPLACED", "has_other_form"]

REMEDIED = frozenset(
    {
        *("backward", "behind", "constant-indices", "in-place", "merged-names", "narrow-range"),
        *("negative-axes", "negative-indices", "no-elements", "no-value", "other-code-types"),
        *("overflowing", "same-padding", "scalar"),
    }
)
"""Conditions with a remedy of their own."""

REPLACED = frozenset(
    {
        *("Attention", "Col2Im", "DeformConv", "GridSample", "LayerNormalization"),
        *("MelWeightMatrix", "QuantizeLinear", "RMSNormalization", "ReduceMax", "ReduceMin"),
        *("RotaryEmbedding", "STFT", "Size", "Split", "TensorScatter"),
    }
)
"""Operators that a rule replaces by others, whether or not the opset has them."""


_ALWAYS_REFUSED = ("not-constant", "shape-of-values")


def has_other_form(limit: Limit) -> bool:
    """Return whether what a limit strikes is written otherwise, mostly, and not refused."""
    if limit.when in OF_SHAPES or limit.when in _ALWAYS_REFUSED:
        return False  # it is the finished model that the first are asked of
    if limit.when in REMEDIED or limit.when in OF_TYPES or limit.lower_opset:
        return True
    schema: Any = onnx.defs.get_schema(limit.operator, NEWEST, "")
    has_body = schema.has_function or schema.has_context_dependent_function
    return limit.operator in REPLACED or has_body
