"""NonMaxSuppression, RoiAlign and windows of pictures."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Refusal
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    computed_in,
    dtype_of,
    formal,
    known_dims,
    known_type,
    looped,
    terms,
    unsqueeze,
)
from onnx_kvtool.emit.sampling import Axis, clip, combined, linear_taps, pixel_rows
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import (
    clamped,
    count_up,
    product,
)
from onnx_kvtool.rewrite.lowering.roi_align import Pool, sides_of
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

# NonMaxSuppression-10, for opset 9.


_BOOL = ir.DataType.BOOL
_INT64 = ir.DataType.INT64
_FLOAT = ir.DataType.FLOAT


def lower_non_max_suppression_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Take the best box of each class in a Loop, and drop those that overlap it too much.

    Each round is one of all batches and classes, and there are at most as many as there are boxes.
    Of equal scores the first is the best. Boxes without an area overlap nothing, as onnxruntime has
    it.

    Refuses an unknown rank.
    """
    scores = Term(em, view.required("scores"))
    dims = known_dims(scores.value)
    batch, classes, count = (product(em, scores.value, dims, [axis]) for axis in range(3))
    sides = _sides(em, view)
    most = view.input("max_output_boxes_per_class")
    rounds = em.constant(0, "rounds")  # (), int64: none if the node does not say
    if most is not None:
        asked = Term(em, most).op("Reshape", [1])
        rounds = clamped(asked, [0], count).op("Reshape", []).value
    threshold = view.input("score_threshold")
    if threshold is None:
        shape = em.op("Concat", batch, classes, count, axis=0)
        alive = Term(em, em.op("Expand", np.array([True]), shape))
    else:
        alive = scores > _one(em, threshold)
    overlap = _one(em, view.input("iou_threshold"))
    return _listed(*_searched(scores, sides, batch, count, overlap, rounds, alive))


def _one(em: Emitter, value: ir.Value | None) -> Operand:
    """Return a float32 number of one dimension, 0 for none: (1,)."""
    return np.zeros(1, np.float32) if value is None else em.op("Reshape", value, [1])


class _Sides(NamedTuple):
    """Where boxes begin and end, each (B, N), float32."""

    left: Term
    top: Term
    right: Term
    bottom: Term
    area: Term


def _sides(em: Emitter, view: NodeView) -> _Sides:
    a, b, c, d = (Term(em, em.op("Gather", view.required("boxes"), i, axis=2)) for i in range(4))
    if view.integer("center_point_box"):
        wide, high = c / 2, d / 2
        left, top, right, bottom = a - wide, b - high, a + wide, b + high
    else:
        left, right = b.op("Min", d), b.op("Max", d)
        top, bottom = a.op("Min", c), a.op("Max", c)
    return _Sides(left, top, right, bottom, (right - left) * (bottom - top))


def _searched(
    scores: Term,
    sides: _Sides,
    batch: Term,
    count: Term,
    threshold: Operand,
    rounds: ir.Value,
    alive: Term,
) -> tuple[Term, Term]:
    """Return the best box of each round, by scores (B, C, N), and whether it is one: (K, B, C, 1).

    `batch` is B, `count` N, and `threshold` the share of overlap that is too much, each (1,).
    """
    em, scores = scores.em, scores.op("Max", float(np.finfo(np.float32).min))
    places = count_up(em, count)  # (N,)
    first = (count_up(em, batch) * count).then(unsqueeze, [1, 2])  # (B, 1, 1)
    others = _Sides(*(side.then(unsqueeze, [1]) for side in sides))  # (B, 1, N)
    columns = (side.then(unsqueeze, [2]) for side in sides)
    table = em.op("Reshape", em.op("Concat", *columns, axis=2), [-1, 5])
    state = Term(em, formal(em, "alive", _BOOL, [None] * 3))

    def one_round(*_: ir.Value) -> list[ir.Value]:
        left = state.where(scores, -np.inf)
        best = left.op("ArgMax", axis=2, keepdims=1)
        is_some = left.reduce("ReduceMax", [2]) > -np.inf
        chosen = em.op("Gather", table, best + first, axis=0)
        found = _Sides(*(Term(em, em.op("Gather", chosen, i, axis=3)) for i in range(5)))
        width = found.right.op("Min", others.right) - found.left.op("Max", others.left)
        height = found.bottom.op("Min", others.bottom) - found.top.op("Max", others.top)
        both = width * height
        whole = found.area + others.area - both
        overlaps = both / whole > threshold  # (B, C, N)
        for size in (width, height, both, found.area, others.area, whole):
            overlaps &= size > 0
        dropped = overlaps | places.op("Equal", best)
        after = state & ~dropped
        any_left = after.cast(_FLOAT).reduce("ReduceMax", [0, 1, 2], keepdims=False) > 0.5
        return [x.value for x in (any_left, after, best, is_some)]

    _, best, is_some = terms(em, *looped(em, rounds, [alive.value], [state.value], one_round))
    return best, is_some


