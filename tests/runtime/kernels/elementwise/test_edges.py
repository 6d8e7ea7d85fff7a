"""What elementwise operators do at the edges of their types, and what they refuse."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.table import find_kernel
from tests.grids import each
from tests.runtime.kernels.arrays import recording, same

INF, NAN = np.inf, np.nan
I8, I32, F16, F32, U8 = np.int8, np.int32, np.float16, np.float32, np.uint8
BF16 = ml_dtypes.bfloat16


def call(op: str, version: int, *inputs: Any, **attributes: Any) -> np.ndarray:
    kernel = find_kernel(op, version)
    assert kernel is not None
    if "context" in inspect.signature(kernel).parameters:
        attributes["context"] = recording()[0]
    result = kernel(*inputs, **attributes)
    return np.asarray(result[0] if isinstance(result, tuple) else result)


def arr(dtype: Any, *values: Any) -> np.ndarray:
    return np.array(values, dtype)


RESULTS = [
    pytest.param(
        "Div", 14, [arr(I32, 7, -7, 7, -7), arr(I32, 2, 2, -2, -2)], {},
        arr(I32, 3, -3, -3, 3), id="integer division truncates towards zero",
    ),
    pytest.param(
        "Div", 14, [arr(I8, -128, -6), arr(I8, -1, 3)], {}, arr(I8, -128, -2),
        id="the least integer divided by -1 wraps around",
    ),
    pytest.param(
        "Div", 14, [arr(F32, 1, -1, 0), arr(F32, 0, 0, 0)], {}, arr(F32, INF, -INF, NAN),
        id="floats divided by zero are infinite or NaN",
    ),
    pytest.param(
        "Add", 14, [arr(U8, 250), arr(U8, 10)], {}, arr(U8, 4), id="integers wrap around"
    ),
    pytest.param(
        "Add", 14, [np.array(1, I8), np.array(2, I8)], {}, np.array(3, I8), id="rank zero stays"
    ),
    pytest.param(
        "Mod", 13, [arr(I32, -4, 7, 5, 4, -7, 8), arr(I32, 2, -3, 8, -2, 3, 5)], {"fmod": 0},
        arr(I32, 0, -2, 5, 0, 2, 3), id="an integer remainder has the sign of the divisor",
    ),
    pytest.param(
        "Mod", 13, [arr(I32, -4, 7, 5, 4, -7, 8), arr(I32, 2, -3, 8, -2, 3, 5)], {"fmod": 1},
        arr(I32, 0, 1, 5, 0, -1, 3), id="with fmod that of the dividend",
    ),
    pytest.param(
        "Mod", 28,
        [arr(F32, 0, -0.0, INF, 1, 1, 1, NAN, 2), arr(F32, -3, 3, 3, 0, INF, -INF, 3, -INF)],
        {"fmod": 0}, arr(F32, -0.0, 0, NAN, NAN, 1, -INF, NAN, -INF),
        id="the special cases of Mod-28 where the quotient is floored",
    ),
    pytest.param(
        "Mod", 28, [arr(BF16, 0, 5.5, -5.5, -1), arr(BF16, -3, 2, 2, INF)],
        {"fmod": 0}, arr(BF16, -0.0, 1.5, 0.5, INF), id="they hold for bfloat16",
    ),
    pytest.param(
        "Mod", 28, [arr(F32, INF, 1, -2, NAN), arr(F32, 3, 0, INF, 1)], {"fmod": 1},
        arr(F32, NAN, NAN, -2, NAN), id="the special cases of Mod-28 where it is truncated",
    ),
    pytest.param(
        "Pow", 15, [arr(I32, 2, -1, -1, 3, 1), arr(np.int64, -1, -3, -4, 19, -9)], {},
        arr(I32, 0, -1, 1, 1162261467, 1), id="integer powers are exact and truncate",
    ),
    pytest.param(
        "Pow", 15, [arr(np.int64, 3), arr(np.int64, 39)], {}, arr(np.int64, 3**39),
        id="they are exact beyond 53 bits",
    ),
    pytest.param(
        "Pow", 15, [arr(F32, 2, 9), arr(I32, 3, -1)], {}, arr(F32, 8, 1 / 9),
        id="a float base keeps its type under integer exponents",
    ),
    pytest.param(
        "Pow", 15, [arr(I32, 4, 5), arr(F32, 0.5, 2)], {}, arr(I32, 2, 25),
        id="an integer base keeps its type under float exponents",
    ),
    pytest.param("Sign", 13, [arr(F32, -0.0, -3, 4)], {}, arr(F32, 0, -1, 1), id="sign of -0.0"),
    pytest.param("Neg", 13, [arr(F32, 0, -0.0)], {}, arr(F32, -0.0, 0), id="zeros are negated"),
    pytest.param("Abs", 13, [arr(I8, -128, -3)], {}, arr(I8, -128, 3), id="abs of the least int"),
    pytest.param(
        "Round", 22, [arr(F32, 0.5, 1.5, -2.5, -0.2)], {}, arr(F32, 0, 2, -2, -0.0),
        id="halves round to even and zero keeps its sign",
    ),
    pytest.param(
        "Reciprocal", 13, [arr(F32, -0.0, 4)], {}, arr(F32, -INF, 0.25), id="reciprocal of -0.0"
    ),
    pytest.param("Sqrt", 13, [arr(F32, -1, -0.0)], {}, arr(F32, NAN, -0.0), id="roots below zero"),
    pytest.param(
        "Min", 13, [arr(F32, 1, NAN, 3), arr(F32, NAN, 1, 2)], {}, arr(F32, NAN, NAN, 2),
        id="NaN wins in Min",
    ),
    pytest.param(
        "Max", 13, [arr(BF16, 1, 5), np.array([[2], [NAN]], BF16)], {},
        np.array([[2, 5], [NAN, NAN]], BF16), id="NaN wins in Max of bfloat16",
    ),
    pytest.param(
        "Sum", 13, [arr(F16, 2048), arr(F16, 1), arr(F16, 1)], {}, arr(F16, 2050),
        id="float16 is summed in float32",
    ),
    pytest.param("Mean", 13, [arr(F16, 65504), arr(F16, 65504)], {}, arr(F16, 65504), id="mean"),
    pytest.param("Max", 8, [arr(F32, 1)], {}, arr(F32, 1), id="one operand is returned"),
    pytest.param(
        "Clip", 13, [arr(F32, -9, 0, 9), np.array(5, F32), np.array(2, F32)], {},
        arr(F32, 2, 2, 2), id="everything is max where min is above it",
    ),
    pytest.param(
        "Clip", 13, [arr(F32, INF, -INF, NAN)], {},
        arr(F32, np.finfo(F32).max, np.finfo(F32).min, NAN),
        id="absent bounds are the finite limits of the type",
    ),
    pytest.param(
        "Clip", 13, [arr(I8, -9, 9), None, np.array(5, I8)], {}, arr(I8, -9, 5), id="only max"
    ),
    pytest.param(
        "Clip", 6, [arr(F16, -9, 9)], {"min": -1.5, "max": 2.5}, arr(F16, -1.5, 2.5),
        id="bounds as attributes",
    ),
    pytest.param(
        "BitShift", 28, [arr(I8, -8, -8, -8, 8, 8), arr(I8, 1, 8, -1, 9, 1)],
        {"direction": "RIGHT"}, arr(I8, -4, -1, -1, 0, 4), id="right shifts keep the sign",
    ),
    pytest.param(
        "BitShift", 11, [arr(U8, 255, 255, 1), arr(U8, 1, 8, 200)], {"direction": "LEFT"},
        arr(U8, 254, 0, 0), id="left shifts beyond the width leave nothing",
    ),
    pytest.param(
        "IsInf", 20, [arr(F32, INF, -INF, NAN, 1)], {"detect_negative": 0},
        np.array([True, False, False, False]), id="only positive infinities",
    ),
    pytest.param(
        "IsInf", 20, [arr(ml_dtypes.float8_e5m2, INF, -INF, 1)], {"detect_positive": 0},
        np.array([False, True, False]), id="only negative ones, in float 8",
    ),
    pytest.param(
        "IsNaN", 20, [arr(ml_dtypes.float8_e4m3fnuz, NAN, 1)], {}, np.array([True, False]),
        id="the one NaN of a float 8",
    ),
    pytest.param(
        "CumSum", 14, [np.array([[1, 2, 3], [4, 5, 6]], F32), np.array(-1, I32)],
        {"exclusive": 1, "reverse": 1}, np.array([[5, 3, 0], [11, 6, 0]], F32),
        id="exclusive sums from the end",
    ),
    pytest.param(
        "CumProd", 26, [arr(I32, 1, 2, 3), np.array(0, np.int64)], {"exclusive": 1},
        arr(I32, 1, 1, 2), id="exclusive products",
    ),
    pytest.param(
        "CumSum", 14, [np.zeros((2, 0), F32), np.array(1, I32)], {"exclusive": 1},
        np.zeros((2, 0), F32), id="sums over an empty axis",
    ),
    pytest.param(
        "CumSum", 14, [arr(BF16, 256, 1, 1), np.array(0, I32)], {}, arr(BF16, 256, 256, 258),
        id="bfloat16 is summed in float32, each sum rounded",
    ),
    pytest.param(
        "Equal", 19, [np.array(["a", "b"], object), np.array(["b"], object)], {},
        np.array([False, True]), id="strings are compared",
    ),
]  # fmt: skip


@each(("op", "version", "inputs", "attributes", "expected"), RESULTS)
def test_results(
    op: str, version: int, inputs: list[Any], attributes: dict[str, Any], expected: np.ndarray
) -> None:
    with np.errstate(all="ignore"):
        before = [None if x is None else x.copy() for x in inputs]
        got = call(op, version, *inputs, **attributes)
    assert isinstance(got, np.ndarray)
    nan = np.zeros(got.shape, bool) if got.dtype == object else np.isnan(got.astype(np.float64))
    wanted = np.isnan(expected.astype(np.float64)) if got.dtype != object else nan
    assert nan.tolist() == wanted.tolist()
    one = np.ones((), expected.dtype)
    assert same(np.where(nan, one, got), np.where(wanted, one, expected)), (got, expected)
    for x, copy in zip(inputs, before, strict=True):
        assert x is None or same(x, copy)


REFUSALS = [
    pytest.param(
        "Add", 14, [np.ones((2, 3), F32), np.ones((2, 5), F32)], {},
        r"`A` with shape \(2, 3\) and `B` with shape \(2, 5\) do not broadcast: axis -1 has sizes "
        r"3 and 5", id="shapes that do not broadcast",
    ),
    pytest.param(
        "Max", 13, [np.ones((1, 1), F32), np.ones((3, 1), F32), np.ones((2, 7), F32)], {},
        r"`data_0\[1\]` with shape \(3, 1\) and `data_0\[2\]` with shape \(2, 7\)",
        id="the operands at fault among many",
    ),
    pytest.param(
        "Div", 14, [arr(I32, 1, 2, 3), arr(I32, 1, 2, 0)], {}, r"`B`\[2\] is 0",
        id="integers divided by zero",
    ),
    pytest.param("Mod", 13, [arr(I32, 1), arr(I32, 0)], {}, r"`B`\[0\] is 0", id="modulo zero"),
    pytest.param(
        "Mod", 13, [arr(F32, 1), arr(F32, 2)], {}, "`fmod` is 0, expected 1",
        id="floats without fmod before version 28",
    ),
    pytest.param("Mod", 28, [arr(I32, 1), arr(I32, 1)], {"fmod": 2}, "`fmod` is 2", id="fmod"),
    pytest.param(
        "BitShift", 11, [arr(U8, 1), arr(U8, 1)], {"direction": "UP"}, "`direction` is `UP`",
        id="an unknown direction",
    ),
    pytest.param(
        "Clip", 13, [arr(F32, 1), arr(F32, 1, 2)], {}, r"`min` has shape \(2,\), expected \(\)",
        id="a bound that is no scalar",
    ),
    pytest.param(
        "CumSum", 14, [arr(F32, 1), np.array(1, I32)], {}, "`axis` is 1, expected -1 to 0",
        id="an axis out of range",
    ),
    pytest.param(
        "Dropout", 13, [arr(F32, 1), np.array(1.0, F32), np.array(True)], {}, "`ratio` is 1.0",
        id="a ratio of 1",
    ),
    *(
        pytest.param(
            "Dropout", 13, [arr(F32, 1), None, np.array(True)], {"seed": seed},
            f"`seed` is {seed}, expected 0 to 4294967295", id=f"a seed of {seed}",
        )
        for seed in (-1, 1 << 32)
    ),
]  # fmt: skip


@each(("op", "version", "inputs", "attributes", "message"), REFUSALS)
def test_refusals(
    op: str, version: int, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(KernelError, match=message):
        call(op, version, *inputs, **attributes)


def test_one_element_in_one_dimension_is_a_scalar_with_a_warning() -> None:
    kernel = find_kernel("Clip", 13)
    assert kernel is not None
    context, warnings = recording()
    got = kernel(arr(F32, 1, 9), arr(F32, 2), context=context)
    assert got.tolist() == [2, 9]
    assert warnings == ["`min` has shape (1,), expected (): taken as a scalar"]


def test_zero_to_a_negative_power_warns_among_integers() -> None:
    kernel = find_kernel("Pow", 15)
    assert kernel is not None
    context, warnings = recording()
    got = kernel(arr(I32, 0, 0), arr(I32, -1, 0), context=context)
    assert got.tolist() == [-(2**31), 1]
    assert len(warnings) == 1


def test_dropout_infers_unless_told_to_train() -> None:
    kernel = find_kernel("Dropout", 13)
    assert kernel is not None
    data = np.arange(6, dtype=F32).reshape(2, 3)
    context, warnings = recording(outputs=2)
    output, mask = kernel(data, np.array(0.5, F32), context=context, seed=7)
    assert output is data and mask.all() and mask.dtype == np.bool_
    training = (data, np.array(0.5, F32), np.array(True))
    first, left = kernel(*training, context=context, seed=7)
    again, _ = kernel(*training, context=context, seed=7)
    assert same(first, again) and same(first, np.where(left, data * 2, F32(0)))
    assert len(warnings) == 2
