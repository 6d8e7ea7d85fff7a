"""The mask of Attention: what it hides, its bias, and caches without heads."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import (
    cast,
    positions,
    reduce,
    size,
    unsqueeze,
    where,
    with_hidden_keys,
)
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.symbolic.dimensions import Dim, dim_of, dims_of

# Which keys each query sees, as one value that all layers share.


@dataclass(frozen=True, slots=True)
class Window:
    """Everything but the user's mask that decides which keys a query sees.

    S is read at run time off `key_axis` of `keys`.
    """

    view: Attention
    keys: ir.Value
    key_axis: int

    @property
    def query_axis(self) -> int:
        """Dimension of the queries that is L."""
        return 1 if self.view.rank == 3 else 2

    @property
    def length(self) -> Dim:
        """L, where it is known."""
        return dim_of(self.view.query, self.query_axis)

    @property
    def total(self) -> Dim:
        """S, where it is known: of the keys given, with the past ones."""
        view = self.view
        added, before = dim_of(view.key, -2), dim_of(view.past_key, 2)
        if view.past_key is None:
            return added
        if isinstance(added, int) and isinstance(before, int):
            return before + added
        return dim_of(view.outputs.get("present_key"), 2)

    @property
    def hides(self) -> bool:
        """Whether any key may be hidden."""
        view = self.view
        sides = (view.left_window, view.right_window)
        return view.is_causal or view.nonpad_kv_seqlen is not None or max(sides) >= 0


def allowed_keys(em: Emitter, window: Window) -> ir.Value:
    """Return True where a query sees a key: (B or 1, 1, L or 1, S), bool.

    All layers that have the same window share it.
    """
    em, view = em.sharing, window.view
    columns = positions(  # (S,)
        em, window.keys, window.key_axis, place=0, rank=1, dim=window.total
    )
    conditions = []
    if view.is_causal or view.nonpad_kv_seqlen is not None or view.right_window >= 0:
        limit = _first_hidden(em, window)
        conditions.append(em.op("Less", columns, limit, hint="is_seen"))
    if view.nonpad_kv_seqlen is not None and not view.is_causal and view.right_window >= 0:
        conditions.append(em.op("Less", columns, _valid(em, view.nonpad_kv_seqlen)))
    if view.left_window >= 0:
        first = _shifted_rows(em, window, -view.left_window - 1)
        conditions.append(em.op("Less", first, columns, hint="is_near"))
    return functools.reduce(lambda a, b: em.op("And", a, b, hint="is_seen"), conditions)


def empty_rows(em: Emitter, window: Window) -> ir.Value | None:
    """Return True for queries that see no key at all: (B or 1, 1, L or 1, 1), bool.

    Their output is zero (onnx 1.23.2), where a softmax of nothing but minus infinity is NaN.

    Returns:
        None when every query certainly sees a key: without `nonpad_kv_seqlen`, row 0 is seen.
    """
    view = window.view
    if view.nonpad_kv_seqlen is None and view.left_window < 0:
        return None
    em = em.sharing
    # Where one limit decides, its sign tells; where several do, somebody has to look at all keys.
    if view.left_window < 0 and (view.is_causal or view.right_window < 0):
        return em.op("Less", _first_hidden(em, window), [1])
    seen = cast(em, allowed_keys(em, window), ir.DataType.FLOAT)
    return em.op("Less", reduce(em, "ReduceMax", seen, [-1]), [0.5], hint="empty_rows")


def _first_hidden(em: Emitter, window: Window) -> ir.Value:
    """Return the first key behind those that a query sees: (B or 1, 1, L or 1, 1).

    A causal query never sees a key beyond the valid ones, because the last query stands at the
    last valid key.
    """
    view = window.view
    if view.is_causal:
        return _shifted_rows(em, window, 1)
    if view.right_window >= 0:
        return _shifted_rows(em, window, view.right_window + 1)
    assert view.nonpad_kv_seqlen is not None
    return _valid(em, view.nonpad_kv_seqlen)


def _valid(em: Emitter, nonpad: ir.Value) -> ir.Value:
    """Return the number of valid keys as (B, 1, 1, 1)."""
    return em.op("Reshape", nonpad, [-1, 1, 1, 1], hint="valid_keys")


def _shifted_rows(em: Emitter, window: Window, shift: int) -> ir.Value:
    """Return the position of each query among the keys, plus `shift`: (B or 1, 1, L, 1)."""
    view = window.view
    query, axis, length = view.query, window.query_axis, window.length
    rows = positions(em, query, axis, place=2, rank=4)
    if view.nonpad_kv_seqlen is not None:
        valid = _valid(em, view.nonpad_kv_seqlen)
        if length == 1 and shift == 1:
            return valid
        if isinstance(length, int):
            steps = np.arange(length, dtype=np.int64).reshape(1, 1, -1, 1) + (shift - length)
            return em.op("Add", valid, steps, hint="row")
        rows = em.op("Sub", rows, size(em, query, axis), hint="row")
        rows = em.op("Add", rows, valid, hint="row")
    elif view.past_key is not None:
        rows = em.op("Add", rows, size(em, view.past_key, 2), hint="row")
    return em.op("Add", rows, em.constant([shift], "shift"), hint="row") if shift else rows


def mask_fits(mask: ir.Value, dtype: ir.DataType, heads: int | None = None) -> bool:
    """Return whether the user's mask can be combined with the window, but for its length.

    It must be of the type of the scores, or bool. With `heads`, H, it must be known whether it
    differs between heads.
    """
    dims = dims_of(mask)
    if dims is None or not 1 <= len(dims) <= 4 or mask.dtype not in (dtype, ir.DataType.BOOL):
        return False
    return heads is None or len(dims) < 3 or dims[-3] in (1, heads)


def mask_covers(mask: ir.Value, total: Dim) -> bool:
    """Return whether the user's mask is certainly S long, and not shorter as the schema allows."""
    return total is not None and dim_of(mask, -1) == total


