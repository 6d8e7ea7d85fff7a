"""Operators on images: layouts, groups, and boxes that are cut out."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import constant_integers
from onnx_kvtool.contrib.rule import (
    Site,
    given,
    known_rank,
    no_form,
    read_outputs,
    refuse_value,
)
from onnx_kvtool.emit.emitter import Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    channels_first,
    channels_last,
    computed_in,
    dtype_of,
    unsqueeze,
)
from onnx_kvtool.emit.sampling import Axis, Number, pixel_rows
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import dims_of

# Operators that onnxruntime's optimiser writes into diffusion models, and NhwcMaxPool.


_FLOAT = ir.DataType.FLOAT


def bias_add(site: Site) -> ir.Value:
    """Write BiasAdd as Add of the bias, and Add of the residual."""
    x, bias, skip = site.operands("X", "bias", "skip")
    return site.op("Add", site.op("Add", x, bias), skip)


def group_norm(site: Site) -> ir.Value:
    """Write GroupNorm as GroupNormalization-21 in float32, and x * Sigmoid(x) if it is activated.

    If channels are last, Transposes put them first, and back.
    """
    x = site.required("X")
    return _normalized(site, x, dtype_of(x))


def skip_group_norm(site: Site) -> Replacement:
    """Write SkipGroupNorm as Add, and the form of GroupNorm.

    Refuses channels first: onnxruntime does not say where those of `skip` are.
    """
    refuse_value(site, "channels_last", 1)
    (x, skip), bias = site.operands("X", "skip"), site.input("bias")
    op = site.op
    rank = known_rank(site, skip)
    if rank not in (2, 4):
        raise no_form(f"`skip` of `SkipGroupNorm` has {rank} dimensions, expected 2 or 4")
    total = op("Add", x, unsqueeze(site, skip, [1, 2]) if rank == 2 else skip, hint="sum")
    total = total if bias is None else op("Add", total, bias, hint="biased")
    y = _normalized(site, total, dtype_of(x))
    return read_outputs(site, y, total)


def _normalized(site: Site, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    refuse_value(site, "activation", 0, 1)
    op, is_last, rank = site.op, site.integer("channels_last") != 0, 4
    y = cast(site, x, _FLOAT)
    if is_last:
        rank = known_rank(site, site.required("X"))
        y = channels_first(site, y, rank)
    factors = (cast(site, site.required(name), _FLOAT) for name in ("gamma", "beta"))
    groups, epsilon = site.integer("groups"), site.real("epsilon")
    y = op("GroupNormalization", y, *factors, num_groups=groups, epsilon=epsilon)
    if site.integer("activation") == 1:
        y = op("Mul", y, op("Sigmoid", y), hint="activated")
    if is_last:
        y = channels_last(site, y, rank)
    return cast(site, y, dtype)


def nhwc_max_pool(site: Site) -> ir.Value:
    """Write NhwcMaxPool (channels last) as MaxPool with Transposes."""
    x = site.required("x")
    rank = known_rank(site, x)
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    result = site.op("MaxPool", channels_first(site, x, rank), attributes=given(site, *names))
    return channels_last(site, result, rank)


# Images that are cut by the values of an input: CropAndResize, ConvTransposeWithDynamicPads.


_LONG = ir.DataType.INT64


def conv_transpose_with_dynamic_pads(site: Site) -> ir.Value:
    """Write ConvTransposeWithDynamicPads as ConvTranspose without padding, and Slice.

    Constant pads become an attribute. Refuses `auto_pad`: for `VALID`, onnxruntime pads by the
    input, and ConvTranspose does not pad. Refuses a node without pads, as onnxruntime does.
    """
    refuse_value(site, "auto_pad", "NOTSET")
    x, pads = site.required("X"), site.input("Pads")
    if pads is None:
        text = "`ConvTransposeWithDynamicPads` has no `Pads`, which onnxruntime requires"
        raise MalformedNode("missing-input", text)
    names = ("dilations", "group", "kernel_shape", "output_padding", "strides")
    attributes = {name: value for name, value in given(site, *names).items() if value != ()}
    op = site.op
    inputs = x, site.required("W"), site.input("B")
    stored, rank = constant_integers(pads), known_rank(site, x) - 2
    if stored is not None:
        if len(stored) != 2 * rank or min(stored, default=0) < 0:
            text = f"`Pads` is {list(stored)}, expected {2 * rank} numbers, none of them negative"
            raise MalformedNode("attribute-value", text)
        return op("ConvTranspose", *inputs, attributes=attributes | {"pads": stored})
    whole = op("ConvTranspose", *inputs, attributes=attributes)
    axes = site.constant(list(range(2, 2 + rank)), "axes")
    before, behind = (op("Gather", pads, list(range(at, at + rank))) for at in (0, rank))
    known = _whole_sizes(site, rank)
    if known is None:
        sizes = op("Gather", op("Shape", whole), axes, hint="sizes")
    else:
        sizes = site.constant(known, "sizes")
    return op("Slice", whole, before, op("Sub", sizes, behind, hint="ends"), axes)


def _whole_sizes(site: Site, rank: int) -> list[int] | None:
    """Return the size of ConvTranspose without padding along each axis; None if one is unknown."""
    data, filters = (dims_of(site.required(name)) or () for name in "XW")
    lists = [site.attribute(name) for name in ("strides", "dilations", "output_padding")]
    steps, gaps, more = (
        [int(n) for n in given] if isinstance(given, tuple) and given else [default] * rank
        for given, default in zip(lists, (1, 1, 0), strict=True)
    )
    pairs = zip(data[2:], filters[2:], steps, gaps, more, strict=False)
    sizes = [
        (size - 1) * step + (width - 1) * gap + 1 + extra
        for size, width, step, gap, extra in pairs
        if isinstance(size, int) and isinstance(width, int)
    ]
    return sizes if len(sizes) == rank else None


def crop_and_resize(site: Site) -> ir.Value:
    """Write CropAndResize as a Gather of the pixels around each point, and interpolation.

    The place of a point is computed as in onnxruntime, in the type of the boxes. A point at NaN is
    outside of the image; onnxruntime 1.32 reads foreign memory there.
    """
    em = site.sharing
    refuse_value(site, "mode", "bilinear", "nearest")
    x, rois, crop = site.operands("X", "rois", "crop_size")
    dims, dtype = dims_of(x), dtype_of(x)
    if dims is None or len(dims) != 4:
        raise Refusal("unknown-rank", f"the rank of `{x.name}` is not known to be 4")
    wide_type = computed_in(dtype)
    boxes = Term(site, rois).cast(wide_type)
    axes = [Axis(site, wide_type, dims[2 + way], x, 2 + way) for way in (0, 1)]

    def line(way: int) -> tuple[Term, Term, Term]:
        """Return the points along the height, `way` 0, or the width, 1: (R, points) each.

        Their places in pixels, 0 for points outside; the pixels before them, whole floats; and
        whether each is inside.
        """
        last = axes[way].length(-1)  # ()
        start, end = (boxes.op("Gather", [at], axis=1) for at in (way, way + 2))
        lined = _points(start, end, last, crop, way)
        inside = lined.op("GreaterOrEqual", 0) & lined.op("LessOrEqual", last)
        place = inside.where(lined, 0)
        return place, place.op("Floor"), inside

    (y, low, tall), (z, left, broad) = line(0), line(1)
    rows = Term(site, pixel_rows(site, cast(site, x, wide_type), 4))  # (N * H * W, C)
    numbers = Term(site, site.required("batch_indices")).cast(_LONG)
    high, wide = (axis.rows() for axis in axes)
    start = numbers.then(unsqueeze, [1, 2]) * high  # (R, 1, 1)
    down, along = y - low, z - left  # from the pixel before

    def row(y: Term) -> Term:
        """Return the places of the first pixels of rows (R, h): (R, h, 1)."""
        return (start + y.cast(_LONG).then(unsqueeze, [2])) * wide

    def pixel(row: Term, x: Term) -> Term:
        """Return the pixels in rows (R, h, 1) at columns (R, w): (R, h, w, C)."""
        return rows.op("Gather", row + Term(em, x.value).cast(_LONG).then(unsqueeze, [1]))

    def between(first: Term, second: Term, share: Term) -> Term:
        return first + (second - first) * share

    if site.string("mode") == "nearest":  # the second of two
        y, z = (
            first.cast(_LONG) + far.op("GreaterOrEqual", 0.5).cast(_LONG)
            for first, far in ((low, down), (left, along))
        )
        found = pixel(row(y), z)
    else:
        right, share = z.op("Ceil"), along.then(unsqueeze, [1, 3])  # (R, 1, w, 1)
        top, bottom = (
            between(pixel(at, left), pixel(at, right), share)
            for at in (row(low), row(y.op("Ceil")))
        )
        found = between(top, bottom, down.then(unsqueeze, [2, 3]))
    sides = tall.then(unsqueeze, [2, 3]), broad.then(unsqueeze, [1, 3])
    inside = sides[0].op("And", sides[1], hint="inside")  # (R, h, w, 1)
    result = inside.where(found, site.real("extrapolation_value"))
    return result.op("Transpose", perm=[0, 3, 1, 2]).cast(dtype).value


def _points(start: Term, end: Term, last: Number, crop: ir.Value, way: int) -> Term:
    """Return `crop[way]` points from one end to the other; a single one is in the middle.

    Args:
        start: (R, 1), 0 and 1 being the first and the last pixel.
        end: Likewise.
        last: The last pixel: ().
        crop: Height and width: (2,).
        way: Which of them.

    Returns:
        (R, points), in pixels; the last one is `end`, however sums round.
    """
    em = start.em
    known, dtype = constant_integers(crop), dtype_of(start.value)
    middle = (start + end) * 0.5 * last
    final = end * last
    count: Operand
    steps: Operand
    if known is not None and len(known) == 2:
        if known[way] == 1:
            return middle
        count = known[way] - 1
        steps = em.constant(np.arange(count).reshape(1, -1).astype(dtype.numpy()), "number")
    else:
        fewer = Term(em, crop).cast(_LONG).op("Gather", way, axis=0) - 1
        steps = Term(em, em.op("Range", 0, fewer, 1)).then(unsqueeze, [0]).cast(dtype)
        count = fewer.cast(dtype).op("Max", 1)
        final = fewer.op("Equal", 0).then(unsqueeze, [0, 1]).where(middle, final)
    step = (end - start) * last / count
    return (start * last + step * steps).op("Concat", final, axis=1)
