"""GridSample, RoiAlign and the pools, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(23)
_IMAGE = _RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
_GRID = _RNG.uniform(-1.2, 1.2, (2, 4, 6, 2)).astype(np.float32)


@pytest.mark.parametrize("mode", [None, "linear", "nearest", "cubic"])
@pytest.mark.parametrize("target", [16, 19])
def test_grid_sample_keeps_its_mode_under_its_old_name(mode: str | None, target: int) -> None:
    inputs = {"X": _IMAGE, "grid": _GRID}
    attributes = {} if mode is None else {"mode": mode}
    model = one_node("GridSample", inputs, [np.float32], opset=20, **attributes)
    check(model, inputs, target, rtol=1e-4)


_VOLUME = {"X": np.zeros((1, 1, 2, 3, 5)), "grid": np.zeros((1, 2, 2, 2, 3))}


@pytest.mark.parametrize(
    ("inputs", "dims", "target", "code", "lowest"),
    [
        (_VOLUME, None, 19, "rank", 20),
        (_VOLUME, {"X": None}, 19, "unknown-rank", 20),
        ({"X": _IMAGE, "grid": _GRID}, None, 15, "new-operator", 16),
    ],
    ids=["a volume", "an unknown rank", "before the operator"],
)
def test_grid_sample_is_refused(
    inputs: Any, dims: Any, target: int, code: str, lowest: int
) -> None:
    feeds = {name: value.astype(np.float32) for name, value in inputs.items()}
    model = one_node("GridSample", feeds, [np.float32], opset=20, dims=dims)
    found = refusal(model, target)
    assert (found.code, found.lowest_opset) == (code, lowest)


def _boxes() -> dict[str, np.ndarray]:
    boxes = np.array([[0.2, 0.1, 4.5, 3.7], [1, 1, 1.3, 1.2]], np.float32)  # one below a pixel
    return {"X": _IMAGE, "rois": boxes, "batch_indices": np.array([0, 1])}


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


def test_roi_align_of_the_new_default_mode_is_refused() -> None:
    found = refusal(one_node("RoiAlign", _boxes(), [np.float32], opset=16), 15)
    assert (found.code, found.lowest_opset) == ("attribute-value", 16)


_POOL = {"kernel_shape": [3, 3], "ceil_mode": 1}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"strides": [2, 2]}, None),
        ({"strides": [2, 2], "pads": [1, 1, 0, 1]}, None),
        ({"kernel_shape": [1, 1], "strides": [4, 4], "pads": [0, 0, 0, 2]}, "changed-meaning"),
    ],
    ids=["windows that begin inside", "padding", "a window that begins in the padding"],
)
def test_pools_that_round_up(op: str, attributes: Any, code: str | None) -> None:
    inputs = {"X": _IMAGE}
    model = one_node(op, inputs, [np.float32], opset=22, **(_POOL | attributes))
    if code is None:
        check(model, inputs, 12, rtol=1e-5)
    else:
        assert refusal(model, 12).code == code


def test_pools_of_unknown_size_that_round_up_are_refused() -> None:
    model = one_node(
        "MaxPool",
        {"X": _IMAGE},
        [np.float32],
        opset=22,
        dims={"X": [2, 3, "H", "W"]},
        **_POOL,
    )
    found = refusal(model, 21)
    assert (found.code, found.lowest_opset) == ("changed-meaning", 22)
