"""The index of the ScatterElements form: one row number per element of the update."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.emit.sizes import dim_key, positions
from onnx_kvtool.rewrite.lowering.tensor_scatter.facts import CacheUpdate
from onnx_kvtool.rewrite.lowering.tensor_scatter.modulus import wrapping_modulus
from onnx_kvtool.rewrite.lowering.tensor_scatter.start import (
    OUTSIDE,
    checked_start_int32,
    outside_where_negative,
)
from onnx_kvtool.symbolic.dimensions import product

__all__ = ["element_index"]


def element_index(
    em: Emitter,
    update: CacheUpdate,
    bounds: Literal["checked", "unchecked"],
    dtype: Literal["int64", "int32"],
) -> ir.Value:
    """Build the row number `start[b] + l` of every element of an update.

    Args:
        em: Where to build.
        update: The TensorScatter.
        bounds: As for `row_tuples`. `unchecked` with int32 narrows starts of 2^31 and more in
            silence; checked ones never wrap.
        dtype: Element type of the index.

    Returns:
        (B, D1, ..., L, ..., Dn), the shape of `update`. Built once per (write_indices, shapes,
        mode, bounds, dtype) and shared by every update that has the same.

    Raises:
        Refusal: If the rank is unknown, or the cache has more rows than an int32 index reaches.
    """
    if update.rank is None:
        raise Refusal(
            "unknown-rank",
            f"the rank of `{update.past_cache.name}` and `{update.update.name}` is unknown, and "
            "ScatterElements needs one index per element",
            help="declare the shape of the cache, or use `--via scatternd`",
        )
    if dtype == "int32" and isinstance(update.capacity, int) and update.capacity > OUTSIDE:
        raise Refusal(
            "cache-too-long",
            f"the cache has {update.capacity} rows, more than an int32 index can check",
            help="use `--index-dtype int64`",
        )
    return em.once(
        _key(update, bounds, dtype), lambda: _build(em, update, bounds == "checked", dtype)
    )


def _key(update: CacheUpdate, bounds: str, dtype: str) -> Hashable:
    dims = (*update.lead, *(update.trail or ()))
    shape = tuple(dim_key(d, update.update, i) for i, d in enumerate(dims))
    capacity = dim_key(update.capacity, update.past_cache, update.axis)
    wrap = capacity if update.mode == "circular" else None
    start = update.write_indices
    return ("element index", start, update.axis, shape, update.mode, wrap, bounds, dtype)


def _build(em: Emitter, update: CacheUpdate, checked: bool, dtype: str) -> ir.Value:
    assert update.rank is not None
    rows = positions(
        em, update.length, update.update, update.axis, place=update.axis, rank=update.rank
    )
    if update.write_indices is not None:
        column = em.constant([-1] + [1] * (update.rank - 1), "shape")
        starts = em.op("Reshape", update.write_indices, column, hint="starts")
        start = _start(em, update, starts, checked)
        rows = em.op("Add", start, rows, hint="row")  # (B, 1, ..., L, ..., 1)
        if update.mode == "circular" and update.length != 1:
            modulus = wrapping_modulus(em, update, checked=checked)
            rows = em.op("Mod", rows, modulus, hint="row")
        if update.mode == "circular" and checked:
            rows = outside_where_negative(em, starts, rows, update.rank)
    if dtype == "int32":
        rows = cast(em, rows, ir.DataType.INT32, "row_int32")
    return em.op("Expand", rows, _shape(em, update), dtype=rows.dtype or ir.DataType.INT64)


def _start(em: Emitter, update: CacheUpdate, starts: ir.Value, checked: bool) -> ir.Value:
    """Return the starts (B, 1, ..., 1) within the cache; those of linear mode certain to fail."""
    if update.mode == "circular":
        return em.op("Mod", starts, wrapping_modulus(em, update, checked=checked), hint="start")
    return checked_start_int32(em, starts) if checked else starts


def _shape(em: Emitter, update: CacheUpdate) -> ir.Value:
    """Return the shape of the update: (rank,), int64."""
    dims = (*update.lead, *(update.trail or ()))
    if product(dims) is not None:
        return em.constant(np.asarray(dims, np.int64), "shape")
    key = ("shape", update.update)
    return em.once(key, lambda: em.op("Shape", update.update))
