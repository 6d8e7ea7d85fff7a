"""Reductions against sums over Python numbers, and at the edges of axes, types and emptiness."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx.defs
import onnx_ir as ir
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels import reduction
from onnx_kvtool.runtime.kernels.table import find_kernel
from tests.grids import each
from tests.runtime.kernels.arrays import recording

BF16 = ml_dtypes.bfloat16
F32, F16, I32, I64, U8 = np.float32, np.float16, np.int32, np.int64, np.uint8
INF = np.inf

OVER: dict[str, Callable[[list[Any]], Any]] = {
    "ReduceSum": sum,
    "ReduceMean": lambda v: sum(v) / len(v),
    "ReduceMax": max,
    "ReduceMin": min,
    "ReduceProd": math.prod,
    "ReduceL1": lambda v: sum(abs(x) for x in v),
    "ReduceL2": lambda v: math.sqrt(sum(x * x for x in v)),
    "ReduceSumSquare": lambda v: sum(x * x for x in v),
    "ReduceLogSum": lambda v: math.log(sum(v)),
    "ReduceLogSumExp": lambda v: math.log(sum(math.exp(x) for x in v)),
}


def reduce(
    op: str, version: int, data: np.ndarray, *inputs: Any, **attributes: Any
) -> tuple[np.ndarray, list[str]]:
    kernel = find_kernel(op, version)
    assert kernel is not None
    context, warnings = recording()
    got = kernel(data, *inputs, context=context, **attributes)
    assert isinstance(got, np.ndarray) and got.dtype == data.dtype
    return got, warnings


def by_definition(op: str, data: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Gather the elements of each result one by one."""
    axes = tuple(a % data.ndim for a in axes)
    shape = [1 if a in axes else n for a, n in enumerate(data.shape)]
    result = np.empty(shape, object)
    for place in np.ndindex(*shape):
        ranges = [range(n) if a in axes else [place[a]] for a, n in enumerate(data.shape)]
        result[place] = OVER[op]([plain(data[index]) for index in itertools.product(*ranges)])
    kept = shape if keepdims else [n for a, n in enumerate(data.shape) if a not in axes]
    return result.reshape(kept)


def plain(x: Any) -> Any:
    return x.item() if isinstance(x, (np.integer, np.bool_)) else float(x)


def dtype_of(type_name: str) -> np.dtype:
    name = type_name.removeprefix("tensor(").removesuffix(")")
    return np.dtype(ir.DataType[{"float": "FLOAT"}.get(name, name.upper())].numpy())


def numbers(dtype: np.dtype) -> np.ndarray:
    rng = np.random.default_rng(11)
    if dtype == np.bool_:
        return rng.integers(0, 2, (2, 3, 5)).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(1, 4, (2, 3, 5)).astype(dtype)
    return rng.uniform(0.5, 1.5, (2, 3, 5)).astype(dtype)


def lines() -> Iterator[Any]:
    served = reduction.LINES
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in OVER and schema.name in served:
            for name in sorted(schema.inputs[0].types):
                case = f"{schema.name}-{schema.since_version} of {name}"
                by_input = len(schema.inputs) == 2
                yield pytest.param(schema.name, schema.since_version, name, by_input, id=case)


@pytest.mark.long
@each(("op", "version", "type_name", "by_input"), list(lines()))
def test_every_type(op: str, version: int, type_name: str, by_input: bool) -> None:
    data = numbers(dtype_of(type_name))
    for axes, keepdims in (((1,), True), ((-1, 0), False), ((0, 1, 2), True)):
        if by_input:
            got, _ = reduce(op, version, data, np.array(axes, I64), keepdims=int(keepdims))
        else:
            got, _ = reduce(op, version, data, axes=axes, keepdims=int(keepdims))
        expected = by_definition(op, data, axes, keepdims)
        assert got.shape == expected.shape
        if data.dtype == np.bool_ or data.dtype.kind in "iu":
            wrapped = np.vectorize(int, otypes=[object])(expected)
            if data.dtype != np.bool_:
                size = 1 << (8 * data.dtype.itemsize)
                wrapped = wrapped % size
            flat = [int(v) % size if data.dtype != np.bool_ else int(v) for v in got.reshape(-1)]
            assert flat == wrapped.reshape(-1).tolist()
        else:
            eps = float(ml_dtypes.finfo(data.dtype).eps)
            np.testing.assert_allclose(
                got.astype(float), expected.astype(float), rtol=4 * eps, atol=0
            )


