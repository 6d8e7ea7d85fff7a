"""BatchNormalization in training mode below opset 14."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(11)


def _inputs(dtype: type, *shape: int) -> dict[str, np.ndarray]:
    vectors = {n: _RNG.uniform(0.5, 2, shape[1]).astype(dtype) for n in ("s", "b", "m", "v")}
    return {"X": _RNG.normal(size=shape).astype(dtype)} | vectors


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3), (2, 3, 5, 7)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_training(dtype: type, shape: tuple[int, ...]) -> None:
    inputs = _inputs(dtype, *shape)
    x, s, b, m, v = inputs.values()
    axes = tuple(a for a in range(len(shape)) if a != 1)
    column = (-1,) + (1,) * (len(shape) - 2)
    mean, var = x.mean(axes), x.var(axes)
    y = (x - mean.reshape(column)) / np.sqrt(var.reshape(column) + 1e-3)
    expected = [
        (y * s.reshape(column) + b.reshape(column)).astype(dtype),
        (m * 0.8 + mean * 0.2).astype(dtype),
        (v * 0.8 + var * 0.2).astype(dtype),
    ]
    model = one_node(
        "BatchNormalization",
        inputs,
        [dtype] * 3,
        opset=15,
        training_mode=1,
        epsilon=1e-3,
        momentum=0.8,
    )
    check(model, inputs, 13, expected, rtol=1e-5)


def test_float16_is_refused() -> None:
    inputs = _inputs(np.float16, 2, 3, 5)
    model = one_node("BatchNormalization", inputs, [np.float16] * 3, opset=15, training_mode=1)
    found = refusal(model, 13)
    assert (found.code, found.lowest_opset) == ("element-type", 14)


def test_inference_with_unnamed_outputs() -> None:
    inputs = _inputs(np.float32, 2, 3, 5)
    x, s, b, m, v = inputs.values()
    column = (-1, 1)
    y = (x - m.reshape(column)) / np.sqrt(v.reshape(column) + 1e-5)
    model = one_node("BatchNormalization", inputs, [np.float32], opset=15)
    model.graph.node[0].output.extend(["", ""])
    check(model, inputs, 13, [y * s.reshape(column) + b.reshape(column)], rtol=1e-5)
