"""Sizes of a value as values: constants where they are known, Shape and Gather where not."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.symbolic.dimensions import Dim

__all__ = ["dim_key", "positions", "size"]


def dim_key(dim: Dim, value: ir.Value, axis: int) -> Hashable:
    """Return what a size depends on: its number, its name, or this very value and axis.

    A name stands for one size in the whole model, so two values that share it share the size.
    """
    return dim if dim is not None else (value, axis)


def size(em: Emitter, dim: Dim, value: ir.Value, axis: int) -> ir.Value:
    """Return the size of `value` on `axis`: (), int64."""
    if isinstance(dim, int):
        return em.constant(dim, "size")

    def build() -> ir.Value:
        shape = em.once(("shape", value), lambda: em.op("Shape", value))
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
