"""Upsample, held against what onnxruntime gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime as ort
import pytest

import onnx_kvtool as kv
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.picture import upsample_1, upsample_7
from tests.grids import each

f32 = np.float32
LINE = f32([1, 2, 4])
PICTURE = np.random.default_rng(7).normal(size=(2, 3, 5, 7)).astype(f32)
ROOM = np.random.default_rng(8).normal(size=(1, 2, 5, 3, 2)).astype(f32)

CASES: dict[str, tuple[np.ndarray, list[float], str]] = {
    "a line, nearest": (LINE, [1.7], "nearest"),
    "a table, linear": (PICTURE[0, 0], [2, 1.3], "linear"),
    "a picture, nearest, by fractions": (PICTURE, [1, 1, 1.3, 2.6], "nearest"),
    "a picture, linear, by whole numbers": (PICTURE, [1, 1, 2, 3], "linear"),
    "a picture, linear, by fractions": (PICTURE, [1, 1, 1.5, 2.6], "linear"),
    "a picture, channels last": (PICTURE, [1, 2, 1.5, 1], "linear"),
    "a room, linear": (ROOM, [1, 1, 2, 2.5, 3], "linear"),
    "whole numbers, linear": (
        np.arange(12, dtype=np.int32).reshape(1, 1, 3, 4) * 3 - 17,
        [1, 1, 2, 4],
        "linear",
    ),
    "one element, linear": (PICTURE[:, :, :1, :1], [1, 1, 2, 3], "linear"),
    "nothing": (PICTURE[:, :, :, :0], [1, 1, 2, 3], "nearest"),
}


def model(x: np.ndarray, scales: list[float], mode: str, opset: int) -> onnx.ModelProto:
    given = {"mode": mode, **({"scales": [float(n) for n in scales]} if opset < 9 else {})}
    node = onnx.helper.make_node("Upsample", ["x", "s"] if opset >= 9 else ["x"], ["y"], **given)
    element = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    initializers = [onnx.numpy_helper.from_array(f32(scales), "s")] if opset >= 9 else []
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", element, x.shape)],
        [onnx.helper.make_tensor_value_info("y", element, None)],
        initializers,
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=6)


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str, opset: int) -> None:
    made = model(*CASES[name], opset)
    feeds = {"x": CASES[name][0]}
    (found,) = kv.ReferenceEvaluator(made).run(None, feeds)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_first_version_has_a_scale_for_each_side() -> None:
    found = upsample_1(PICTURE, height_scale=2.0, mode="bilinear", width_scale=3.0)
    expected = upsample_7(PICTURE, mode="linear", scales=[1, 1, 2, 3])
    np.testing.assert_array_equal(found, expected)


@each("dtype", [np.float16, np.float64, np.uint8, np.int64, np.complex64])
def test_linear_of_other_types(dtype: Any) -> None:
    found = upsample_7(np.array([1, 4], dtype), mode="linear", scales=[4])
    np.testing.assert_array_equal(found, np.array([1, 1.75, 2.5, 3.25, 4, 4, 4, 4]).astype(dtype))
    assert found.dtype == dtype


@pytest.mark.parametrize("dtype", [object, np.bool_])
def test_what_is_no_number_is_repeated(dtype: Any) -> None:
    x = np.array([["a", ""]], object).astype(dtype)
    np.testing.assert_array_equal(
        upsample_7(x, mode="nearest", scales=[2, 2]), x.repeat(2, 0).repeat(2, 1)
    )


def test_infinity_stays_between_its_neighbours() -> None:
    found = upsample_7(f32([1, np.inf, 3]), mode="linear", scales=[2])
    np.testing.assert_array_equal(found, f32([1, np.inf, np.inf, np.inf, 3, 3]))


FAILING: dict[str, tuple[Callable[[], Any], str]] = {
    "too few scales": (
        lambda: upsample_7(PICTURE, f32([2, 2]), mode="nearest"),
        "`scales` has 2 elements, expected 4",
    ),
    "a scale below 1": (
        lambda: upsample_7(LINE, f32([0.5]), mode="nearest"),
        r"`scales\[0\]` is 0.5, expected 1 or more",
    ),
    "a scale that is no number": (
        lambda: upsample_7(LINE, f32([np.nan]), mode="nearest"),
        r"`scales\[0\]` is nan, expected 1 or more",
    ),
    "scales in a table": (
        lambda: upsample_7(LINE, f32([[2]]), mode="nearest"),
        r"`scales` has shape \(1, 1\), expected one dimension",
    ),
    "another mode": (
        lambda: upsample_7(LINE, f32([2]), mode="cubic"),
        "`mode` is `cubic`, expected `nearest` or `linear`",
    ),
    "text between text": (
        lambda: upsample_7(np.array(["a"], object), f32([2]), mode="linear"),
        "expected `nearest` for elements of object",
    ),
    "more than there is memory": (
        lambda: upsample_7(LINE, f32([3e38]), mode="nearest"),
        "the result with shape",
    ),
    "three axes in the first version": (
        lambda: upsample_1(PICTURE[0], height_scale=2.0, mode="nearest", width_scale=2.0),
        r"`X` has shape \(3, 5, 7\), expected four dimensions",
    ),
}


@each("name", [*FAILING])
def test_what_makes_no_sense_fails(name: str) -> None:
    call, message = FAILING[name]
    with pytest.raises(KernelError, match=message):
        call()
