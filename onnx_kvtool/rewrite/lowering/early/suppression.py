"""NonMaxSuppression, RoiAlign and windows of pictures."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal
from onnx_kvtool.emit.forms import (
    cast,
    dtype_of,
    formal,
    known_dims,
    known_type,
    looped,
    reduce,
    unsqueeze,
    where,
)
from onnx_kvtool.emit.sampling import Axis, clip
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


_D = ir.DataType
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
    scores = view.required("scores")
    dims = known_dims(scores)
    batch, classes, count = (product(em, scores, dims, [axis]) for axis in range(3))
    sides = _sides(em, view)
    rounds = _rounds(em, view.input("max_output_boxes_per_class"), count)
    search = _Search(em, scores, sides, batch, count, _one(em, view.input("iou_threshold"), 0.0))
    threshold, every = view.input("score_threshold"), em.constant(np.array([True]), "all")
    if threshold is None:
        shape = em.op("Concat", batch, classes, count, axis=0, hint="shape")
        alive = em.op("Expand", every, shape, hint="alive")
    else:
        alive = em.op("Greater", scores, _one(em, threshold, 0.0), hint="alive")
    chosen, is_some = search.run(rounds, alive)  # (K, B, C, 1)
    return _listed(em, chosen, is_some)


def _one(em: Emitter, value: ir.Value | None, default: float) -> ir.Value:
    """Return a float32 number of one dimension: (1,)."""
    if value is None:
        return em.constant(np.array([default], np.float32), "threshold")
    return em.op("Reshape", value, [1], hint="threshold")


def _rounds(em: Emitter, most: ir.Value | None, count: ir.Value) -> ir.Value:
    """Return how many boxes a class may have: (), int64; 0 if the node does not say."""
    if most is None:
        return em.constant(0, "rounds")
    asked = em.op("Reshape", most, [1], hint="asked")
    return em.op("Reshape", clamped(em, asked, [0], count), [], hint="rounds")


@dataclass(frozen=True, slots=True)
class _Sides:
    """Where boxes begin and end, each (B, N), float32."""

    left: ir.Value
    top: ir.Value
    right: ir.Value
    bottom: ir.Value
    area: ir.Value

    def all(self) -> tuple[ir.Value, ...]:
        """Return all of it."""
        return self.left, self.top, self.right, self.bottom, self.area


def _sides(em: Emitter, view: NodeView) -> _Sides:
    op = em.op
    boxes = view.required("boxes")
    columns = [op("Gather", boxes, i, axis=2) for i in range(4)]

    if view.integer("center_point_box"):
        halves = [op("Div", size, 2) for size in columns[2:]]
        left, top = (op("Sub", at, half) for at, half in zip(columns[:2], halves, strict=True))
        right, bottom = (op("Add", at, half) for at, half in zip(columns[:2], halves, strict=True))
    else:
        (left, right), (top, bottom) = (
            (op("Min", columns[i], columns[i + 2]), op("Max", columns[i], columns[i + 2]))
            for i in (1, 0)
        )
    area = op("Mul", op("Sub", right, left), op("Sub", bottom, top))
    return _Sides(left, top, right, bottom, area)


class _Search:
    """The search for boxes by scores (B, C, N), round by round.

    `batch` is B, `count` N, and `threshold` the share of overlap that is too much, each (1,).
    """

    def __init__(
        self,
        em: Emitter,
        scores: ir.Value,
        sides: _Sides,
        batch: ir.Value,
        count: ir.Value,
        threshold: ir.Value,
    ) -> None:
        self._em, self._threshold = em, threshold
        self._scores = em.op("Max", scores, float(np.finfo(np.float32).min), hint="scores")
        self._places = count_up(em, count)  # (N,)
        first = em.op("Mul", count_up(em, batch), count, hint="first_boxes")
        self._first = unsqueeze(em, first, [1, 2])  # (B, 1, 1)
        self._others = _Sides(*(unsqueeze(em, side, [1]) for side in sides.all()))  # (B, 1, N)
        columns = [unsqueeze(em, side, [2]) for side in sides.all()]
        table = em.op("Concat", *columns, axis=2, hint="sides")
        self._table = em.op("Reshape", table, [-1, 5])

    def run(self, rounds: ir.Value, alive: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the best box of each round, and whether there is one: (K, B, C, 1)."""
        state = formal(self._em, "alive", _BOOL, [None] * 3)
        _, *found = looped(self._em, rounds, [alive], [state], lambda *_: self._round(state))
        return found[0], found[1]

    def _round(self, alive: ir.Value) -> list[ir.Value]:
        em = self._em
        op = em.op
        left = where(em, alive, self._scores, -np.inf, "left")
        best = op("ArgMax", left, axis=2, keepdims=1, hint="best")
        is_some = op("Greater", reduce(em, "ReduceMax", left, [2]), -np.inf)
        number = op("Add", best, self._first, hint="number")
        chosen = op("Gather", self._table, number, axis=0)
        found = _Sides(*(op("Gather", chosen, i, axis=3) for i in range(5)))  # (B, C, 1)
        dropped = op("Or", self._overlaps(found), op("Equal", self._places, best))
        after = op("And", alive, op("Not", dropped))
        any_left = reduce(em, "ReduceMax", cast(em, after, _FLOAT), [0, 1, 2], keepdims=False)
        return [op("Greater", any_left, 0.5), after, best, is_some]

    def _overlaps(self, found: _Sides) -> ir.Value:
        """Return which boxes overlap those that were found by too much: (B, C, N)."""
        em, others = self._em, self._others
        op = em.op

        width = op("Sub", op("Min", found.right, others.right), op("Max", found.left, others.left))
        height = op("Sub", op("Min", found.bottom, others.bottom), op("Max", found.top, others.top))
        both = op("Mul", width, height)
        whole = op("Sub", op("Add", found.area, others.area), both)
        result = op("Greater", op("Div", both, whole), self._threshold)
        for size in (width, height, both, found.area, others.area, whole):
            result = op("And", result, op("Greater", size, 0))
        return result


