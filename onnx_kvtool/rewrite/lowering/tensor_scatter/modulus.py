"""The modulus of a circular cache."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.rewrite.lowering.tensor_scatter.facts import CacheUpdate

__all__ = ["wrapping_modulus"]


def wrapping_modulus(em: Emitter, update: CacheUpdate, *, checked: bool) -> ir.Value:
    """Return the modulus of a circular cache: (), int64, at least 1 so that it divides.

    With `checked` it is the larger of S and L where these are known at run time only. L > S is
    forbidden, but modulo S it would only write some rows twice; modulo L, the L consecutive rows
    reach row L - 1, which lies outside the cache and fails.
    """
    capacity, length = update.capacity, update.length
    least = 1
    values = []
    if isinstance(capacity, int):
        least = max(least, capacity)
    else:
        values.append(size(em, capacity, update.past_cache, update.axis))
    if checked and not (isinstance(capacity, int) and isinstance(length, int)):
        if isinstance(length, int):
            least = max(least, length)
        else:
            values.append(size(em, length, update.update, update.axis))
    key = ("modulus", tuple(values), least)
    return em.once(key, lambda: _largest(em, [*values, em.constant(least, "size")]))


def _largest(em: Emitter, values: list[ir.Value]) -> ir.Value:
    """Return the largest of some scalars; Max takes integers from opset 12 on."""
    largest, *others = values
    if em.opset >= 12:
        return em.op("Max", *values, hint="modulus") if others else largest
    for other in others:
        less = em.op("Less", largest, other, dtype=ir.DataType.BOOL)
        largest = em.op("Where", less, other, largest, hint="modulus")
    return largest
