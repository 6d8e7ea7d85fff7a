"""What exporters wrote while ONNX had no operator for it, in its standard form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import each, search
from tests.rewrite.contrib.single import Array, demand_same, normal, refusal
from tests.runtime.kernels.contrib.node import needs_onnxruntime

pytestmark = needs_onnxruntime

OPSETS = st.sampled_from([24, 21, 18, 13, 11])
REALS = st.sampled_from([np.float32, np.float64])
some = search(60)


def whole(*shape: int, dtype: Any = np.int64, seed: int = 3) -> Array:
    """Return seeded integers of one byte, of any type."""
    numbers = np.random.default_rng([seed, *shape]).integers(-90, 90, shape)
    return numbers.astype(dtype)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float64, np.int64, np.float16, np.int8, np.bool_]),
    k=st.sampled_from([None, 0, 2, -1, 9, -9]),
    one=st.booleans(),
    upper=st.sampled_from([0, 1, None]),
)
def test_trilu(opset: int, dtype: Any, k: int | None, one: bool, upper: int | None) -> None:
    inputs = {
        "X": whole(2, 3, 5, dtype=dtype),
        "k": None if k is None else np.array([k] if one else k, np.int64),
    }
    constants = ["k"] if k is not None and opset < 14 else []
    attributes = {} if upper is None else {"upper": upper}
    expected = None  # onnxruntime has no kernel of the others
    if dtype not in (np.float32, np.float64, np.int64):
        expected = {"y": (np.tril if upper == 0 else np.triu)(inputs["X"], k or 0)}
    demand_same("Trilu", inputs, at=opset, constants=constants, expected=expected, **attributes)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float64, np.int16, np.int32, np.int64]),
    bounds=st.sampled_from([(0, 5, 2), (5, -2, -3), (0, 0, 1), (0, 5, -1), (3, 8, None)]),
    one=st.booleans(),
)
def test_range(opset: int, dtype: Any, bounds: Any, one: bool) -> None:
    given_ = {
        name: None if number is None else np.array([number] if one else number, dtype)
        for name, number in zip(("start", "limit", "delta"), bounds, strict=True)
    }
    demand_same("Range", given_, at=opset)


@some
@given(
    opset=st.sampled_from([24, 20, 16, 13]),
    mode=st.sampled_from([None, "bilinear", "nearest", "bicubic"]),
    padding=st.sampled_from([None, "zeros", "border", "reflection"]),
    aligned=st.sampled_from([None, 0, 1]),
    size=st.sampled_from([(5, 7), (1, 3)]),
)
def test_grid_sample(opset: int, mode: Any, padding: Any, aligned: Any, size: Any) -> None:
    padding = "zeros" if (mode, padding) == ("bicubic", "border") else padding
    # Between the centres of one pixel is no way to reflect in: every runtime divides by zero.
    size = (2, 3) if aligned and padding == "reflection" and 1 in size else size
    inputs = {"X": normal(2, 3, *size), "Grid": normal(2, 4, 6, 2, seed=4) * np.float32(0.9)}
    given_ = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    attributes = {name: value for name, value in given_.items() if value is not None}
    demand_same("GridSample", inputs, at=opset, tolerance=1e-4, **attributes)


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    metric=st.sampled_from([None, "sqeuclidean", "euclidean"]),
    rows=st.sampled_from([(3, 5), (1, 1), (0, 4)]),
)
def test_c_dist(opset: int, dtype: Any, metric: str | None, rows: tuple[int, int]) -> None:
    a, b = (normal(n, 7, dtype=dtype, seed=i) for i, n in enumerate(rows))
    attributes = {} if metric is None else {"metric": metric}
    demand_same("CDist", {"A": a, "B": b}, at=opset, **attributes)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float64, np.int64, np.int32]),
    axis=st.sampled_from([None, 0, 1, 2, -2]),
    size=st.integers(1, 3),
    step=st.sampled_from([None, 1, 2, 5]),
    known=st.booleans(),
)
def test_unfold_tensor(
    opset: int, dtype: Any, axis: int | None, size: int, step: int | None, known: bool
) -> None:
    given_ = {"dim": axis, "step": step}
    attributes = {name: value for name, value in given_.items() if value is not None}
    dims: Any = None if known else {"input": ["A", "B", "C"]}
    inputs = {"input": whole(3, 5, 7, dtype=dtype)}
    demand_same("UnfoldTensor", inputs, at=opset, dims=dims, size=size, **attributes)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float64, np.float16]),
    size=st.sampled_from([1, 2, 3, 4, 7]),
    batch=st.sampled_from([(), (5,), (2, 3), (0,)]),
    known=st.booleans(),
    seed=st.integers(0, 99),
)
def test_inverse(
    opset: int, dtype: Any, size: int, batch: tuple[int, ...], known: bool, seed: int
) -> None:
    # Rows in any order, so that rows are exchanged, and far from such that have no inverse.
    draw = np.random.default_rng(seed)
    near = np.eye(size)[draw.permutation(size)] * 4 + draw.uniform(-1, 1, (*batch, size, size)) / 2
    dims: Any = None if known else {"X": [*"ABC"[: len(batch)], size, size]}
    tolerance = 3e-2 if dtype == np.float16 else None
    demand_same("Inverse", {"X": near.astype(dtype)}, at=opset, dims=dims, tolerance=tolerance)


# Those without a kernel for CPUs: against the formula of the documentation


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float64, np.float16]),
    name=st.sampled_from(["ComplexMul", "ComplexMulConj"]),
    shape=st.sampled_from([(2, 3, 2), (1, 3, 2), (3, 2), (2,)]),
)
def test_complex_mul(opset: int, dtype: Any, name: str, shape: Any) -> None:
    a, b = normal(2, 3, 2, dtype=dtype), normal(*shape, dtype=dtype, seed=4)
    left, right = (x[..., 0].astype(float) + 1j * x[..., 1] for x in (a, b))
    product = left * (np.conj(right) if name == "ComplexMulConj" else right)
    expected = np.stack([product.real, product.imag], axis=-1).astype(dtype)
    demand_same(name, {"A": a, "B": b}, at=opset, expected={"y": expected})


@some
@given(
    opset=st.sampled_from([24, 20, 17, 13, 11]),
    dtype=REALS,
    length=st.integers(1, 9),
    axes=st.sampled_from([None, 1, 2, 3]),
)
def test_rfft(opset: int, dtype: Any, length: int, axes: int | None) -> None:
    x, count = normal(2, 3, length, dtype=dtype), axes or 1
    found = np.fft.rfftn(x.astype(np.float64), axes=range(3 - count, 3))
    expected = np.stack([found.real, found.imag], axis=-1).astype(dtype)
    attributes = {} if axes is None else {"signal_ndim": axes}
    demand_same("Rfft", {"X": x}, at=opset, expected={"y": expected}, tolerance=1e-4, **attributes)


X = normal(2, 3)


@pytest.mark.long
@each(
    ("op_type", "inputs", "attributes", "said"),
    {
        "a metric without a kernel": ("CDist", {"A": X, "B": X}, {"metric": "cosine"}, "`metric`"),
        "a mode of a later GridSample": (
            "GridSample",
            {"X": normal(1, 1, 2, 2), "Grid": normal(1, 1, 1, 2)},
            {"mode": "linear"},
            "`mode`",
        ),
        "points that ONNX moves to the border": (
            "GridSample",
            {"X": normal(1, 1, 2, 2), "Grid": normal(1, 1, 1, 2)},
            {"mode": "bicubic", "padding_mode": "border"},
            "`padding_mode`",
        ),
        "a matrix that is too large": ("Inverse", {"X": np.eye(17)}, {}, "up to 16"),
        "a matrix of an unknown size": (
            "Inverse",
            {"X": np.eye(3)},
            {"dims": {"X": ["N", "N"]}},
            "up to 16",
        ),
        "a matrix that is no square": ("Inverse", {"X": X}, {}, "a square"),
        "a normalized transform": ("Rfft", {"X": X}, {"normalized": 1}, "`normalized`"),
        "both sides of a transform": ("Rfft", {"X": X}, {"onesided": 0}, "`onesided`"),
        "more axes than there are": ("Rfft", {"X": X}, {"signal_ndim": 3}, "`signal_ndim`"),
        "windows longer than the axis": ("UnfoldTensor", {"x": X}, {"size": 4}, "`size`"),
        "windows that stand still": ("UnfoldTensor", {"x": X}, {"size": 1, "step": 0}, "`step`"),
    },
)
def test_refused(op_type: str, inputs: Any, attributes: Any, said: str) -> None:
    assert said in refusal(op_type, inputs, **attributes)
