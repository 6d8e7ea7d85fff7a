"""How the outputs of a case differ from what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.conformance.corpus import Case

__all__ = ["RANDOM", "difference_of"]

RANDOM = frozenset(
    {
        "bernoulli",
        "bernoulli_double",
        "bernoulli_seed",
        "training_dropout",
        "training_dropout_default",
        "training_dropout_default_mask",
        "training_dropout_mask",
    }
)
"""Cases whose outputs are drawn anew in each run: types and shapes are compared only."""

_ABSOLUTE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "complex64": 1e-5}
"""Absolute tolerance of arithmetic; a result of zero has no relative one. Others: 1e-7."""


def difference_of(case: Case, outputs: Sequence[Any]) -> str | None:
    """Return how outputs differ from the expected ones, beyond the case's tolerance; None if not.

    Types, shapes, strings, booleans and integers must be equal; NaN equals NaN.
    """
    if len(outputs) != len(case.expected):
        return f"{len(outputs)} outputs, expected {len(case.expected)}"
    for got, expected in zip(outputs, case.expected, strict=True):
        if (text := _unlike(case, got, expected)) is not None:
            return text
    return None


def _unlike(case: Case, got: Any, expected: Any) -> str | None:
    if expected is None or got is None:
        return None if got is None and expected is None else "one is absent"
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return "sequences of different length"
        pairs = zip(got, expected, strict=True)
        return next((text for a, b in pairs if (text := _unlike(case, a, b))), None)
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape:
        return f"shape {a.shape}, expected {b.shape}"
    if b.dtype.kind in "OUS":
        return None if a.tolist() == b.tolist() else "other strings"
    if a.dtype != b.dtype:
        return f"{a.dtype}, expected {b.dtype}"
    if case.name in RANDOM:
        return None
    if b.dtype.kind in "biu":
        return None if np.array_equal(a, b) else "other integers"
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    rtol, atol = max(case.rtol, 1e-3), _ABSOLUTE.get(b.dtype.name, 1e-7)
    with np.errstate(all="ignore"):
        same = np.allclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol, equal_nan=True)
    return None if same else "other numbers"
