"""What is known of a TensorScatter before it is lowered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import constant_integers
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import size
from onnx_kvtool.ops.operators import Mode, TensorScatter
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import Dim, Dims, contradict, dims_of, merge

# The guard: everything that must be known of a TensorScatter before it can be lowered.


@dataclass(frozen=True, slots=True)
class CacheUpdate:
    """What is known of one TensorScatter.

    Attributes:
        past_cache: (B, D1, ..., S, ..., Dn).
        update: (B, D1, ..., L, ..., Dn).
        write_indices: (B,), int64; None means zero for every batch row.
        starts: The values of `write_indices` when they are constant.
        axis: The sequence axis, counted from the front; at least 1.
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
    lead: Dims
    capacity: Dim
    trail: Dims | None

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


def _dims(view: TensorScatter, axis: int) -> tuple[Dims, Dims]:
    """Return the dimensions of cache and update, up to the axis where the rank is unknown."""
    unknown: Dims = (None,) * (view.rank or axis + 1)
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


# Sizes that follow from a TensorScatter alone, and that no scatter by index says any more.


def declared_updates(model: ir.Model, opset: int) -> Callable[[], None]:
    """Return a function that declares what only a TensorScatter says of its update, in place.

    TensorScatter demands that an update has the sizes of the cache but along its axis. A scatter by
    index writes a part of the cache where they differ, so that the graph no longer says that they
    do not; the declared shape of the update does. What inference finds is not declared, and inputs
    and outputs of graphs keep their shape.

    Call the function when the model is lowered and what was inferred is taken away.
    """
    found: dict[ir.Value, dict[int, Dim]] = {}
    unknown: dict[ir.Value, tuple[ir.TypeProtocol | None, Dims]] = {}
    for _, _, node in nodes(model):
        if node.op_type != "TensorScatter" or node.domain != "":
            continue
        try:
            view = TensorScatter(node, opset)
            axis = view.sequence_axis
        except MalformedNode:
            continue
        producer = view.update.producer()
        if producer is None or producer.graph is not node.graph:
            continue  # in another graph it is there, too, where this node never runs
        past, update = dims_of(view.past_cache), dims_of(view.update)
        if axis is None or past is None or (update is not None and len(update) != len(past)):
            continue
        lacking = {
            i: size
            for i, size in enumerate(past)
            if i != axis and size is not None and (update is None or update[i] is None)
        }
        if lacking:
            found.setdefault(view.update, {}).update(lacking)
            unknown[view.update] = view.past_cache.type, (None,) * len(past)

    def declare() -> None:
        for value, sizes in found.items():
            type_, dims = unknown[value]
            if value.is_graph_output():
                continue
            value.type = value.type or type_
            dims = dims_of(value) or dims
            value.shape = ir.Shape([sizes.get(i) if d is None else d for i, d in enumerate(dims)])

    return declare


# The modulus of a circular cache.


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
        values.append(size(em, update.past_cache, update.axis, capacity))
    if checked and not (isinstance(capacity, int) and isinstance(length, int)):
        if isinstance(length, int):
            least = max(least, length)
        else:
            values.append(size(em, update.update, update.axis, length))
    em = em.sharing
    largest, *others = [*values, em.constant(least, "size")]
    if em.opset >= 12:  # where Max takes integers
        return em.op("Max", largest, *others, hint="modulus") if others else largest
    for other in others:
        less = em.op("Less", largest, other)
        largest = em.op("Where", less, other, largest, hint="modulus")
    return largest


# Where each batch row starts to write, as a value that fails where TensorScatter fails.


OUTSIDE = 2**30
"""A row beyond every cache. Not larger, because some runtimes narrow int64 to int32."""

_LARGEST = 2**31 - 1
"""No size reaches it, and readers that narrow int64 to int32 keep it."""


def row_or_outside(
    em: Emitter, start: ir.Value, row: ir.Value, outside: ir.Value, width: int, *, wraps: bool
) -> ir.Value:
    """Return index tuples of one sequence: `outside`, with the row last if its start is legal.

    Args:
        em: Where to build.
        start: One number, int64.
        row: One number: the row of a legal start.
        outside: (1, ..., k), of rank k + 1: the other coordinates, and `OUTSIDE` last.
        width: k.
        wraps: Whether a start may be larger than every size.
    """
    shape = (*[1] * width, width)
    if wraps:
        is_last = np.zeros(shape, np.bool_)
        is_last[..., -1] = True
        legal = em.op("Less", [-1], start, hint="is_legal")
        is_row = em.op("And", is_last, legal, hint="is_row")
    else:
        # One comparison tells the coordinates apart and judges the start. One that is larger than
        # the limit becomes every coordinate, and is outside in each.
        limits = np.full(shape, _LARGEST, np.int64)
        limits[..., -1] = -1
        is_row = em.op("Less", limits, start, hint="is_row")
    return em.op("Where", is_row, row, outside, hint="start")


def outside_where_negative(em: Emitter, starts: ir.Value, rows: ir.Value, rank: int) -> ir.Value:
    """Return rows (B, 1, ..., L or 1, ..., 1), each at `OUTSIDE` where its start is negative.

    A negative index would count from the end in ScatterND, and a remainder would bring it back into
    a circular cache; TensorScatter demands that it fails. `starts` are (B, 1, ..., 1), or (1,).
    """
    zero = em.constant(np.zeros([1] * rank, np.int64), "zero")
    negative = em.op("Less", starts, zero, hint="is_negative")
    return em.op("Where", negative, em.constant(OUTSIDE, "outside"), rows, hint="row")


def checked_start_int32(em: Emitter, starts: ir.Value) -> ir.Value:
    """Return `starts` with everything outside [0, `OUTSIDE`) replaced by `OUTSIDE`.

    For indices that are narrowed to int32 or read by a runtime that must not see an index below
    -S (OpenVINO 2026.4.1 crashes on one in ScatterElements): no start wraps on the way.
    """
    outside = em.constant(OUTSIDE, "outside")
    inside = em.op("Mod", starts, outside, hint="start_mod")
    same = em.op("Equal", inside, starts, hint="start_is_legal")
    return em.op("Where", same, starts, outside, hint="start")
