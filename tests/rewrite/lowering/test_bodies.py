"""What the bodies that onnx's schemas give for operators take for granted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_kvtool as kv
from tests.grids import part
from tests.rewrite.lowering.single import check, one_node


@part(3)
@pytest.mark.parametrize("target", [11, 13, 17])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize(
    ("axes", "shape"),
    [(None, [4, 2, 5]), (None, [0, 7, 1]), ([1, -1], [2, 8]), ([2, 0], [3, 5]), ([-2], [6])],
    ids=str,
)
def test_center_crop_pad_takes_sizes_of_both_types(
    axes: Any, shape: list[int], is_constant: bool, dtype: type, target: int
) -> None:
    data = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    inputs = {"input_data": data, "shape": np.array(shape, dtype)}
    model = one_node(
        "CenterCropPad",
        inputs,
        [np.float32],
        opset=18,
        constants=["shape"] if is_constant else [],
        **({} if axes is None else {"axes": axes}),
    )
    feeds = {value.name: inputs[value.name] for value in model.graph.input}
    check(model, inputs, target, kv.ReferenceEvaluator(model).run(None, feeds))


@part(2)
@pytest.mark.parametrize("target", [13, 19])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("size", [(4, 5), (2, 4, 5)], ids=str)
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "at run time"])
def test_affine_grid_takes_one_grid(
    size: tuple[int, ...], batch: int, is_constant: bool, target: int
) -> None:
    rank = len(size)
    theta = np.linspace(-1, 2, batch * rank * (rank + 1), dtype=np.float32)
    inputs = {
        "theta": theta.reshape(batch, rank, rank + 1),
        "size": np.array([batch, 3, *size], np.int64),
    }
    constants = ["size"] if is_constant else []
    model = one_node("AffineGrid", inputs, [np.float32], opset=20, constants=constants)
    feeds = {value.name: inputs[value.name] for value in model.graph.input}
    expected = kv.ReferenceEvaluator(model).run(None, feeds)
    check(model, inputs, target, expected, rtol=1e-5, by_reference=True)
