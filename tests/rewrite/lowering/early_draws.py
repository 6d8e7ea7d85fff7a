"""Drawn nodes of rules below opset 11 that take a form of their own: products, rests, reversals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

__all__ = ["DRAWN", "Array", "Case", "Draw"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One node: what it reads, which of it is constant, and what it gives.

    `rtol` is for what is not computed bit for bit; 0 compares the bits. Where `is_fixed`, the sizes
    of the inputs are declared. Where `is_run`, onnxruntime has to give the expected values for the
    source as well.
    """

    op: str
    inputs: Mapping[str, Array | None]
    outputs: Sequence[Any]
    opset: int = 11
    constants: Sequence[str] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rtol: float = 0.0
    expected: Sequence[Array] | None = None
    is_fixed: bool = False
    is_run: bool = False


Draw = Callable[[st.DrawFn, np.random.Generator], Case]

_SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.5]


def mod(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Integers of all widths, and floats of all magnitudes, the largest over the smallest."""
    kinds = [np.int64, np.int32, np.int8, np.uint8, np.uint64, np.float32, np.float64, np.float16]
    dtype: Any = draw(st.sampled_from(kinds))
    if np.dtype(dtype).kind == "f":
        info = np.finfo(dtype)
        edges = [info.max, info.smallest_subnormal, info.tiny, -info.max, *_SPECIAL]
        a, b = (
            np.where(
                rng.random(9) < 0.4,
                rng.choice(np.array(edges, dtype), 9),
                np.ldexp(rng.standard_normal(9), rng.integers(info.minexp, info.maxexp - 3, 9)),
            ).astype(dtype)
            for _ in range(2)
        )
        with np.errstate(all="ignore"):
            expected = np.fmod(a, b)
        inputs = {"A": a, "B": b}
        attributes = {"fmod": 1}
        return Case("Mod", inputs, [dtype], 10, attributes=attributes, expected=[expected])
    info = np.iinfo(dtype)
    if dtype == np.uint64:
        a, b = (rng.integers(0, 2**64 - 1, 9, dtype=np.uint64, endpoint=True) for _ in range(2))
        b >>= rng.integers(0, 63, 9, dtype=np.uint64)
        b = np.where(b == 0, np.uint64(3), b)
    else:
        a, b = (rng.integers(-9, 9, 9).astype(dtype) for _ in range(2))
        b = np.where(b == 0, dtype(3), b)
    if draw(st.booleans()):
        b = b[:1]
    fmod = draw(st.integers(0, 1))
    expected = np.fmod(a, b) if fmod else np.mod(a, b)
    attributes = {"fmod": fmod}
    inputs = {"A": a, "B": b}
    return Case("Mod", inputs, [dtype], 10, attributes=attributes, expected=[expected])


def _codes(rng: np.random.Generator, kind: Any, shape: Sequence[int]) -> Array:
    info = np.iinfo(kind)
    return np.asarray(rng.integers(info.min, info.max, tuple(shape), endpoint=True), kind)


_EIGHT = st.sampled_from([np.uint8, np.int8])


def mat_mul_integer(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Zero points for all, for each row of A and column of B, or none."""
    one, other = draw(_EIGHT), draw(_EIGHT)
    rows, columns = draw(st.sampled_from([[], [2]])), draw(st.sampled_from([[], [5]]))
    inputs: dict[str, Array | None] = {
        "A": _codes(rng, one, [2, 3]),
        "B": _codes(rng, other, [3, 5]),
        "a_zero_point": _codes(rng, one, rows) if draw(st.booleans()) else None,
        "b_zero_point": _codes(rng, other, columns) if draw(st.booleans()) else None,
    }
    a, b, of_a, of_b = (None if v is None else v.astype(np.int32) for v in inputs.values())
    assert a is not None
    assert b is not None
    left = a if of_a is None else a - (of_a[:, None] if rows else of_a)
    expected = left @ (b if of_b is None else b - of_b)
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    return Case("MatMulInteger", inputs, [np.int32], 10, expected=[expected])


def _requantized(total: Array, scale: Array, zero: Array) -> Array:
    info = np.iinfo(zero.dtype)
    value = np.rint(total.astype(np.float32) * scale.astype(np.float32)) + zero
    return np.asarray(value.clip(info.min, info.max), zero.dtype)


def q_linear_mat_mul(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Scales and zero points for all, or for each row of `a` and column of `b`."""
    kinds = [draw(_EIGHT) for _ in range(3)]
    forms = [draw(st.sampled_from([[], [2]])), draw(st.sampled_from([[], [5]])), []]
    if draw(st.booleans()):
        a, b = _codes(rng, kinds[0], [2, 3]), _codes(rng, kinds[1], [3, 5])
    else:
        a, b = _codes(rng, kinds[0], [7, 2, 3]), _codes(rng, kinds[1], [7, 3, 5])
        forms = [[], [], [1]]
    scales = [np.asarray(rng.uniform(0.01, 0.2, form), np.float32) for form in forms]
    zeros = [_codes(rng, kind, form) for kind, form in zip(kinds, forms, strict=True)]
    inputs = {"a": a, "a_scale": scales[0], "a_zero_point": zeros[0]}
    inputs |= {"b": b, "b_scale": scales[1], "b_zero_point": zeros[1]}
    inputs |= {"y_scale": scales[2], "y_zero_point": zeros[2]}
    per_row = (lambda v: v[:, None]) if forms[0] == [2] else (lambda v: v)
    left = a.astype(np.int32) - per_row(zeros[0].astype(np.int32))
    total = left @ (b.astype(np.int32) - zeros[1].astype(np.int32))
    expected = _requantized(total, per_row(scales[0]) * scales[1] / scales[2], zeros[2])
    return Case("QLinearMatMul", inputs, [kinds[2]], 10, expected=[expected])


def _windows(x: Array, w: Array, group: int, strides: int, pads: int) -> Array:
    """Return the convolution of int32 numbers, all sides padded alike, by adding up slices."""
    x = np.pad(x, [(0, 0), (0, 0), (pads, pads), (pads, pads)]).astype(np.int64)
    batch, height, width = x.shape[0], x.shape[2], x.shape[3]
    filters, each, rows, columns = w.shape
    sizes = [(height - rows) // strides + 1, (width - columns) // strides + 1]
    result = np.zeros((batch, filters, *sizes), np.int64)
    for f in range(filters):
        first = f // (filters // group) * each
        for c, i, j in np.ndindex(each, rows, columns):
            part = x[:, first + c, i:, j:][:, ::strides, ::strides][:, : sizes[0], : sizes[1]]
            result[:, f] += part * int(w[f, c, i, j])
    return result.astype(np.int32)


def _convolution(
    draw: st.DrawFn, rng: np.random.Generator, kinds: Sequence[Any]
) -> tuple[Array, Array, dict[str, Any]]:
    """Return input, weights and attributes; of many channels, so that the numbers are cut."""
    group = draw(st.sampled_from([1, 2]))
    each = draw(st.sampled_from([1, 3, 130, 2100]))
    x = _codes(rng, kinds[0], [2, each * group, 4, 5])
    w = _codes(rng, kinds[1], [4, each, 2, 2])
    if draw(st.booleans()):  # the largest sums
        x[:], w[:] = np.iinfo(kinds[0]).max, np.iinfo(kinds[1]).max
    pads = draw(st.integers(0, 1))
    attributes = {"group": group, "strides": [draw(st.integers(1, 2))] * 2, "pads": [pads] * 4}
    return x, w, attributes


def conv_integer(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Zero points for all, for each filter, or none."""
    kinds = [draw(_EIGHT) for _ in range(2)]
    x, w, attributes = _convolution(draw, rng, kinds)
    form = draw(st.sampled_from([[], [4]]))
    inputs: dict[str, Array | None] = {"x": x, "w": w}
    inputs["x_zero_point"] = _codes(rng, kinds[0], []) if draw(st.booleans()) else None
    inputs["w_zero_point"] = _codes(rng, kinds[1], form) if draw(st.booleans()) else None
    left, right = x.astype(np.int32), w.astype(np.int32)
    if (of_x := inputs["x_zero_point"]) is not None:
        left = left - of_x.astype(np.int32)
    if (of_w := inputs["w_zero_point"]) is not None:
        right = right - of_w.astype(np.int32).reshape(-1, 1, 1, 1)
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    expected = _windows(
        left, right, attributes["group"], attributes["strides"][0], attributes["pads"][0]
    )
    return Case("ConvInteger", inputs, [np.int32], 10, attributes=attributes, expected=[expected])


def q_linear_conv(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """With and without bias; a scale and a zero point for each filter, or one for all."""
    kinds = [draw(_EIGHT) for _ in range(3)]
    x, w, attributes = _convolution(draw, rng, kinds)
    form = draw(st.sampled_from([[], [4]]))
    scales = [np.asarray(rng.uniform(0.001, 0.1, f), np.float32) for f in ([], form, [])]
    zeros = [_codes(rng, kind, f) for kind, f in zip(kinds, ([], form, []), strict=True)]
    inputs = {"x": x, "x_scale": scales[0], "x_zero_point": zeros[0]}
    inputs |= {"w": w, "w_scale": scales[1], "w_zero_point": zeros[1]}
    inputs |= {"y_scale": scales[2], "y_zero_point": zeros[2]}
    if draw(st.booleans()):
        inputs["B"] = rng.integers(-5000, 5000, 4).astype(np.int32)
    total = _windows(
        x.astype(np.int32) - zeros[0].astype(np.int32),
        w.astype(np.int32) - zeros[1].astype(np.int32).reshape(-1, 1, 1, 1),
        attributes["group"],
        attributes["strides"][0],
        attributes["pads"][0],
    )
    if "B" in inputs:
        total = total + inputs["B"].reshape(1, 4, 1, 1)
    scale = scales[0] * scales[1].reshape(1, -1, 1, 1) / scales[2]
    expected = _requantized(total, scale, zeros[2])
    return Case("QLinearConv", inputs, [kinds[2]], 10, attributes=attributes, expected=[expected])


def reverse_sequence(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Batch or time first, of any rank from two on; a length of 0 turns nothing."""
    time_axis = draw(st.integers(0, 1))
    shape = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(2, 4)))]
    dtype: Any = draw(st.sampled_from([np.float32, np.float16, np.int64, np.uint8, np.bool_]))
    x = np.asarray(rng.integers(-9, 9, shape)).astype(dtype)
    lengths = rng.integers(0, shape[time_axis] + 1, shape[1 - time_axis])
    expected = x.copy()
    for b, length in enumerate(lengths):
        place = (slice(0, length), b) if time_axis == 0 else (b, slice(0, length))
        expected[place] = np.flip(x[place], 0)
    inputs = {"input": x, "sequence_lens": lengths}
    attributes = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    return Case("ReverseSequence", inputs, [dtype], 10, attributes=attributes, expected=[expected])


def det(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Matrices of up to seven rows, some of which are permutations or singular."""
    n = draw(st.integers(1, 7))
    shape = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))]
    dtype: Any = draw(st.sampled_from([np.float32, np.float32, np.float64]))
    x = rng.standard_normal([*shape, n, n])
    kind = draw(st.sampled_from(["any", "permutation", "singular"]))
    if kind == "permutation":
        x = np.broadcast_to(np.eye(n)[rng.permutation(n)], x.shape).copy()
    elif kind == "singular":
        x[..., -1, :] = 0
    expected = np.asarray(np.linalg.det(x)).astype(dtype)
    return Case(
        "Det", {"X": x.astype(dtype)}, [dtype], expected=[expected], rtol=1e-4,
        is_run=dtype == np.float32,
    )  # fmt: skip


def unique(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Of elements or slices, sorted or in their order, of numbers that are often equal."""
    shape = [draw(st.integers(1, 5)) for _ in range(draw(st.integers(1, 3)))]
    kinds = [np.float32, np.float64, np.int64, np.int8, np.uint8, np.float16, np.int32]
    dtype: Any = draw(st.sampled_from(kinds))
    x = rng.integers(0, 3, shape).astype(dtype)
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    is_sorted = draw(st.integers(0, 1))
    found, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.ravel()
    if not is_sorted:
        order = np.argsort(first)
        found = np.take(found, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    attributes = {"sorted": is_sorted} | ({} if axis is None else {"axis": axis})
    expected = [found, first, inverse, counts]
    outputs = [dtype, np.int64, np.int64, np.int64]
    is_run = dtype in (np.float32, np.float64, np.int64, np.int8)
    return Case(
        "Unique", {"X": x}, outputs, attributes=attributes, expected=expected, is_run=is_run
    )


def conv_transpose(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Pads from `auto_pad`, of sizes that are unknown, or from `output_shape`."""
    rank = draw(st.integers(1, 2))
    sizes = [draw(st.integers(1, 4)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    kernel = [max(k, s) for k, s in zip(kernel, strides, strict=True)]
    dilations = [draw(st.integers(1, 2)) for _ in range(rank)]
    x = rng.integers(-4, 4, [2, 3, *sizes]).astype(np.float32)
    w = rng.integers(-4, 4, [3, 2, *kernel]).astype(np.float32)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [s * (n - 1) + e for s, n, e in zip(strides, sizes, extent, strict=True)]
    auto_pad = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER"]))
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations}
    attributes["auto_pad"] = auto_pad
    asked = [s * n for s, n in zip(strides, sizes, strict=True)]
    by_shape = auto_pad == "NOTSET" or draw(st.booleans())
    if by_shape:
        # onnx's inference fails on a result that is smaller than the input.
        asked = [
            draw(st.integers(max(size, n - 3), n + stride - 1))
            for size, n, stride in zip(sizes, whole, strides, strict=True)
        ]
        attributes["output_shape"] = asked
    y = np.zeros([2, 2, *whole], np.float32)
    for place in np.ndindex(*sizes):
        window = tuple(
            slice(s * p, s * p + e, d)
            for s, p, e, d in zip(strides, place, extent, dilations, strict=True)
        )
        y[(slice(None), slice(None), *window)] += np.einsum(
            "nc,cm...->nm...", x[(slice(None), slice(None), *place)], w
        )
    for axis, (n, size) in enumerate(zip(whole, asked, strict=True)):
        total = n - size
        if total < 0:
            y = np.pad(y, [(0, -total if a == axis + 2 else 0) for a in range(rank + 2)])
            continue
        before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        y = np.take(y, range(before, before + size), axis + 2)
    return Case(
        "ConvTranspose", {"X": x, "W": w}, [np.float32], attributes=attributes, expected=[y],
        constants=["W"], is_fixed=by_shape, is_run=True,
    )  # fmt: skip


DRAWN: dict[str, Draw] = {
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "Det": det,
    "MatMulInteger": mat_mul_integer,
    "Mod": mod,
    "QLinearConv": q_linear_conv,
    "QLinearMatMul": q_linear_mat_mul,
    "ReverseSequence": reverse_sequence,
    "Unique": unique,
}