def _listed(chosen: Term, is_some: Term) -> ir.Value:
    """Return batch, class and box of each round that found one: (n, 3), int64."""
    chosen, marks = (x.op("Transpose", perm=[1, 2, 0, 3]) for x in (chosen, is_some.cast(_INT64)))
    first = marks.op("NonZero").op("Gather", [0, 1])  # (2, n)
    rows = marks.op("Reshape", [-1]).op("NonZero")  # (1, n)
    boxes = chosen.op("Reshape", [-1]).op("Gather", rows)
    return first.op("Concat", boxes, axis=0).op("Transpose", perm=[1, 0]).value


# RoiAlign-10, for opset 9.


def lower_roi_align_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather the four pixels around each sample, and pool their shares.

    A box is one pixel large at least. With `mode=max` the largest share is taken, not the largest
    sample, as runtimes and onnx's own cases have it.

    Refuses an unknown rank.
    """
    data, rois = view.operands("X", "rois")
    dtype = known_type(data)
    known_dims(data)
    wide = computed_in(dtype)
    boxes = Term(em, cast(em, rois, wide)) * view.real("spatial_scale")
    sides = sides_of(boxes).op("Max", 1)
    pool = Pool(em, view, cast(em, data, wide), boxes, sides, _pixels)
    return cast(em, pool.sampled(), dtype)


def _pixels(pool: Pool, y: Term, x: Term, pictures: ir.Value) -> Term:
    """Return the pixels at points, 0 for those more than one pixel outside: (P, C)."""
    em, source = pool.em, pool.view.required("X")
    dims = dims_of(source) or (None,) * 4
    axes = [Axis(em, dtype_of(pool.data), dims[at], source, at) for at in (2, 3)]
    places, shares, outside = [], [], []
    for axis, place in zip(axes, (y, x), strict=True):
        taps, share = linear_taps(clip(place, 0, axis.length(-1)))
        places.append(axis.index(taps))
        shares.append(share)
        outside += [place < -1, place > axis.length()]
    start = em.op("Reshape", pictures, [-1, 1])
    index, weight = combined(start, axes, places, shares, 2, 2)  # (P, 4)
    assert weight is not None
    pixels = Term(em, em.op("Gather", pixel_rows(em, pool.data, 4), index))  # (P, 4, C)
    op_type = "ReduceSum" if pool.mode == "avg" else "ReduceMax"
    value = (pixels * weight.then(unsqueeze, [2])).reduce(op_type, [1], keepdims=False)
    return functools.reduce(operator.or_, outside).where(0, value)


# ConvTranspose-11, for opset 10.


def lower_conv_transpose_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Write the pads that follow from `auto_pad` or `output_shape` in numbers.

        total = stride * (input - 1) + output_padding + (kernel - 1) * dilation + 1 - output

    SAME_UPPER has the smaller half of it in front, all else the larger one. With `auto_pad` the
    sizes of the input cancel out. Where the total is negative that much is added behind.

    Refuses unknown sizes of the input with `output_shape`, an unknown kernel, and more behind than
    an `output_padding` may be; with `auto_pad` anything behind, which onnxruntime leaves out.
    """
    data, weights = view.operands("X", "W")
    dims, filters = (known_dims(v) for v in (data, weights))
    rank = len(dims) - 2

    def numbers(name: str, default: list[int]) -> list[int]:
        given = view.attribute(name)
        if given is None:
            return default
        if not isinstance(given, (list, tuple)) or len(given) != rank:
            raise MalformedNode("bad-attribute", f"`{name}` has {given}, expected {rank} numbers")
        return [int(number) for number in given]

    stride, dilation = numbers("strides", [1] * rank), numbers("dilations", [1] * rank)
    more = numbers("output_padding", [0] * rank)
    kernel = numbers("kernel_shape", [_known(dim, weights) for dim in filters[2:]])
    asked, upper = _asked(view, rank), view.string("auto_pad") == "SAME_UPPER"
    before, after = [], []
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        if asked is None:  # the output is the input times the stride
            total = more[axis] + extent - stride[axis]
        else:
            size = _known(dims[axis + 2], data)
            total = stride[axis] * (size - 1) + more[axis] + extent - asked[axis]
        if total < 0:
            more[axis] -= total
            if asked is None or more[axis] >= stride[axis]:
                text = "runtimes do not agree on results that are larger than what windows reach"
                raise Refusal("changed-meaning", text)
            total = 0
        half = total // 2
        before.append(half if upper else total - half)
        after.append(total - before[-1])
    attributes: dict[str, AttributeValue] = {
        "dilations": dilation,
        "group": view.integer("group"),
        "kernel_shape": kernel,
        "output_padding": more,
        "pads": [*before, *after],
        "strides": stride,
    }
    known_type(data)
    return em.op("ConvTranspose", *view.node.inputs, attributes=attributes)


def _asked(view: NodeView, rank: int) -> list[int] | None:
    """Return `output_shape`, without batch and channels where it has them; None for none."""
    given = view.attribute("output_shape")
    if not given:
        return None
    if not isinstance(given, (list, tuple)) or len(given) not in (rank, rank + 2):
        raise MalformedNode("bad-attribute", f"`output_shape` is {given}, expected {rank} numbers")
    return [int(number) for number in given[-rank:]]


def _known(dim: Dim, value: ir.Value) -> int:
    if isinstance(dim, int):
        return dim
    raise Refusal(
        "unknown-dimension",
        f"the pads depend on the sizes of `{value.name}`, which are unknown",
        help="fix the sizes of the input with `--dim`",
    )
