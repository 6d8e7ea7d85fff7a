"""DFT, STFT and the windows and matrices of audio."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import DTypeLike, NDArray

from onnx_kvtool.core.storage import fixed_tensor
from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    computed_in,
    dtype_of,
    known_type,
    scalar,
    size,
    unsqueeze,
)
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.reshape import axis_marks, switch
from onnx_kvtool.symbolic.dimensions import Dims, dims_of

# The discrete Fourier transform as a real matrix over real and imaginary parts.


_D = ir.DataType

LARGEST = 1 << 20
"""Most elements of a matrix; beyond it a product is no stand-in for a fast transform."""


def dft_matrix(
    size: int, parts: int, length: int | None, *, inverse: bool, onesided: bool
) -> NDArray[np.float64]:
    """Return the weight of each input part in each output part (DFT-20).

    Args:
        size: Elements of the input along the axis; those from `length` on do not count, and those
            that are lacking count as zero.
        parts: 1 for real input, 2 for complex input.
        length: Length of the signal; None for `size`, or for 2 * (size - 1) where the input is
            one half of a spectrum.
        inverse: Whether to transform back, with the factor 1 / length.
        onesided: Whether only the first half of the spectrum is output; with `inverse`, whether
            the input is only the first half, and the output is real.

    Returns:
        (size, parts, results, components), components being 2, or 1 for `inverse` and `onesided`.
    """
    half = inverse and onesided
    count = length if length is not None else (2 * (size - 1) if half else size)
    used = min(size, count // 2 + 1 if half else count)
    results = count // 2 + 1 if onesided and not inverse else count
    # Products are reduced before the multiplication with 2 pi, so that large ones lose nothing.
    turn = np.outer(np.arange(size), np.arange(results)) % max(count, 1)
    angle = 2 * np.pi * turn / max(count, 1) * (1 if inverse else -1)
    weight = np.zeros(size)
    weight[:used] = 1 / count if inverse else 1
    if half:
        # Each element but the first, and the middle one of an even length, stands for two.
        twice = np.arange(size)
        weight[(twice > 0) & (2 * twice != count)] *= 2
    cosine, sine = np.cos(angle) * weight[:, None], np.sin(angle) * weight[:, None]
    matrix = np.empty((size, 2, results, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosine, sine
    matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sine, cosine
    return matrix[:, :parts, :, : 1 if half else 2]


# DFT-20 and DFT-17: the axis as an attribute at 17 to 19, a product with a matrix below.


def lower_dft_20(view: Rewritten, em: Emitter) -> ir.Value:
    """Give DFT its axis as an attribute, or multiply with the matrix of the transform.

    input (..., N, ..., C) -> (..., ..., N * C) x matrix (N * C, K * 2) -> (..., K, ..., 2)

    An axis that is known at run time only takes one If per axis. Below 11, where both branches have
    to give equal shapes, the transform is cut out of both, with as many components throughout.

    Refuses an unknown rank; below 17 also a length or a number of components that is
    not known, one that makes the matrix too large, and element types other than float32 and
    float64.
    """
    data, length = view.required("input"), view.input("dft_length")
    dims = dims_of(data)
    if dims is None or len(dims) < 2:
        raise Refusal("unknown-rank", f"the rank of `{data.name}` is unknown")
    axis = _axis(view, len(dims))
    inverse, onesided = (view.integer(name) != 0 for name in ("inverse", "onesided"))

    def transform(place: int) -> ir.Value:
        if em.opset < 17:
            return _product(em, data, len(dims), place, _matrix_of_parts(view, dims, place))
        attributes = {"inverse": int(inverse), "onesided": int(onesided), "axis": place}
        given = [] if length is None else [length]
        return em.op("DFT", data, *given, attributes=attributes)

    if axis is not None:
        return transform(axis)
    # Half a spectrum of one element belongs to no signal, so that such an axis is never meant.
    halved = inverse and onesided and length is None
    places = [p for p in range(len(dims) - 1) if not (halved and dims[p] == 1)]
    marks = axis_marks(em, view.required("axis"), len(dims))
    if not em.branches and (onesided or length is not None):
        matrices = {p: _matrix_of_parts(view, dims, p) for p in places}
        return _cut(em, marks, data, matrices, len(dims))
    result = transform(places[-1])
    # The shape is the same for all axes unless the length changes.
    result.shape = None if onesided or length is not None else ir.Shape((*dims[:-1], 2))
    for place in places[:-1]:

        def along(_: ir.Value, place: int = place) -> ir.Value:
            return transform(place)

        result = switch(em, marks, place, result, along)
    return result


def _cut(
    em: Emitter,
    marks: ir.Value,
    data: ir.Value,
    matrices: Mapping[int, NDArray[np.float64]],
    rank: int,
) -> ir.Value:
    """Return the transform along the marked axis, whose length changes.

    Along every axis the transform is made of what the axes before gave: that is the signal still,
    unless one of them was meant. All have the components that the signal or the result has more of.
    """
    parts, components = next((m.shape[1], m.shape[3]) for m in matrices.values())

    def with_parts(value: ir.Value, given: int, wanted: int) -> ir.Value:
        if given == wanted:
            return value
        if given < wanted:  # what is added is cut off again, and means nothing
            return em.op("Concat", value, value, axis=rank - 1)
        return em.op("Gather", value, list(range(wanted)), axis=rank - 1)

    most = max(parts, components)
    result = with_parts(data, parts, most)
    if result is not data:
        result.shape = ir.Shape([*(dims_of(data) or ())[:-1], most])
    for place, matrix in matrices.items():

        def transform(
            value: ir.Value, place: int = place, matrix: NDArray[np.float64] = matrix
        ) -> ir.Value:
            product = _product(em, with_parts(value, most, parts), rank, place, matrix)
            return with_parts(product, components, most)

        result = switch(em, marks, place, result, transform, size=matrix.shape[2])
    return with_parts(result, most, components)


def _axis(view: Rewritten, rank: int) -> int | None:
    """Return the axis, not negative; None when it is known at run time only."""
    if "axis" in view.facts.attributes:
        return view.integer("axis") % rank
    given = view.input("axis")
    if given is None:
        return (-2) % rank
    if rank == 2:
        return 0  # the only one that is not the components'
    known = view.known(given)
    return None if known is None else int(known.ravel()[0]) % rank


def _matrix_of_parts(view: Rewritten, dims: Dims, axis: int) -> NDArray[np.float64]:
    """Return the transform of a DFT as a matrix: (N, C, K, components)."""
    data, length = view.required("input"), view.input("dft_length")
    inverse, onesided = (view.integer(name) != 0 for name in ("inverse", "onesided"))
    size, parts, known = dims[axis], dims[-1], view.known(length)
    if not isinstance(size, int) or parts not in (1, 2) or (length is not None and known is None):
        raise Refusal(
            "unknown-dimension",
            f"the length of the transform of `{data.name}` is unknown, and DFT came with opset 17",
            help="give the dimensions and `dft_length` values",
        )
    if data.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        text = "DFT is written as a product for float32 and float64 only"
        raise Refusal("element-type", text)
    wanted = None if known is None else int(known.ravel()[0])
    if wanted is not None and wanted <= 0:
        raise MalformedNode("bad-length", f"`dft_length` is {wanted}, expected at least 1")
    if inverse and onesided and wanted is None and size == 1:
        raise MalformedNode("bad-length", "half a spectrum of one element belongs to no signal")
    if size * (wanted or 2 * size) * 4 > LARGEST:
        text = f"DFT of length {size} would need a matrix of more than {LARGEST} elements"
        raise Refusal("too-large", text)
    return dft_matrix(size, int(parts or 1), wanted, inverse=inverse, onesided=onesided)


def _product(
    em: Emitter, data: ir.Value, rank: int, axis: int, matrix: NDArray[np.float64]
) -> ir.Value:
    dtype = dtype_of(data)
    others = [a for a in range(rank - 1) if a != axis]
    size, parts, results, components = matrix.shape

    def shaped(value: ir.Value, last: list[int]) -> ir.Value:
        # The other dimensions are copied: 0 means that of the input at this place.
        return em.op("Reshape", value, [0] * len(others) + last)

    turned = em.op("Transpose", data, perm=[*others, axis, rank - 1])  # (..., N, C)
    flat = shaped(turned, [size * parts])
    weights = matrix.reshape(size * parts, results * components).astype(dtype.numpy())
    product = em.op("MatMul", flat, weights)
    spread = shaped(product, [results, components])  # (..., K, components)
    back = [(*others, axis, rank - 1).index(a) for a in range(rank)]
    return em.op("Transpose", spread, perm=back)


# STFT-17, for opsets below 17.


_MOST = 1 << 23
"""Most elements of a matrix, 32 MiB of float32; from `LARGEST` on the file does not hold it."""


def lower_stft_17(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather the frames, weigh them, and multiply with the matrix of the transform.

    signal (B, L, C) -> (B, frames, N, C) * window (N, 1) -> (B, frames, N * C)
    x matrix (N * C, K * 2) -> (B, frames, K, 2)

    Of a length that is known at run time only, or large, the matrix is computed when the model
    runs, by Cos and Sin of angles that are reduced to one turn before.

    Refuses a number of components that is unknown, and a length that makes the matrix too large.
    """
    signal, step = view.operands("signal", "frame_step")
    window, dims = view.input("window"), dims_of(signal)
    if dims is None or len(dims) not in (2, 3) or (len(dims) == 3 and dims[2] not in (1, 2)):
        raise Refusal(
            "unknown-dimension",
            f"whether `{signal.name}` is real or complex is unknown, and STFT came with opset 17",
            help="declare the shape of the input",
        )
    parts, dtype = (1 if len(dims) == 2 else int(dims[2] or 1)), known_type(signal)
    wide = computed_in(dtype)
    is_half = view.integer("onesided") != 0
    known, count = _length(view, em, signal)
    elements = 0
    if known is None:
        numbered = em.op("Range", 0, count, 1)
    else:
        numbered = em.constant(np.arange(known), "elements")
        if known <= 0:
            raise MalformedNode("bad-length", f"`frame_length` is {known}, expected at least 1")
        elements = known * parts * (known // 2 + 1 if is_half else known) * 2
        if elements > _MOST:
            text = f"STFT of length {known} would need a matrix of more than {_MOST} elements"
            raise Refusal("too-large", text)
    if known is not None and elements <= LARGEST:
        table = dft_matrix(known, parts, None, inverse=False, onesided=is_half)
        matrix = em.constant(table.reshape(known * parts, -1).astype(wide.numpy()), "dft")
    else:  # (N * C, K * 2), in float64, where the cosine of a quarter turn is as good as nothing
        double, length, rows = _D.DOUBLE, Term(em, count), Term(em, numbered)
        k = em.op("Range", 0, length / 2 + 1 if is_half else length, 1)
        turns = rows.op("Reshape", [-1, 1]) * k % length  # below N, so that no angle is large
        angle = turns.cast(double) / length.cast(double) * (2 * math.pi)
        cosine, sine = (
            angle.op(name).cast(wide).then(unsqueeze, [1, 3]) for name in ("Cos", "Sin")
        )
        rows = cosine.op("Concat", sine.op("Neg"), axis=3)
        if parts == 2:
            rows = rows.op("Concat", sine.op("Concat", cosine, axis=3), axis=1)
        matrix = rows.op("Flatten", axis=2).value  # of (N, C, K, 2)
    x = cast(em, signal, wide)
    x = unsqueeze(em, x, [2]) if len(dims) == 2 else x
    stride = cast(em, scalar(em, step), ir.DataType.INT64)
    number = (Term(em, size(em, signal, 1)) - count) / stride + 1
    starts = Term(em, em.op("Range", 0, number, 1)) * stride
    index = starts.op("Reshape", [-1, 1]) + numbered  # (frames, N)
    frames = em.op("Gather", x, index, axis=1)  # (B, frames, N, C)
    if window is not None:
        column = unsqueeze(em, cast(em, window, wide), [1])
        frames = em.op("Mul", frames, column)
    product = em.op("MatMul", em.op("Reshape", frames, [0, 0, -1]), matrix)
    result = em.op("Reshape", product, [0, 0, -1, 2])
    return cast(em, result, dtype)


def _length(view: Rewritten, em: Emitter, signal: ir.Value) -> tuple[int | None, ir.Value]:
    """Return the length of a frame where it is known, and as a value: (), int64."""
    window, length = view.input("window"), view.input("frame_length")
    value, axis = (signal, 1) if window is None else (window, 0)
    known = (dims_of(value) or (None,))[axis]
    if length is not None and (window is None or not isinstance(known, int)):
        numbers = view.known(length)
        if numbers is None or numbers.size != 1:
            return None, cast(em, scalar(em, length), ir.DataType.INT64)
        known = int(numbers.ravel()[0])
    return known if isinstance(known, int) else None, size(em, value, axis, known)


# HannWindow-17, HammingWindow-17 and BlackmanWindow-17 of float64 or integers, below opset 17.
#
# Matches
#     output = HannWindow(size) <output_datatype, periodic>
#
# Emits
#     angle = Range(0, size, 1) * (2 pi / N)   # N is size, or size - 1 for a symmetric window
#     output = Cast(a0 - a1 * Cos(angle) + a2 * Cos(2 * angle), output_datatype)
#
# in float64. The schema's body computes in float32, which leaves a float64 output wrong from the
# eighth digit on, and an integer one wrong where the window is 1. a0, a1 and a2 are the float32
# numbers of the body, as onnxruntime has them: 0.54347825 for the 25/46 of HammingWindow.


_TERMS = {
    "BlackmanWindow": (0.42, 0.5, 0.08),
    "HammingWindow": (25 / 46, 1 - 25 / 46, 0.0),
    "HannWindow": (0.5, 0.5, 0.0),
}
_BY_BODY = {_D.FLOAT, _D.FLOAT16, _D.BFLOAT16}


def lower_cosine_window_17(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Write a window in float64; None, for the schema's body, where float32 is exact enough."""
    dtype = _D(view.integer("output_datatype"))
    if dtype in _BY_BODY:
        return None

    count = Term(em, view.required("size")).cast(_D.DOUBLE)
    length = count if view.integer("periodic") else count - 1
    steps = Term(em, em.op("Range", 0, count, 1))
    angle = steps * (2 * math.pi / length)
    a0, a1, a2 = (float(np.float32(term)) for term in _TERMS[view.node.op_type])
    window = a0 - angle.op("Cos") * a1
    if a2:
        window += (angle * 2).op("Cos") * a2
    return window.cast(dtype).value


# MelWeightMatrix-17, for opsets below 17.


_LARGEST = 1 << 24
"""Most elements of the matrix."""


def lower_mel_weight_matrix_17(view: Rewritten, em: Emitter) -> ir.Value:
    """Compute the matrix, which constant inputs fix.

    Refuses inputs that are not constant, since rounding decides the bins of a frequency:
    constants are refused as well where float32 and float64 disagree about that.
    """
    counts = [_one(view, name) for name in ("num_mel_bins", "dft_length", "sample_rate")]
    edges = [_one(view, name) for name in ("lower_edge_hertz", "upper_edge_hertz")]
    bins, length, rate = (int(count) for count in counts)
    if min(bins, length, rate) <= 0:
        raise MalformedNode("bad-length", "bins, length and rate must be at least 1")
    rows, other = (_bins(bins, length, rate, edges, d) for d in (np.float64, np.float32))
    if not np.array_equal(rows, other):
        text = "rounding decides the bin of a frequency of MelWeightMatrix"
        raise Refusal("dynamic-input", text)
    size = length // 2 + 1
    if rows.min() < 0 or rows.max() >= size:
        text = f"the frequencies reach bin {rows.max()}, of {size}"
        raise MalformedNode("bad-frequency", text)
    if size * bins > _LARGEST:
        text = f"MelWeightMatrix has more than {_LARGEST} elements"
        raise Refusal("too-large", text)
    dtype = ir.DataType(view.integer("output_datatype"))
    return em.op("Identity", _triangles(rows, size).astype(dtype.numpy()))


def _one(view: NodeView, name: str) -> float:
    tensor = fixed_tensor(view.required(name))
    if tensor is None or tensor.size != 1:
        raise Refusal(
            "dynamic-input",
            f"`{name}` is not constant, and rounding decides the bin of a frequency",
            help="make the inputs constant",
        )
    return float(tensor.numpy().astype(np.float64).ravel()[0])


def _bins(
    bins: int, length: int, rate: int, edges: list[float], dtype: DTypeLike
) -> NDArray[np.int64]:
    """Return the first bin of each triangle, and the last bins of the last two."""
    scale, corner = np.array(2595, dtype), np.array(700, dtype)
    low, high = (scale * np.log10(1 + np.array(edge, dtype) / corner) for edge in edges)
    step = (high - low) / np.array(bins + 2, dtype)
    mel = np.arange(bins + 2).astype(dtype) * step + low
    hertz = corner * (np.power(np.array(10, dtype), mel / scale) - 1)
    rows: NDArray[np.float64] = np.array(length + 1, dtype) * hertz / np.array(rate, dtype)
    return np.floor(rows).astype(np.int64)


def _triangles(rows: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Return a triangle for each bin of mel, up to 1 in the middle: (size, bins)."""
    matrix = np.zeros((size, len(rows) - 2))
    for column, (start, middle, end) in enumerate(zip(rows, rows[1:], rows[2:], strict=False)):
        places = np.arange(start, middle + 1)
        matrix[places, column] = (places - start) / (middle - start) if middle > start else 1
        places = np.arange(middle, end)
        matrix[places, column] = (end - places) / max(end - middle, 1)
    return matrix
