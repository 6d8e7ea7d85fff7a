"""Positions that are computed in 32 bits and may leave their range before they wrap."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.element_type import WHOLE_TYPES
from onnx_kvtool.rewrite.raising.proof import Proof
from onnx_kvtool.symbolic.simplification import interval

__all__ = ["check_no_overflow"]

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1
_MOST = 1024
"""Most values that are looked at."""


def check_no_overflow(proof: Proof, indices: ir.Value) -> None:
    """Prove that no number of 32 bits that `indices` is computed from leaves its range.

    What an index map says is said of integers without bounds. For rows that do not wrap that makes
    no difference: such a position is outside every cache. A modulus brings it back into the cache,
    to another row than TensorScatter, which computes in 64 bits, writes.

    Raises:
        Unproven: If one may, or if there are too many to look at.
    """
    pending, seen = [indices], {indices}
    while pending:
        value = pending.pop()
        described = proof.maps.of(value)
        if described.dtype == ir.DataType.INT32:
            ends = [end for part in described.parts for end in interval(part, described.facts)]
            if any(not _LOWEST <= end <= _HIGHEST for end in ends):
                raise Unproven(
                    "narrow-positions",
                    f"`{value.name}` is computed in 32 bits and may leave their range before it "
                    "wraps",
                )
        node = value.producer()
        for operand in () if node is None or node.domain != "" else node.inputs:
            is_integer = operand is not None and proof.maps.of(operand).dtype in WHOLE_TYPES
            if operand is not None and is_integer and operand not in seen:
                seen.add(operand)
                pending.append(operand)
        if len(seen) > _MOST:
            raise Unproven("narrow-positions", f"`{indices.name}` is computed from too many values")
