"""RoiAlign-16, for older opsets."""

from __future__ import annotations

import numpy as np

from tests.rewrite.lowering.single import check, one_node, refusal

_IMAGE = np.random.default_rng(23).normal(size=(2, 3, 5, 7)).astype(np.float32)


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
