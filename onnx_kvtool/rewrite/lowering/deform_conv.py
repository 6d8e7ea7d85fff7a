"""DeformConv-22 and DeformConv-19, for opsets below 19."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sampling import (
    Axis,
    Numbers,
    blended,
    combined,
    linear_taps,
    pixel_rows,
)
from onnx_kvtool.emit.sizes import positions
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_deform_conv_19"]

_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def lower_deform_conv_19(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Gather what each element of the filters looks at, and multiply with the filters.

    x = place * stride - pad + element * dilation + offset
    samples (N, C, K, P), linear between the pixels, zero outside, times the mask
    y = W (group, oC / group, C / group * K) x samples (N, group, C / group * K, P) + B

    Refuses an unknown number of channels, and an unknown shape of the filters.
    """
    view = NodeView(node, context.opset_of(node))
    data, filters, offset = (view.required(name) for name in ("X", "W", "offset"))
    dims, shape, dtype = dims_of(data), dims_of(filters), data.dtype
    sizes = [dim for dim in shape or () if isinstance(dim, int)]
    if dims is None or shape is None or len(sizes) != len(shape) or not isinstance(dims[1], int):
        raise Refusal(
            "unknown-dimension",
            f"DeformConv before opset 19 depends on the shape of `{filters.name}` and the number "
            f"of channels of `{data.name}`, and not all of it is known",
            help="declare the shapes of the inputs",
            lowest_opset=19,
        )
    if dtype is None:
        raise Refusal("unknown-element-type", f"the type of `{data.name}` is unknown")
    wide = dtype if dtype in _WIDE else ir.DataType.FLOAT
    numbers, group, parts = Numbers(em, wide), view.integer("group"), view.integer("offset_group")
    kernel, channels = sizes[2:], dims[1]
    elements = math.prod(kernel)
    places = _places(view, numbers, cast(em, offset, wide), kernel, parts)
    axes, rows, shares = [], [], []
    for number, place in enumerate(places):
        axis = Axis(dims[2 + number], data, 2 + number, 1)
        held = numbers.clip(place, -3, axis.length(numbers, 2))  # a number, and outside as well
        taps, share = linear_taps(numbers, held)
        axes.append(axis)
        rows.append(axis.index(numbers, taps))
        shares.append(share)
    start = None if dims[0] == 1 else positions(em, dims[0], data, 0, place=0, rank=5)
    index, weight = combined(em, start, axes, rows, shares, 2, 5)  # (N, parts, K, P, taps)
    pixels = pixel_rows(em, cast(em, data, wide), len(dims), 1)
    if parts > 1:
        split = em.constant([-1, channels // parts], "shape")
        pixels = em.op("Reshape", pixels, split, dtype=wide)
        part = em.constant(np.arange(parts).reshape(1, -1, 1, 1, 1), "part")
        index = em.op("Add", em.op("Mul", index, em.constant(parts)), part)
    samples = blended(em, pixels, index, weight, 5)  # (N, parts, K, P, C / parts)
    mask = view.input("mask")
    if mask is not None:
        form = em.constant([0, parts, elements, -1, 1], "shape")
        factor = em.op("Reshape", cast(em, mask, wide), form, dtype=wide)
        samples = numbers.op("Mul", samples, factor)
    turned = em.op("Transpose", samples, attributes={"perm": [0, 1, 4, 2, 3]}, dtype=wide)
    columns = em.constant([0, group, channels // group * elements, -1], "shape")
    windows = em.op("Reshape", turned, columns, dtype=wide)
    form = em.constant([group, sizes[0] // group, sizes[1] * elements], "shape")
    product = numbers.op(
        "MatMul", em.op("Reshape", cast(em, filters, wide), form, dtype=wide), windows
    )  # (N, group, oC / group, P)
    result = em.op("Reshape", product, _shape(em, offset, sizes[0], len(dims)), dtype=wide)
    bias = view.input("B")
    if bias is not None:
        form = em.constant([1, -1] + [1] * len(kernel), "shape")
        result = numbers.op("Add", result, em.op("Reshape", cast(em, bias, wide), form, dtype=wide))
    return Replacement((cast(em, result, dtype),))


def _shape(em: Emitter, offset: ir.Value, channels: int, rank: int) -> ir.Value:
    """Return the shape of the result: (N, oC, o1, ..., on), of which N is copied."""
    dims = dims_of(offset) or ()
    known = [dim for dim in dims[2:] if isinstance(dim, int)]
    if dims and len(known) == len(dims) - 2:
        return em.constant([0, channels, *known], "shape")
    places = em.constant(np.arange(2, rank), "axes")
    rest = em.op("Gather", em.op("Shape", offset), places, hint="sizes")
    return em.op("Concat", em.constant([0, channels]), rest, attributes={"axis": 0}, hint="shape")


def _places(
    view: NodeView, numbers: Numbers, offset: ir.Value, kernel: list[int], parts: int
) -> list[ir.Value]:
    """Return for each axis where each element of each window looks: (N, parts, K, P, 1)."""
    em, rank, elements = numbers.em, len(kernel), math.prod(kernel)
    strides = _given(view, "strides", [1] * rank)
    dilations = _given(view, "dilations", [1] * rank)
    pads = _given(view, "pads", [0] * (2 * rank))
    apart = em.constant([0, parts, elements, rank, -1], "shape")
    offsets = em.op("Reshape", offset, apart, dtype=numbers.dtype)
    given = view.required("offset")
    dims = dims_of(given) or (None,) * (rank + 2)
    corners = np.indices(kernel).reshape(rank, elements, 1)
    found = []
    for axis in range(rank):
        start = corners[axis] * dilations[axis] - pads[axis]  # (K, 1)
        number, third = em.constant(axis, "axis"), {"axis": 3}
        moved = em.op("Gather", offsets, number, attributes=third, dtype=numbers.dtype)
        sizes = [dim for dim in dims[2:] if isinstance(dim, int)]
        if len(sizes) == rank:
            along = np.indices(sizes).reshape(rank, -1)[axis] * strides[axis]  # (P,)
            base = numbers.constant((start + along).astype(np.float64))
        else:
            counted = positions(em, dims[2 + axis], given, 2 + axis, place=axis, rank=rank)
            axes = em.constant(np.arange(2, rank + 2), "axes")
            whole = em.op("Gather", em.op("Shape", given), axes, hint="sizes")
            spread = em.op("Expand", em.op("Mul", counted, em.constant(strides[axis])), whole)
            flat = cast(em, em.op("Reshape", spread, em.constant([-1], "flat")), numbers.dtype)
            base = numbers.op("Add", flat, numbers.constant(start.astype(np.float64)))
        found.append(unsqueeze(em, numbers.op("Add", moved, base), [4]))
    return found


def _given(view: NodeView, name: str, otherwise: list[int]) -> list[int]:
    given = view.attribute(name)
    numbers = [n for n in given if isinstance(n, int)] if isinstance(given, tuple) else []
    return numbers or otherwise
