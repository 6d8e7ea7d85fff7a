"""The guard: everything that must be known of a TensorScatter before it can be lowered."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.constants import constant_integers
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.ops.tensor_scatter import Mode, TensorScatter
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import Dim, contradict, dims_of, merge

__all__ = ["CacheUpdate", "cache_update"]


@dataclass(frozen=True, slots=True)
class CacheUpdate:
    """What is known of one TensorScatter.

    Attributes:
        past_cache: (B, D1, ..., S, ..., Dn).
        update: (B, D1, ..., L, ..., Dn).
        write_indices: (B,), int64; None means zero for every batch row.
        starts: The values of `write_indices` when they are constant.
        dtype: Element type of the cache.
        axis: The sequence axis, counted from the front; at least 1.
        mode: `linear` or `circular`.
        lead: Dimensions of `update` up to and with the sequence axis: (B, D1, ..., L).
        capacity: S, max_sequence_length.
        trail: Dimensions behind the sequence axis; None when the rank is unknown.
    """

    past_cache: ir.Value
    update: ir.Value
    write_indices: ir.Value | None
    starts: tuple[int, ...] | None
    dtype: ir.DataType
    axis: int
    mode: Mode
    lead: tuple[Dim, ...]
    capacity: Dim
    trail: tuple[Dim, ...] | None

    @property
    def rank(self) -> int | None:
        """Rank of cache and update; None when unknown."""
        return None if self.trail is None else len(self.lead) + len(self.trail)

    @property
    def length(self) -> Dim:
        """L, sequence_length."""
        return self.lead[-1]


def cache_update(node: ir.Node, opset: int) -> CacheUpdate:
    """Read a TensorScatter and check all that its specification demands and that is known.

    Raises:
        MalformedNode: If the node breaks the specification for certain: see `TensorScatter`; also
            element types or non-sequence dimensions that differ, sequence_length above
            max_sequence_length, `write_indices` that are not (batch_size,) of int64, or constant
            starts that leave the cache.
        Refusal: If the sequence axis or the element type cannot be known.
    """
    view = TensorScatter(node, opset)
    axis = view.sequence_axis
    if axis is None:
        raise Refusal(
            "unknown-rank",
            f"`axis` is {view.axis}, counted from the end, and the rank of "
            f"`{view.past_cache.name}` and `{view.update.name}` is unknown",
            help="declare the shape of the cache, or write `axis` counted from the front",
        )
    past, update = _dims(view, axis)
    dims = tuple(
        _common(view, i, p, u) if i != axis else u
        for i, (p, u) in enumerate(zip(past, update, strict=True))
    )
    batch, starts = _starts(view, dims[0])
    dims = (batch, *dims[1:])
    _check_length(view, past[axis], dims[axis], starts)
    return CacheUpdate(
        past_cache=view.past_cache,
        update=view.update,
        write_indices=view.write_indices,
        starts=starts,
        dtype=_dtype(view),
        axis=axis,
        mode=view.mode,
        lead=dims[: axis + 1],
        capacity=past[axis],
        trail=None if view.rank is None else dims[axis + 1 :],
    )


def _dims(view: TensorScatter, axis: int) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Return the dimensions of cache and update, up to the axis where the rank is unknown."""
    unknown: tuple[Dim, ...] = (None,) * (view.rank or axis + 1)
    past, present = dims_of(view.past_cache), dims_of(view.present_cache)
    if past is not None and present is not None:
        past = tuple(merge(a, b) for a, b in zip(past, present, strict=True))
    return past or present or unknown, dims_of(view.update) or unknown


def _common(view: TensorScatter, index: int, past: Dim, update: Dim) -> Dim:
    if contradict(past, update):
        raise MalformedNode(
            "non-axis-dim-mismatch",
            f"dimension {index} of `{view.past_cache.name}` is {past}, "
            f"that of `{view.update.name}` is {update}; they may differ on the sequence axis only",
        )
    return merge(update, past)


def _dtype(view: TensorScatter) -> ir.DataType:
    known = {v.name: v.dtype for v in (view.past_cache, view.update, view.present_cache) if v.dtype}
    if len(set(known.values())) > 1:
        given = ", ".join(f"`{name}` is {dtype.name}" for name, dtype in known.items())
        raise MalformedNode("dtype-mismatch", f"the element types differ: {given}")
    if not known:
        raise Refusal(
            "unknown-element-type",
            f"the element type of `{view.past_cache.name}` is unknown",
            help="declare the type of the cache",
        )
    return next(iter(known.values()))


def _starts(view: TensorScatter, batch: Dim) -> tuple[Dim, tuple[int, ...] | None]:
    """Return the batch size and, where they are constant, the starts."""
    value = view.write_indices
    if value is None:
        return batch, None
    if value.dtype not in (None, ir.DataType.INT64):
        raise MalformedNode(
            "write-indices-dtype", f"`{value.name}` is {value.dtype.name}, expected INT64"
        )
    dims = dims_of(value)
    if dims is None:
        return batch, constant_integers(value)
    if len(dims) != 1 or contradict(dims[0], batch):
        raise MalformedNode(
            "write-indices-shape",
            f"`{value.name}` has shape ({', '.join(map(str, dims))}), "
            f"expected (batch_size,) with batch_size {batch}",
        )
    return merge(batch, dims[0]), constant_integers(value)


def _check_length(
    view: TensorScatter, capacity: Dim, length: Dim, starts: tuple[int, ...] | None
) -> None:
    if not isinstance(length, int):
        return
    if isinstance(capacity, int) and length > capacity:
        raise MalformedNode(
            "update-longer-than-cache",
            f"sequence_length {length} of `{view.update.name}` is above "
            f"max_sequence_length {capacity} of `{view.past_cache.name}`",
        )
    for row, start in enumerate(starts or ()):
        if view.mode == "circular" and start >= 0:
            continue
        if start < 0 or (isinstance(capacity, int) and start + length > capacity):
            raise MalformedNode(
                "write-out-of-range",
                f"write_indices[{row}] is {start}, so that rows {start} to {start + length - 1} "
                f"are written to a cache of {capacity} rows",
            )
