"""The shapes of scores whose query heads are rows of one operand for each key/value head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.rewrite.lowering.attention.mask import Window
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["ScoreShapes", "shapes_together"]

_ALLOWS_ZERO = 14
"""Opset from which a Reshape takes a size of 0 for what it is."""


@dataclass(frozen=True, slots=True)
class ScoreShapes:
    """What a Reshape of scores is given.

    Attributes:
        apart: (B, KV, G, L, S).
        together: (B, KV, G * L, S).
        rows: (B, KV, G * L, width), for the width that it is given.
        groups: (B, KV, G, L, width), likewise.
        has_zeros: Whether a 0 is a size, and not one of the operand.
    """

    apart: ir.Value
    together: ir.Value
    rows: Callable[[int], ir.Value]
    groups: Callable[[int], ir.Value]
    has_zeros: bool


def shapes_together(em: Emitter, window: Window, kv_heads: int, group: int) -> ScoreShapes | None:
    """Return how scores of the heads of a group are put together and taken apart.

    Shapes that are computed at run time are made once for all layers.

    Returns:
        None where neither L nor S is a number above 0, and no Reshape tells a size of 0 from one
        that stays.
    """
    total = window.total

    def constants(apart: list[int], together: list[int]) -> ScoreShapes:
        return ScoreShapes(
            em.constant(apart, "shape"),
            em.constant(together, "shape"),
            lambda width: em.constant([0, kv_heads, -1, width], "shape"),
            lambda width: em.constant([0, kv_heads, group, -1, width], "shape"),
            has_zeros=False,
        )

    if isinstance(total, int) and total > 0:
        return constants([0, kv_heads, group, -1, total], [0, kv_heads, -1, total])
    rows = window.length
    if isinstance(rows, int) and rows > 0:
        return constants([0, kv_heads, group, rows, -1], [0, kv_heads, group * rows, -1])
    if em.opset < _ALLOWS_ZERO:
        return None
    dims = dims_of(window.query)
    batch = _vector(em, dims[0] if dims else None, window.query, 0)
    length = _vector(em, window.length, window.query, window.query_axis)
    keys = _vector(em, total, window.keys, window.key_axis)
    axis = {"axis": 0}

    def apart(last: ir.Value) -> ir.Value:
        heads = em.constant([kv_heads, group], "heads")
        key = ("heads apart", batch, heads, length, last)
        parts = batch, heads, length, last
        return em.once(key, lambda: em.op("Concat", *parts, attributes=axis, hint="apart"))

    def together(last: ir.Value) -> ir.Value:
        heads, times = em.constant([kv_heads], "heads"), em.constant([group], "group")
        rows = em.once(("rows", length, times), lambda: em.op("Mul", length, times, hint="rows"))
        key = ("heads together", batch, heads, rows, last)
        parts = batch, heads, rows, last
        return em.once(key, lambda: em.op("Concat", *parts, attributes=axis, hint="together"))

    return ScoreShapes(
        apart(keys),
        together(keys),
        lambda width: together(em.constant([width], "width")),
        lambda width: apart(em.constant([width], "width")),
        has_zeros=True,
    )


def _vector(em: Emitter, dim: Dim, value: ir.Value, axis: int) -> ir.Value:
    """Return a size as a vector of one."""
    number = size(em, dim, value, axis)
    one = em.constant([1], "one")
    return em.once(("vector", number), lambda: em.op("Reshape", number, one, hint="size"))
