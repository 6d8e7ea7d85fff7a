"""Sizes of an update as values: constants where they are known, Shape and Gather where not."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.dims import Dim
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.tensor_scatter.facts import CacheUpdate

__all__ = ["dim_key", "positions", "size", "wrapping_modulus"]


def dim_key(dim: Dim, value: ir.Value, axis: int) -> Hashable:
    """Return what a size depends on: its number, its name, or this very value and axis.

    A name stands for one size in the whole model, so two values that share it share the size.
    """
    return dim if dim is not None else (id(value), axis)


def size(em: Emitter, dim: Dim, value: ir.Value, axis: int) -> ir.Value:
    """Return the size of `value` on `axis`: (), int64."""
    if isinstance(dim, int):
        return em.constant(dim, "size")

    def build() -> ir.Value:
        shape = em.once(("shape", id(value)), lambda: em.op("Shape", value))
        return em.op("Gather", shape, em.constant(axis, "axis"), hint="size")

    return em.once(("size", dim_key(dim, value, axis)), build)


def positions(
    em: Emitter, dim: Dim, value: ir.Value, axis: int, *, place: int, rank: int
) -> ir.Value:
    """Return 0, 1, ... along dimension `place` of a shape of `rank` dimensions, the others 1.

    Args:
        em: Where to build.
        dim: The size, where it is known.
        value: Value from which the size is read at run time where it is not a number.
        axis: Dimension of `value` that has this size.
        place: Dimension along which the result counts.
        rank: Rank of the result.

    Returns:
        (1, ..., size, ..., 1), int64; empty when the size is 0.
    """
    target = [1] * rank
    if isinstance(dim, int):
        target[place] = dim
        return em.constant(np.arange(dim, dtype=np.int64).reshape(target), "positions")
    target[place] = -1

    def build() -> ir.Value:
        count = em.once(
            ("range", dim_key(dim, value, axis)),
            lambda: em.op("Range", em.constant(0), size(em, dim, value, axis), em.constant(1)),
        )
        return em.op("Reshape", count, em.constant(target, "shape"), hint="positions")

    return em.once(("positions", dim_key(dim, value, axis), place, rank), build)


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
    key = ("modulus", tuple(id(v) for v in values), least)
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
