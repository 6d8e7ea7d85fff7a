"""Pooling, held against each window looked at by itself, and against onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnxruntime as ort
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.picture import (
    average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
)
from onnx_kvtool.runtime.kernels.windows import Sliding
from tests.grids import each

f32 = np.float32
LINE = f32([[[3, 1, 7, 2, 5, 5, 0]]])
PICTURE = np.random.default_rng(7).normal(size=(2, 3, 5, 7)).astype(f32)
ROOM = np.random.default_rng(8).normal(size=(1, 2, 5, 3, 7)).astype(f32)
OPSETS = {"AveragePool": 22, "LpPool": 22, "MaxPool": 22}
KERNELS = {"AveragePool": average_pool, "LpPool": lp_pool, "MaxPool": max_pool}

WAYS: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "one element": (LINE, {"kernel_shape": [1]}),
    "a whole axis": (LINE, {"kernel_shape": [7]}),
    "sizes with several binary digits": (PICTURE, {"kernel_shape": [3, 6]}),
    "three axes": (ROOM, {"kernel_shape": [3, 2, 5], "strides": [2, 1, 3]}),
    "strides beyond the window": (PICTURE, {"kernel_shape": [1, 2], "strides": [3, 5]}),
    "other padding on each side": (PICTURE, {"kernel_shape": [3, 3], "pads": [2, 0, 1, 2]}),
    "gaps": (PICTURE, {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 2, 1, 0]}),
    "the last window reaches out": (
        PICTURE,
        {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    "no window that starts in the padding behind": (
        LINE,
        {"kernel_shape": [2], "strides": [3], "pads": [0, 1], "ceil_mode": 1},
    ),
    "the same size, more behind": (
        PICTURE,
        {"kernel_shape": [2, 4], "auto_pad": "SAME_UPPER", "strides": [1, 2]},
    ),
    "the same size, more in front": (
        PICTURE,
        {"kernel_shape": [2, 4], "auto_pad": "SAME_LOWER", "strides": [1, 2]},
    ),
    "padding that is not taken": (
        PICTURE,
        {"kernel_shape": [2, 4], "auto_pad": "VALID", "strides": [2, 3]},
    ),
    "no window in an axis that is a little short": (LINE[..., :2], {"kernel_shape": [3]}),
    "nothing in the batch": (PICTURE[:0], {"kernel_shape": [2, 2]}),
    "no channels": (PICTURE[:, :0], {"kernel_shape": [2, 2]}),
}


def pooled(op: str, x: np.ndarray, attributes: dict[str, Any]) -> tuple[np.ndarray, ...]:
    given: dict[str, Any] = {"auto_pad": "NOTSET", "pads": None, "strides": None, **attributes}
    result = KERNELS[op](x, **({"p": 2} if op == "LpPool" else {}), **given)
    return result if isinstance(result, tuple) else (result,)


def looked_at(op: str, x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """Return the result, from the elements of each window."""
    attributes = dict(attributes)
    counted = attributes.pop("count_include_pad", 0)
    order = attributes.pop("p", 2)
    ceil = attributes.pop("ceil_mode", 0)
    kernel = attributes.pop("kernel_shape")
    given = {"auto_pad": "NOTSET", "pads": None, "strides": None, "dilations": None, **attributes}
    ways = Sliding(**given, is_ceiled=bool(ceil)).ways(x.shape, kernel)
    result = np.zeros((*x.shape[:2], *[way.count for way in ways]), x.dtype)
    for place in np.ndindex(*result.shape):
        channel = x[place[:2]]
        along = [
            [n * way.stride - way.before + k * way.dilation for k in range(way.kernel)]
            for n, way in zip(place[2:], ways, strict=True)
        ]
        seen, size = [], 0
        for at in itertools.product(*along):
            inside = all(0 <= n < way.size for n, way in zip(at, ways, strict=True))
            padded = all(n < way.size + way.after for n, way in zip(at, ways, strict=True))
            seen += [float(channel[at])] if inside else []
            size += inside or (padded and counted)
        if op == "MaxPool":
            result[place] = max(seen)
        elif op == "AveragePool":
            result[place] = sum(seen) / size
        else:
            result[place] = sum(abs(n) ** order for n in seen) ** (1 / order)
    return result


@each("op", [*KERNELS])
@each("way", [*WAYS])
def test_each_window(op: str, way: str) -> None:
    x, attributes = WAYS[way]
    found, *_ = pooled(op, x, attributes)
    expected = looked_at(op, x, attributes)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if op == "MaxPool":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["other padding on each side", "the last window reaches out"])
def test_padding_counts_where_it_is_asked_for_but_never_what_lies_behind(way: str) -> None:
    x, attributes = WAYS[way]
    found = average_pool(
        x, **{"auto_pad": "NOTSET", "strides": None, **attributes, "count_include_pad": 1}
    )
    expected = looked_at("AveragePool", x, {**attributes, "count_include_pad": 1})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def by_onnxruntime(op: str, x: np.ndarray, attributes: dict[str, Any], outputs: int) -> list[Any]:
    names = [f"y{n}" for n in range(outputs)]
    node = onnx.helper.make_node(op, ["x"], names, **attributes)
    element = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    made = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64 if n else element, None)
        for n, name in enumerate(names)
    ]
    given = [onnx.helper.make_tensor_value_info("x", element, x.shape)]
    graph = onnx.helper.make_graph([node], "g", given, made)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", OPSETS[op])], ir_version=10
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


EXACT = {
    name: way
    for name, way in WAYS.items()
    if name not in ("no channels", "nothing in the batch", "three axes") and way[0].size
}


@pytest.mark.parametrize("column_major", [0, 1])
@pytest.mark.parametrize("way", [*EXACT, "equals", "whole numbers"])
def test_positions_are_those_of_onnxruntime(way: str, column_major: int) -> None:
    more = {
        "equals": (np.zeros((2, 3, 5, 7), f32), {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1]}),
        "whole numbers": (
            np.random.default_rng(3).integers(-9, 9, (2, 3, 5, 7)).astype(np.int8),
            {"kernel_shape": [2, 2], "strides": [2, 1]},
        ),
    }
    x, attributes = {**EXACT, **more}[way]
    attributes = {**attributes, "storage_order": column_major}
    values, positions = pooled("MaxPool", x, attributes)
    theirs = by_onnxruntime("MaxPool", x, attributes, 2)
    np.testing.assert_array_equal(values, theirs[0])
    np.testing.assert_array_equal(positions, theirs[1])
    assert (values.dtype, positions.dtype) == (x.dtype, np.int64)


def test_nan_is_taken_where_there_is_nothing_else_and_the_sign_of_zero_is_kept() -> None:
    x = f32([[[np.nan, np.nan, 3, -0.0, 0.0, np.nan, -np.inf]]])
    values, positions = pooled("MaxPool", x, {"kernel_shape": [2], "pads": [1, 1]})
    expected = f32([[[np.nan, np.nan, 3, 3, -0.0, 0, -np.inf, -np.inf]]])
    assert values.tobytes() == expected.tobytes()
    assert positions.tolist() == [[[0, 0, 2, 2, 3, 4, 6, 6]]]


@each("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@each("op", [*KERNELS])
def test_narrow_types_are_rounded_once(op: str, dtype: Any) -> None:
    x = PICTURE.astype(dtype)
    (found, *_) = pooled(op, x, {"kernel_shape": [5, 7]})
    (wide, *_) = pooled(op, x.astype(np.float64), {"kernel_shape": [5, 7]})
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found.astype(np.float64), wide, rtol=1e-15 if dtype == np.float64 else 1e-2, atol=1e-3
    )


def test_one_infinity_stays_in_its_windows() -> None:
    x = LINE.copy()
    x[0, 0, 2] = np.inf
    (found,) = pooled("AveragePool", x, {"kernel_shape": [3]})
    assert np.isinf(found).tolist() == [[[True, True, True, False, False]]]


def test_powers_do_not_overflow() -> None:
    (found,) = pooled("LpPool", f32([[[3e30, 4e30]]]), {"kernel_shape": [2]})
    np.testing.assert_allclose(found, [[[5e30]]], rtol=1e-6)


def test_a_whole_channel() -> None:
    np.testing.assert_array_equal(global_max_pool(ROOM), ROOM.max((2, 3, 4), keepdims=True))
    expected = (np.abs(ROOM) ** 3).sum((2, 3, 4), keepdims=True) ** (1 / 3)
    np.testing.assert_allclose(global_lp_pool(ROOM, p=3), expected, rtol=1e-5)


class Counted(np.ndarray):
    """An array that counts the elements that steps of numpy make."""

    made = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        plain = [np.asarray(value) for value in inputs]
        result = getattr(ufunc, method)(*plain, **given)
        Counted.made += result.size
        return result.view(Counted)


def test_the_cost_of_a_window_grows_with_the_digits_of_its_size() -> None:
    made = []
    for size in (64, 128):
        Counted.made = 0
        x = np.ones((1, 1, size, size), f32).view(Counted)
        found = average_pool(
            x, auto_pad="NOTSET", kernel_shape=[size - 2, size], pads=None, strides=None
        )
        np.testing.assert_array_equal(found, np.ones((1, 1, 3, 1)))
        made.append(Counted.made / size**2)
    assert made[1] <= made[0] + 2, made


@each(
    ("op", "attributes", "message"),
    [
        pytest.param(
            "MaxPool",
            {"kernel_shape": [2], "pads": [2, 0]},
            "window 0 along axis 2 sees padding alone",
            id="padding alone",
        ),
        pytest.param(
            "AveragePool",
            {"kernel_shape": [2], "pads": [0, 2]},
            "window 7 along axis 2 sees padding alone",
            id="padding that does not count alone",
        ),
        pytest.param("LpPool", {"kernel_shape": [9]}, "a window of 9 does not fit", id="too long"),
        pytest.param(
            "LpPool", {"kernel_shape": [2, 2]}, "not those of 1 axes", id="another number of axes"
        ),
        pytest.param(
            "LpPool",
            {"kernel_shape": [2], "strides": [0]},
            r"`strides` is \[0\], expected 1 or more each",
            id="no stride",
        ),
        pytest.param(
            "LpPool",
            {"kernel_shape": [2], "pads": [-1, 0]},
            r"`pads` is \[-1, 0\], expected 0 or more each",
            id="padding taken away",
        ),
        pytest.param(
            "LpPool",
            {"kernel_shape": [2], "pads": [2**50, 0]},
            "the padded input with shape",
            id="more padding than there is memory",
        ),
        pytest.param("LpPool", {"kernel_shape": None}, "`kernel_shape` is missing", id="no size"),
    ],
)
def test_what_makes_no_sense_fails(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        pooled(op, LINE, attributes)


def test_an_order_that_is_none_fails() -> None:
    with pytest.raises(KernelError, match="`p` is 0, expected a number above 0"):
        global_lp_pool(LINE, p=0)
