"""AffineGrid and GridSample: places in pictures, of every type, held against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnxruntime as ort
import pytest

import onnx_kvtool as kv
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.picture import affine_grid_20
from tests.grids import each


def one_node(op: str, feeds: dict[str, np.ndarray], result: int, **given: Any) -> onnx.ModelProto:
    node = onnx.helper.make_node(op, [*feeds], ["y"], **given)
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    outputs = [onnx.helper.make_tensor_value_info("y", result, None)]
    graph = onnx.helper.make_graph([node], "g", inputs, outputs)
    imports = [onnx.helper.make_opsetid("", 20)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)


def both(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return kv.ReferenceEvaluator(model).run(None, feeds)[0], session.run(None, feeds)[0]


@pytest.mark.parametrize("sizes", [(5, 7), (2, 3, 5)], ids=["picture", "room"])
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_grid_has_the_type_of_its_matrix(
    dtype: Any, align_corners: int, sizes: tuple[int, ...]
) -> None:
    rank = len(sizes)
    theta = np.random.default_rng(7).normal(size=(2, rank, rank + 1)).astype(dtype)
    feeds = {"theta": theta, "size": np.array([2, 3, *sizes])}
    element = onnx.helper.np_dtype_to_tensor_dtype(theta.dtype)
    ours, theirs = both(one_node("AffineGrid", feeds, element, align_corners=align_corners), feeds)
    assert ours.dtype == theirs.dtype == dtype
    near = {np.float64: 1e-7, np.float32: 1e-6, np.float16: 2e-3}[dtype]
    np.testing.assert_allclose(ours, theirs, rtol=near, atol=near)


def test_a_grid_of_double_is_not_rounded_to_float() -> None:
    theta = np.array([[[1 / 3, 0, 0], [0, 1, 0]]])
    found = affine_grid_20(theta, np.array([1, 1, 1, 2]), align_corners=1)
    assert found.ravel().tolist() == [-1 / 3, -1, 1 / 3, -1]


def test_a_grid_of_bfloat16_and_one_of_nothing() -> None:
    theta = np.ones((2, 2, 3), ml_dtypes.bfloat16)
    found = affine_grid_20(theta, np.array([2, 3, 0, 5]))
    assert (found.shape, found.dtype) == ((2, 0, 5, 2), theta.dtype)


@each(
    ("shape", "size", "message"),
    [
        pytest.param((1, 2, 3), [1, 1, 5], "expected four or five sizes", id="a line"),
        pytest.param((1, 2, 3), [], r"`size` is \[\], expected four or five sizes", id="nothing"),
        pytest.param((1, 2, 3), [1, 1, -5, 2], "expected four or five sizes", id="less than none"),
        pytest.param((1, 3, 4), [1, 1, 5, 7], r"expected \(1, 2, 3\) as `size`", id="a room"),
        pytest.param((2, 2, 3), [3, 1, 5, 7], r"expected \(3, 2, 3\) as `size`", id="a batch"),
    ],
)
def test_what_does_not_fit_fails(shape: tuple[int, ...], size: list[int], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        affine_grid_20(np.ones(shape), np.array(size))


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_places_of_16_bits_are_computed_with_in_32(dtype: Any, align_corners: int) -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(1, 2, 5, 7)).astype(dtype)
    feeds = {"x": x, "grid": rng.uniform(-1, 1, (1, 3, 5, 2)).astype(np.float16)}
    element = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    model = one_node("GridSample", feeds, element, align_corners=align_corners)
    (found,) = kv.ReferenceEvaluator(model).run(None, feeds)
    feeds["grid"] = feeds["grid"].astype(np.float32)
    model = one_node("GridSample", feeds, element, align_corners=align_corners)
    _, expected = both(model, feeds)
    near = 2e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(found, expected, rtol=near, atol=near)
