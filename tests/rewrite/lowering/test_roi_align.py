"""RoiAlign-16, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime import onnxruntime
from tests.grids import part, search
from tests.rewrite.lowering.single import check, one_node

_IMAGE = np.random.default_rng(23).normal(size=(2, 3, 5, 7)).astype(np.float32)
_LARGE = [[0.2, 0.1, 4.5, 3.7], [1, 0.5, 6, 4], [-1, -2, 9, 8]]
_SMALL = [[1, 1, 1.3, 1.2], [2, 2, 2, 2], [4.5, 3.7, 0.2, 0.1], [0.1, 1, 0.9, 4]]


def _boxes(boxes: Any = None) -> dict[str, np.ndarray]:
    rois = np.array(_LARGE + _SMALL if boxes is None else boxes, np.float32).reshape(-1, 4)
    return {"X": _IMAGE, "rois": rois, "batch_indices": np.arange(len(rois)) % 2}


def test_roi_align_of_the_old_mode() -> None:
    model = one_node(
        "RoiAlign",
        _boxes(),
        [np.float32],
        opset=16,
        coordinate_transformation_mode="output_half_pixel",
        output_height=2,
        output_width=3,
    )
    check(model, _boxes(), 15, rtol=1e-5)


@pytest.mark.long
@part(6)
@pytest.mark.parametrize("target", [9, 10, 11, 15])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize(
    "boxes", [_LARGE, _LARGE + _SMALL, _SMALL[2:3]], ids=["large", "large and small", "turned"]
)
def test_boxes(boxes: Any, ratio: int, mode: str, target: int) -> None:
    """As onnxruntime has it, which agrees with onnx.reference."""
    inputs = _boxes(boxes)
    model = one_node(
        "RoiAlign",
        inputs,
        [np.float32],
        opset=16,
        dims={"X": ["N", "C", "H", "W"], "rois": ["R", 4], "batch_indices": ["R"]},
        mode=mode,
        sampling_ratio=ratio,
        spatial_scale=0.5,
        output_height=2,
        output_width=3,
    )
    expected = onnxruntime.Session(model.SerializeToString(), "").run(inputs)["out0"]
    check(model, inputs, target, [expected], rtol=1e-5)


def test_as_onnx_reference_has_it() -> None:
    inputs = _boxes(_LARGE + _SMALL[:2])
    model = one_node(
        "RoiAlign",
        inputs,
        [np.float32],
        opset=16,
        sampling_ratio=2,
        output_height=2,
        output_width=3,
    )
    check(model, inputs, 13, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype: type) -> None:
    inputs = _boxes()
    model = one_node("RoiAlign", inputs, [np.float32], opset=16, sampling_ratio=2)
    expected = onnxruntime.Session(model.SerializeToString(), "").run(inputs)["out0"]
    other = inputs | {"X": inputs["X"].astype(dtype), "rois": inputs["rois"].astype(dtype)}
    model = one_node("RoiAlign", other, [dtype], opset=16, sampling_ratio=2)
    check(model, other, 13, [expected.astype(dtype)], rtol=5e-3)


@pytest.mark.long
def test_no_boxes() -> None:
    inputs = _boxes([])
    model = one_node("RoiAlign", inputs, [np.float32], opset=16, output_height=2, output_width=3)
    check(model, inputs, 11, [np.zeros((0, 3, 2, 3), np.float32)])


_coordinate = st.floats(-2, 9, width=16).map(lambda n: n + 0.013)


@search(15)
@given(
    boxes=st.lists(st.tuples(*[_coordinate] * 4), min_size=1, max_size=4),
    ratio=st.integers(0, 2),
    target=st.sampled_from([9, 10, 13]),
)
def test_any_boxes(boxes: Any, ratio: int, target: int) -> None:
    if ratio == 0:  # onnxruntime refuses boxes that are turned: "Integer overflow"
        boxes = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in boxes]
    inputs = _boxes(boxes)
    model = one_node(
        "RoiAlign",
        inputs,
        [np.float32],
        opset=16,
        sampling_ratio=ratio,
        output_height=3,
        output_width=2,
    )
    expected = onnxruntime.Session(model.SerializeToString(), "").run(inputs)["out0"]
    check(model, inputs, target, [expected], rtol=1e-4)
