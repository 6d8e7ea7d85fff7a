"""TensorScatter and Attention: operators with a cache."""

from __future__ import annotations

from onnx_kvtool.ops.operators import Attention, TensorScatter
from onnx_kvtool.symbolic.dimensions import Shape, shape_words, words
from onnx_kvtool.symbolic.expressions import integer
from onnx_kvtool.symbolic.rules.site import (
    Shapes,
    ShapeSite,
    changed,
    malformed_if,
    placed,
)
from onnx_kvtool.symbolic.simplification import divided, interval

_FIRST = 24
"""The opset that introduced TensorScatter."""


def tensor_scatter(site: ShapeSite) -> Shapes:
    """TensorScatter: present has the shape of past; all sizes but the sequence's are update's too.

    onnx's own inference copies the shape of past and looks at nothing else. A sequence that is
    longer than the cache, axis 0 and write_indices of another length are conflicts here.
    """
    view = TensorScatter(site.node, max(site.opset, _FIRST))
    past = site.shape(0)
    axis = placed(view.axis, len(past))
    if axis == 0:
        site.conflict("bad-axis", 0, "`axis` 0", "`axis` of 1 or more", "axis 0 is the batch")
        return (past,)
    update = site.knowledge.shapes.get(view.update)
    if update is not None:
        _check_update(site, past, update, axis)
    index = site.given(2)
    start = None if index is None else site.knowledge.shapes.get(index)
    if start is not None:
        if len(start) != 1:
            wanted = shape_words((past[0],))
            site.conflict("operand-shape", 2, shape_words(start), wanted, "one start per row")
        else:
            site.same(past[0], start[0], 2, 0, "batch size")
    return (past,)


def _check_update(site: ShapeSite, past: Shape, update: Shape, axis: int) -> None:
    if len(update) != len(past):
        wanted = shape_words(changed(past, axis, site.lost(axis, "")))
        site.conflict("operand-shape", 1, shape_words(update), wanted, "rank of the cache")
        return
    for i, (size, other) in enumerate(zip(past, update, strict=True)):
        if i != axis:
            site.same(size, other, 1, i, "batch size" if i == 0 else f"size of axis {i}")
    known = site.knowledge.equalities
    longer = known.resolved(update[axis]) - known.resolved(past[axis])
    if interval(longer)[0] > 0:
        what = (
            f"sequence_length {words(update[axis])} exceeds "
            f"max_sequence_length {words(past[axis])} of axis {axis}"
        )
        site.conflict("sequence-too-long", 1, shape_words(update), shape_words(past), what)


def attention(site: ShapeSite) -> Shapes:
    """Attention-23/24/25: present is past and key one behind the other."""
    view = Attention(site.node, site.opset)
    q, k, v = site.shape_of(view.query), site.shape_of(view.key), site.shape_of(view.value)
    malformed_if(
        not len(q) == len(k) == len(v) or len(q) not in (3, 4),
        "Q, K and V are not all of rank 3, or all of rank 4",
    )
    batch = site.same(site.same(q[0], k[0], 1, 0, "batch size"), v[0], 2, 0, "batch size")
    if len(q) == 4:
        heads, kv_heads, length, rows = q[1], k[1], q[2], k[2]
        key_size, value_size = k[3], v[3]
        site.same(k[1], v[1], 2, 1, "number of heads")
        site.same(rows, v[2], 2, 2, "number of rows")
    else:
        counts = [view.attribute(f"{name}_num_heads") for name in ("q", "kv")]
        numbers = [n for n in counts if isinstance(n, int) and n > 0]
        malformed_if(len(numbers) != 2, "`q_num_heads` or `kv_num_heads` is absent at rank 3")
        heads, kv_heads, length, rows = integer(numbers[0]), integer(numbers[1]), q[1], k[1]
        site.same(rows, v[1], 2, 1, "number of rows")
        # A width that is no multiple of the number of heads fails.
        key_size, value_size = (divided(width, kv_heads) for width in (k[2], v[2]))
    total = rows
    for index, past in ((4, view.past_key), (5, view.past_value)):
        if past is not None and len(shape := site.shape_of(past)) == 4:
            site.same(batch, shape[0], index, 0, "batch size")
            site.same(kv_heads, shape[1], index, 1, "number of heads")
            total = shape[2] + rows
    output: Shape = (batch, heads, length, value_size)
    if len(q) == 3:
        output = (batch, length, divided(v[2] * heads, kv_heads))
    return (
        output,
        (batch, kv_heads, total, key_size),
        (batch, kv_heads, total, value_size),
        (batch, heads, length, total),
    )
