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
    only,
    read_outputs,
    refuse_value,
)
from onnx_kvtool.emit.emitter import Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    cast,
    channels_first,
    channels_last,
    dtype_of,
    unsqueeze,
    where,
)
from onnx_kvtool.emit.sampling import Axis, pixel_rows
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import dims_of

# Operators that onnxruntime's optimiser writes into diffusion models, and NhwcMaxPool.


_FLOAT = ir.DataType.FLOAT


def bias_add(site: Site) -> Replacement:
    """Write BiasAdd as Add of the bias, and Add of the residual."""
    x, bias, skip = site.operands("X", "bias", "skip")
    return only(site.op("Add", site.op("Add", x, bias), skip))


def group_norm(site: Site) -> Replacement:
    """Write GroupNorm as GroupNormalization-21 in float32, and x * Sigmoid(x) if it is activated.

    If channels are last, Transposes put them first, and back.
    """
    x = site.required("X")
    return only(_normalized(site, x, dtype_of(x)))


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


def nhwc_max_pool(site: Site) -> Replacement:
    """Write NhwcMaxPool (channels last) as MaxPool with Transposes."""
    x = site.required("x")
    rank = known_rank(site, x)
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    result = site.op("MaxPool", channels_first(site, x, rank), attributes=given(site, *names))
    return only(channels_last(site, result, rank))


# Images that are cut by the values of an input: CropAndResize, ConvTransposeWithDynamicPads.


_LONG = ir.DataType.INT64


def conv_transpose_with_dynamic_pads(site: Site) -> Replacement:
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
        return only(op("ConvTranspose", *inputs, attributes=attributes | {"pads": stored}))
    whole = op("ConvTranspose", *inputs, attributes=attributes)
    axes = site.constant(list(range(2, 2 + rank)), "axes")
    before, behind = (op("Gather", pads, list(range(at, at + rank))) for at in (0, rank))
    known = _whole_sizes(site, rank)
    if known is None:
        sizes = op("Gather", op("Shape", whole), axes, hint="sizes")
    else:
        sizes = site.constant(known, "sizes")
    return only(op("Slice", whole, before, op("Sub", sizes, behind, hint="ends"), axes))


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


def crop_and_resize(site: Site) -> Replacement:
    """Write CropAndResize as a Gather of the pixels around each point, and interpolation.

    The place of a point is computed as in onnxruntime, in the type of the boxes. A point at NaN is
    outside of the image; onnxruntime 1.32 reads foreign memory there.
    """
    op, em = site.op, site.sharing
    refuse_value(site, "mode", "bilinear", "nearest")
    x, rois, crop = site.operands("X", "rois", "crop_size")
    dims, dtype = dims_of(x), dtype_of(x)
    if dims is None or len(dims) != 4:
        raise Refusal("unknown-rank", f"the rank of `{x.name}` is not known to be 4")
    wide_type = dtype if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    boxes = cast(site, rois, wide_type)
    axes = [Axis(site, wide_type, dims[2 + way], x, 2 + way) for way in (0, 1)]

    def line(way: int) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the points along the height, `way` 0, or the width, 1: (R, points) each.

        Their places in pixels, 0 for points outside; the pixels before them, whole floats; and
        whether each is inside.
        """
        last = axes[way].length(-1)  # ()
        start, end = (op("Gather", boxes, [at], axis=1) for at in (way, way + 2))
        lined = _points(site, start, end, last, crop, way)
        inside = op("And", op("GreaterOrEqual", lined, 0), op("LessOrEqual", lined, last))
        place = where(site, inside, lined, 0)
        return place, op("Floor", place), inside

    (y, low, tall), (z, left, broad) = line(0), line(1)
    rows = pixel_rows(site, cast(site, x, wide_type), 4)  # (N * H * W, C)
    numbers = cast(site, site.required("batch_indices"), _LONG)
    high, wide = (axis.rows() for axis in axes)
    start = op("Mul", unsqueeze(site, numbers, [1, 2]), high)  # (R, 1, 1)
    down, along = op("Sub", y, low), op("Sub", z, left)  # from the pixel before

    def row(y: ir.Value) -> ir.Value:
        """Return the places of the first pixels of rows (R, h): (R, h, 1)."""
        return op("Mul", op("Add", start, unsqueeze(site, cast(site, y, _LONG), [2])), wide)

    def pixel(row: ir.Value, x: ir.Value) -> ir.Value:
        """Return the pixels in rows (R, h, 1) at columns (R, w): (R, h, w, C)."""
        return op("Gather", rows, op("Add", row, unsqueeze(em, cast(em, x, _LONG), [1])))

    def between(first: ir.Value, second: ir.Value, share: ir.Value) -> ir.Value:
        return op("Add", first, op("Mul", op("Sub", second, first), share))

    if site.string("mode") == "nearest":  # the second of two
        y, z = (
            op("Add", cast(site, first, _LONG), cast(site, op("GreaterOrEqual", far, 0.5), _LONG))
            for first, far in ((low, down), (left, along))
        )
        found = pixel(row(y), z)
    else:
        right, share = op("Ceil", z), unsqueeze(site, along, [1, 3])  # (R, 1, w, 1)
        top, bottom = (
            between(pixel(at, left), pixel(at, right), share)
            for at in (row(low), row(op("Ceil", y)))
        )
        found = between(top, bottom, unsqueeze(site, down, [2, 3]))
    sides = unsqueeze(site, tall, [2, 3]), unsqueeze(site, broad, [1, 3])
    inside = op("And", *sides, hint="inside")  # (R, h, w, 1)
    result = where(site, inside, found, site.real("extrapolation_value"))
    return only(cast(site, op("Transpose", result, perm=[0, 3, 1, 2]), dtype))


def _points(
    em: Emitter, start: ir.Value, end: ir.Value, last: Operand, crop: ir.Value, way: int
) -> ir.Value:
    """Return `crop[way]` points from one end to the other; a single one is in the middle.

    Args:
        em: Where to build.
        start: (R, 1), 0 and 1 being the first and the last pixel.
        end: Likewise.
        last: The last pixel: ().
        crop: Height and width: (2,).
        way: Which of them.

    Returns:
        (R, points), in pixels; the last one is `end`, however sums round.
    """
    op = em.op
    known, dtype = constant_integers(crop), dtype_of(start)
    middle = op("Mul", op("Mul", op("Add", start, end), 0.5), last)
    final = op("Mul", end, last)
    if known is not None and len(known) == 2:
        if known[way] == 1:
            return middle
        count: Operand = known[way] - 1
        steps = em.constant(
            np.arange(known[way] - 1).reshape(1, -1).astype(dtype.numpy()), "number"
        )
    else:
        given = op("Gather", cast(em, crop, _LONG), way, axis=0)
        fewer = op("Sub", given, 1)
        counted = op("Range", 0, fewer, 1)
        steps = cast(em, unsqueeze(em, counted, [0]), dtype)
        count = op("Max", cast(em, fewer, dtype), 1)
        is_single = op("Equal", fewer, 0)
        final = where(em, unsqueeze(em, is_single, [0, 1]), middle, final)
    scaled = op("Mul", op("Sub", end, start), last)
    step = op("Div", scaled, count)
    lined = op("Add", op("Mul", start, last), op("Mul", step, steps))
    return op("Concat", lined, final, axis=1)
