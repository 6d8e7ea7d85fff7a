"""One output of two models, judged by how far rounding takes the first from its twin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx_kvtool.runtime.comparison.compare import (
    Mask,
    OutputDifference,
    Tolerance,
    bits_differ,
    compare,
    largest,
    tolerance_of,
)
from onnx_kvtool.runtime.comparison.noise import MARGIN
from onnx_kvtool.runtime.sessions import Array

__all__ = ["Pair", "distance"]

_ONE_IN = 8
"""Of so many decisions one may fall the other way though none of those that were seen did."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An output of both models, and that of the twin of A."""

    name: str
    a: Array
    b: Array
    exact: bool | Mask
    twin: Array

    def allowed(self, evaluations: list[Array], usual: Tolerance) -> Tolerance:
        """Return the tolerance that follows from how far A lies from its twin."""
        a = self.a
        rounding = max(distance(value, self.twin) or 0.0 for value in evaluations)
        because = f"{usual.because}, which moves A by up to {rounding:.2g}"
        if a.dtype.kind in "iu" or a.dtype.name in ("int4", "uint4"):
            return Tolerance(0.0, MARGIN * rounding, because)
        # Rows that were in the cache before say nothing of the size of those that were computed.
        scale = largest(self.twin, self.exact) or 1.0
        # To float8 values are rounded once more, to either side.
        rtol = tolerance_of(a.dtype).rtol if a.dtype.itemsize == 1 else 0.0
        return Tolerance(rtol, max(MARGIN * rounding, usual.rtol * scale), because)

    def rounded(self, tolerance: Tolerance, overflowed: Mask) -> OutputDifference:
        """Judge numbers, but for those of A that overflow."""
        expected = np.where(overflowed, self.b, self.a) if overflowed.any() else self.a
        rtol, atol = tolerance.rtol, tolerance.atol
        return compare(self.name, expected, self.b, exact=self.exact, rtol=rtol, atol=atol)

    def decided(self, evaluations: list[Array]) -> OutputDifference:
        """Judge decisions by how many of them rounding turns, not by how far."""
        found = compare(self.name, self.a, self.b, exact=self.exact)
        if found.within or found.max_abs_diff is None:
            return found
        wrong = bits_differ(self.a, self.b)
        if (wrong & self.exact).any():
            return found
        turned = max(np.count_nonzero(bits_differ(value, self.twin)) for value in evaluations)
        most = max(1, MARGIN * turned, self.a.size / _ONE_IN)
        if np.count_nonzero(wrong) > most:
            return found
        return replace(found, within=True, first_mismatch=None, reason=None)


def distance(one: Array, other: Array) -> float | None:
    """Return the largest distance of elements that are finite in both; None for other shapes."""
    if one.shape != other.shape or (one.dtype == np.dtype(object)) != (
        other.dtype == np.dtype(object)
    ):
        return None
    # A cache is large: nothing wider is made of it than has to be.
    wide = np.float64 if max(one.dtype.itemsize, other.dtype.itemsize) > 4 else np.float32
    return compare("", _wide(one, wide), _wide(other, wide)).max_abs_diff


def _wide(value: Array, dtype: type[np.floating[Any]]) -> Array:
    """Return floats of any type as `dtype`, so that types may differ."""
    if value.dtype == np.dtype(object) or value.dtype.kind in "biuc":
        return value
    is_integer = value.dtype.name in ("int4", "uint4")
    return value.astype(np.int64 if is_integer else dtype, copy=False)