def padded(em: Emitter, mask: ir.Value, window: Window, dtype: ir.DataType) -> ir.Value:
    """Return a mask as a bias of rank 4 that hides the keys behind its end, too.

    Attention-24 pads a mask that is shorter than S with minus infinity. It broadcasts to (B, H, L,
    M).
    """
    dims = dims_of(mask)
    assert dims is not None
    bias = mask if len(dims) == 4 else unsqueeze(em, mask, range(4 - len(dims)))
    if mask.dtype == ir.DataType.BOOL:
        nothing, hidden = (em.constant(np.array(n, dtype.numpy()), "number") for n in (0, -np.inf))
        bias = where(em, bias, nothing, hidden, hint="bias")
    total = size(em, window.keys, window.key_axis, window.total)
    missing = em.op("Sub", total, size(em, mask, len(dims) - 1), hint="missing")
    missing = em.op("Reshape", missing, [1], hint="missing")
    whole = with_hidden_keys(em, bias, missing)
    whole.shape = ir.Shape([1] * (4 - len(dims)) + [*dims[:-1], window.total])
    return whole


# What is added to the scores: the window and the user's mask as one value for all layers.


def bias_of(
    em: Emitter,
    window: Window,
    dtype: ir.DataType,
    heads: tuple[int, int],
) -> tuple[ir.Value | None, ir.Value | None]:
    """Return what is added to the scores, and True for rows that see no key.

    Args:
        em: Where to build.
        window: What hides keys beside the user's mask, which fits (see `mask_fits`).
        dtype: Element type of the scores.
        heads: H and KV.

    Returns:
        (B or 1, 1 or H, L or 1, S or 1), and the same with S = 1, where H = KV; where heads are in
        groups (B or 1, 1, 1, ...), or (B or 1, KV, G, ...) for a mask that differs between heads.
        None for nothing to add, and where every row certainly sees a key.
    """
    mask = window.view.attn_mask
    if not window.hides and mask is None:
        return None, None
    em = em.sharing
    bias = _sum_of_masks(em, window, mask, dtype)
    if mask is None:
        empty = empty_rows(em, window)
    else:
        empty = em.op("Equal", reduce(em, "ReduceMax", bias, [-1]), -np.inf, hint="empty_rows")
    if heads[0] == heads[1]:
        return bias, empty
    dims = dims_of(mask)
    is_per_head = dims is not None and len(dims) > 2 and dims[-3] == heads[0]

    def for_groups(value: ir.Value) -> ir.Value:
        apart = unsqueeze(em, value, [2])
        if not is_per_head:
            return apart
        return em.op("Reshape", apart, [0, heads[1], heads[0] // heads[1], 0, 0])

    return for_groups(bias), empty and for_groups(empty)


def _sum_of_masks(
    em: Emitter, window: Window, mask: ir.Value | None, dtype: ir.DataType
) -> ir.Value:
    if mask is not None and window.view.pads_mask and not mask_covers(mask, window.total):
        # It may end before the keys do, and hides those behind it.
        mask = padded(em, mask, window, dtype)
    elif mask is not None and mask.shape is not None and len(mask.shape) < 4:
        mask = unsqueeze(em, mask, range(4 - len(mask.shape)))
    seen = allowed_keys(em, window) if window.hides else None
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        seen = mask if seen is None else em.op("And", seen, mask, hint="is_seen")
        mask = None
    if seen is None:
        assert mask is not None
        return mask
    nothing, hidden = (em.constant(np.array(n, dtype.numpy()), "number") for n in (0.0, -np.inf))
    bias = where(em, seen, nothing, hidden, hint="bias")
    return bias if mask is None else em.op("Add", bias, mask, hint="bias")


# Keys and values of the layout (B, S, KV * width) as operands of a product over heads.
#
# A product wants the heads in front of the rows, which takes a Transpose of the whole cache in
# each step, where a fused kernel reads the rows with a stride. With a batch of one, onnxruntime
# (1.15 and later) reads them so too: it absorbs a Transpose that moves the first dimension alone,
# and S is the first dimension that counts.


def rows_stay(view: Attention) -> bool | None:
    """Return whether the rows can be read where they lie; None where the batch size decides.

    onnxruntime 1.31.1 divides by S there and dies of an empty cache: S has to be a number that is
    not zero.
    """
    for cache in (view.key, view.value):
        dims = dims_of(cache)
        if dims is None or not isinstance(dims[1], int) or dims[1] == 0:
            return False
    batches = [dims[0] for v in (view.query, view.key, view.value) if (dims := dims_of(v))]
    known = [batch for batch in batches if isinstance(batch, int)]
    return known[0] == 1 if known else None


def flat_operand(
    em: Emitter,
    cache: ir.Value,
    heads: tuple[int, ...],
    width: int,
    *,
    turned: bool,
    stays: bool,
) -> ir.Value:
    """Return (B, S, KV * width) as (B, *heads, S, width), or with the last two exchanged.

    It takes one Transpose: two in a row would be merged by onnxruntime into one of a slow kind
    (measured: nine times slower with an Unsqueeze in between).

    `heads` is (KV,), or (KV, 1) where the product broadcasts over groups of query heads. `stays`: B
    is 1 and the Transpose shall move the rows alone; see `rows_stay`.
    """
    dims, last = dims_of(cache), len(heads) + 2
    lead, rows = [0, 0], 1
    if stays:
        assert dims is not None
        assert isinstance(dims[1], int)
        lead, rows = [dims[1], 1], 0
    split = em.op("Reshape", cache, [*lead, *heads, width])
    others = [axis for axis in range(last) if axis != rows]
    perm = [*others, *((last, rows) if turned else (rows, last))]
    return em.op("Transpose", split, perm=perm)