def _listed(em: Emitter, chosen: ir.Value, is_some: ir.Value) -> ir.Value:
    """Return batch, class and box of each round that found one: (n, 3), int64."""
    op = em.op
    chosen, marks = (
        op("Transpose", x, perm=[1, 2, 0, 3]) for x in (chosen, cast(em, is_some, _INT64))
    )
    places = op("NonZero", marks, hint="places")  # (4, n)
    rows = op("NonZero", op("Reshape", marks, [-1]), hint="rows")  # (1, n)
    boxes = op("Gather", op("Reshape", chosen, [-1]), rows, hint="boxes")
    first = op("Gather", places, [0, 1], hint="batch_and_class")
    listed = op("Concat", first, boxes, axis=0, hint="listed")
    return op("Transpose", listed, perm=[1, 0])


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
    wide = _D.DOUBLE if dtype == _D.DOUBLE else _D.FLOAT
    boxes = em.op("Mul", cast(em, rois, wide), view.real("spatial_scale"))
    sides = em.op("Max", sides_of(em, boxes), 1)
    pool = Pool(em, view, cast(em, data, wide), boxes, sides, _pixels)
    return cast(em, pool.sampled(), dtype)


def _pixels(pool: Pool, y: ir.Value, x: ir.Value, pictures: ir.Value) -> ir.Value:
    """Return the pixels at points, 0 for those more than one pixel outside: (P, C)."""
    em, source = pool.em, pool.view.required("X")
    op = em.op
    dims = dims_of(source) or (None,) * 4
    turned = op("Transpose", pool.data, perm=[0, 2, 3, 1])
    height, width = (product(em, source, dims, [place]) for place in (2, 3))
    channels = product(em, source, dims, [1])
    shape = op("Concat", [-1], channels, axis=0, hint="shape")
    table = op("Reshape", turned, shape, hint="pixels")  # (N * H * W, C)
    first = op("Mul", op("Reshape", pictures, [-1, 1]), height)
    axes = (Axis(em, dtype_of(pool.data), dims[at], source, at) for at in (2, 3))
    (rows, above), (columns, beside) = map(_line, axes, (y, x))
    parts = []
    for row, share in rows:
        start = op("Mul", op("Add", first, row), width, hint="row")
        for column, other in columns:
            place = op("Reshape", op("Add", start, column), [-1])
            pixel = op("Gather", table, place, axis=0)
            parts.append(op("Mul", pixel, op("Mul", share, other)))
    op_type = "Add" if pool.mode == "avg" else "Max"
    value = functools.reduce(lambda a, b: op(op_type, a, b), parts)
    return where(em, op("Or", above, beside), 0, value)


def _line(axis: Axis, place: ir.Value) -> tuple[list[tuple[ir.Value, ir.Value]], ir.Value]:
    """Return two pixels along an axis with their shares, and whether points (P, 1) are outside."""
    em, last = axis.em, axis.length(-1)
    op = em.op
    before, behind = op("Greater", -1, place), op("Greater", place, axis.length())
    inside = clip(em, place, 0, last)
    low = op("Floor", inside)
    far = op("Sub", inside, low)
    high = op("Min", op("Add", low, 1), last)
    rows = [(cast(em, low, _INT64), op("Sub", 1, far)), (cast(em, high, _INT64), far)]
    return rows, op("Or", before, behind)


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