NOTHING = [
    ("ReduceSum", 13, F32, 0.0),
    ("ReduceProd", 18, F16, 1.0),
    ("ReduceProd", 18, I32, 1),
    ("ReduceMax", 20, F32, -INF),
    ("ReduceMin", 20, BF16, INF),
    ("ReduceMax", 20, np.int8, -128),
    ("ReduceMin", 20, U8, 255),
    ("ReduceMax", 20, np.bool_, False),
    ("ReduceMin", 20, np.bool_, True),
    ("ReduceL1", 18, F32, 0.0),
    ("ReduceL2", 18, F32, 0.0),
    ("ReduceSumSquare", 18, I64, 0),
    ("ReduceLogSum", 18, F32, -INF),
    ("ReduceLogSumExp", 18, F16, -INF),
]


@each(("op", "version", "dtype", "expected"), NOTHING)
def test_nothing_reduces_to_what_the_text_says(
    op: str, version: int, dtype: Any, expected: Any
) -> None:
    got, warnings = reduce(op, version, np.zeros((2, 0, 3), dtype), np.array([1]), keepdims=0)
    assert got.shape == (2, 3) and not warnings
    assert (got == np.array(expected).astype(dtype)).all()


def test_the_mean_of_nothing_is_undefined() -> None:
    got, warnings = reduce("ReduceMean", 18, np.zeros((2, 0), F32), np.array([1]))
    assert np.isnan(got).all() and got.shape == (2, 1) and len(warnings) == 1
    with pytest.raises(KernelError, match="the mean of no integers is undefined"):
        reduce("ReduceMean", 18, np.zeros((2, 0), I32), np.array([1]))


@pytest.mark.parametrize("axes", [None, np.array([], I64)], ids=["absent", "empty"])
def test_no_axes_are_all_axes_or_none(axes: np.ndarray | None) -> None:
    data = np.array([[1, 4], [9, 16]], F32)
    assert reduce("ReduceSum", 13, data, axes)[0].tolist() == [[30]]
    noop: dict[str, Any] = {"noop_with_empty_axes": 1}
    assert reduce("ReduceSum", 13, data, axes, **noop)[0].tolist() == data.tolist()
    assert reduce("ReduceMax", 20, data, axes, **noop)[0].tolist() == data.tolist()
    assert reduce("ReduceSumSquare", 18, data, axes, **noop)[0].tolist() == [[1, 16], [81, 256]]
    got, _ = reduce("ReduceLogSum", 18, data, axes, **noop)
    assert np.allclose(got, np.log(data))


def test_scalars_are_reduced() -> None:
    for op, expected in (("ReduceSum", -3), ("ReduceMax", -3), ("ReduceL2", 3)):
        got, _ = reduce(op, 18, np.array(-3, F32), keepdims=0)
        assert got.shape == () and float(got) == expected


def test_sums_of_int64_are_exact() -> None:
    data = np.array([2**62, 2**53 + 1, -(2**62)])
    assert reduce("ReduceSum", 13, data)[0].tolist() == [2**53 + 1]
    assert reduce("ReduceMax", 18, data)[0].tolist() == [2**62]


def test_means_of_integers_truncate_and_do_not_overflow() -> None:
    data = np.array([[-3, -4], [2**31 - 1, 2**31 - 1]], I32)
    assert reduce("ReduceMean", 18, data, np.array([1]), keepdims=0)[0].tolist() == [-3, 2**31 - 1]


def test_bfloat16_is_added_in_float32() -> None:
    data = np.ones(1000, BF16)
    assert float(reduce("ReduceSum", 13, data)[0][0]) == 1000
    assert float(reduce("ReduceMean", 18, data)[0][0]) == 1


def test_exponentials_and_squares_do_not_overflow() -> None:
    data = np.array([1000, 1000], F32)
    assert np.allclose(reduce("ReduceLogSumExp", 18, data)[0], 1000 + math.log(2))
    got, _ = reduce("ReduceL2", 18, np.array([3e30, 4e30], F32))
    assert got.tolist() == [float(F32(5e30))]


@each(
    ("data", "expected"),
    [([INF, 1], INF), ([-INF, -INF], -INF), ([np.nan, 1], np.nan), ([-INF, 0], 0.0)],
)
def test_infinities_in_log_sum_exp(data: list[float], expected: float) -> None:
    got, _ = reduce("ReduceLogSumExp", 18, np.array(data, F32))
    assert np.array_equal(got, np.array([expected], F32), equal_nan=True)


def test_nan_wins() -> None:
    data = np.array([1, np.nan, 2], F32)
    for op in ("ReduceMax", "ReduceMin"):
        assert np.isnan(reduce(op, 20, data)[0]).all()


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (np.array([2]), r"`axes\[0\]` is 2, expected -2 to 1: `data` has rank 2"),
        (np.array([0, -2]), "names axis 0 twice"),
        (np.array([[0]]), "`axes` has shape"),
    ],
)
def test_wrong_axes_are_refused(axes: np.ndarray, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        reduce("ReduceSum", 13, np.zeros((2, 3), F32), axes)
