"""What the bodies that onnx's schemas give for operators take for granted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_kvtool as kv
from tests.rewrite.lowering.single import check, one_node


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
