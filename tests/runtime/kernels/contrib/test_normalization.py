"""The normalizations of onnxruntime, against it and against their formulas."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

TOLERANCE = {"float64": 1e-5, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""Inverses are float32 for a double as well."""


def normal(*shape: int, dtype: Any = np.float32, seed: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def demand_close(
    found: dict[str, np.ndarray[Any, Any]], expected: dict[str, np.ndarray[Any, Any]]
) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        limit = TOLERANCE[value.dtype.name]
        np.testing.assert_allclose(
            found[name].astype(np.float64), value.astype(np.float64), limit, limit, err_msg=name
        )


AXES = [
    pytest.param(-1, (7,), id="the last axis"),
    pytest.param(2, (5, 7), id="two axes"),
    pytest.param(1, (3, 5, 7), id="all but the batch"),
    pytest.param(0, (2, 3, 5, 7), id="all axes"),
    pytest.param(1, (7,), id="a scale of fewer axes than are normalized"),
    pytest.param(-1, (2, 1, 5, 7), id="a scale of more axes than are normalized"),
    pytest.param(-1, (1,), id="one scale"),
]
DTYPES = [np.float32, np.float16, np.float64]


@needs_onnxruntime
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("axis", "scale"), AXES)
def test_simplified_layer_normalization(axis: int, scale: tuple[int, ...], dtype: Any) -> None:
    inputs = {"X": normal(2, 3, 5, 7, dtype=dtype), "scale": normal(*scale, dtype=dtype, seed=4)}
    arguments = ("SimplifiedLayerNormalization", inputs, ("y", "inverse"), "")
    attributes = {"axis": axis, "epsilon": 1e-2, "stash_type": 1}
    demand_close(ours(*arguments, **attributes), theirs(*arguments, **attributes))


@pytest.mark.long
@needs_onnxruntime
@each("dtype", [np.float32, np.float64])
@each("bias", [True, False])
@each(("axis", "scale"), AXES)
def test_layer_normalization_below_opset_17(
    axis: int, scale: tuple[int, ...], bias: bool, dtype: Any
) -> None:
    inputs = {
        "X": normal(2, 3, 5, 7, dtype=dtype),
        "Scale": normal(*scale, dtype=dtype, seed=4),
        "B": normal(*scale, dtype=dtype, seed=5) if bias else None,
    }
    arguments = ("LayerNormalization", inputs, ("y", "mean", "inverse"), "")
    attributes = {"axis": axis, "epsilon": 1e-2}
    demand_close(ours(*arguments, **attributes), theirs(*arguments, **attributes))


@needs_onnxruntime
@pytest.mark.parametrize(
    ("x", "scale"), [(np.float32, np.float16), (np.float16, np.float32)], ids=str
)
def test_the_result_has_the_type_of_the_scale(x: Any, scale: Any) -> None:
    inputs = {"X": normal(2, 7, dtype=x), "scale": normal(7, dtype=scale)}
    found = ours("SimplifiedLayerNormalization", inputs, domain="")
    assert found["y"].dtype == scale
    np.testing.assert_allclose(
        found["y"],
        theirs("SimplifiedLayerNormalization", inputs, domain="")["y"],
        rtol=2e-3,
        atol=2e-3,
    )


@pytest.mark.long
@needs_onnxruntime
@each("dtype", [np.float32, np.float16])
@each("bias", [True, False])
@each(
    ("shape", "skip"),
    [
        pytest.param((2, 3, 7), (2, 3, 7), id="three dimensions"),
        pytest.param((2, 3, 7), (1, 3, 7), id="a residual with a batch of 1"),
        pytest.param((2, 3, 7), (3, 7), id="a residual without a batch"),
        pytest.param((3, 7), (3, 7), id="two dimensions"),
    ],
)
@each("op_type", ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization", "without beta"])
def test_a_normalization_with_a_residual(
    op_type: str, shape: tuple[int, ...], skip: tuple[int, ...], bias: bool, dtype: Any
) -> None:
    inputs: dict[str, np.ndarray[Any, Any] | None] = {
        "input": normal(*shape, dtype=dtype),
        "skip": normal(*skip, dtype=dtype, seed=4),
        "gamma": normal(7, dtype=dtype, seed=5),
    }
    if "Simplified" not in op_type:
        inputs["beta"] = normal(7, dtype=dtype, seed=6) if op_type != "without beta" else None
        op_type = "SkipLayerNormalization"
    inputs["bias"] = normal(7, dtype=dtype, seed=7) if bias else None
    arguments = (op_type, inputs, ("y", "", "", "sum"))
    demand_close(ours(*arguments, epsilon=1e-2), theirs(*arguments, epsilon=1e-2))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_the_formula_of_the_simplified_one(dtype: Any) -> None:
    x, skip, gamma = (normal(3, 7, dtype=dtype, seed=n) for n in (1, 2, 3))
    inputs = {"input": x, "skip": skip, "gamma": gamma[0]}
    found = ours("SkipSimplifiedLayerNormalization", inputs, ("y", "", "", "sum"))
    total = x.astype(np.float64) + skip.astype(np.float64)
    expected = total / np.sqrt((total**2).mean(axis=-1, keepdims=True) + 1e-12)
    demand_close(
        found,
        {"y": (expected * gamma[0].astype(np.float64)).astype(dtype), "sum": total.astype(dtype)},
    )


def test_a_large_mean_does_not_cancel() -> None:
    x = normal(2, 7) + 1e4
    expected = (x - x.mean(-1, keepdims=True, dtype=np.float64)).astype(np.float64)
    expected /= np.sqrt((expected**2).mean(-1, keepdims=True))
    inputs = {"input": x, "skip": np.zeros_like(x), "gamma": np.ones(7, np.float32)}
    found = ours("SkipLayerNormalization", inputs)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)
