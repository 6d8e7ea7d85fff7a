"""Resize with axes, and with absent inputs, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.random.default_rng(7).normal(size=(2, 3, 5, 7)).astype(np.float32)
_F = np.float32
_CASES: dict[str, dict[str, Any]] = {
    "scales of two axes": {"scales": np.array([2, 1.5], _F), "axes": [2, 3], "mode": "linear"},
    "scales in any order": {"scales": np.array([3, 0.6], _F), "axes": [3, 2]},
    "sizes of one axis": {"sizes": np.array([4], np.int64), "axes": [3], "mode": "linear"},
    "sizes of all axes": {"sizes": np.array([2, 3, 9, 4], np.int64)},
    "scales of all axes": {"scales": np.array([1, 1, 2, 2], _F), "mode": "cubic"},
    "a region of two axes": {
        "roi": np.array([0.2, 0.3, 0.7, 0.9], _F),
        "sizes": np.array([4, 6], np.int64),
        "axes": [2, 3],
        "mode": "linear",
        "coordinate_transformation_mode": "tf_crop_and_resize",
    },
}


def _model(case: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    inputs = {"X": _X} | {name: case.get(name) for name in ("roi", "scales", "sizes")}
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    attributes = {k: v for k, v in case.items() if k not in inputs}
    return one_node("Resize", inputs, [_F], opset=19, **attributes), inputs


@pytest.mark.parametrize("target", [11, 13, 17, 18])
@pytest.mark.parametrize("case", list(_CASES.values()), ids=list(_CASES))
def test_equal(case: dict[str, Any], target: int) -> None:
    model, inputs = _model(case)
    check(model, inputs, target, rtol=1e-5)


_REFUSED = {
    "antialiasing": ({"antialias": 1, "mode": "linear"}, 17, "attribute", 18),
    "sizes that keep the aspect ratio": (
        {"keep_aspect_ratio_policy": "not_larger"},
        13,
        "attribute-value",
        18,
    ),
    "a symmetric half pixel": (
        {"coordinate_transformation_mode": "half_pixel_symmetric"},
        11,
        "attribute-value",
        19,
    ),
}


@pytest.mark.parametrize(
    ("attributes", "target", "code", "lowest"), list(_REFUSED.values()), ids=list(_REFUSED)
)
def test_refused(attributes: dict[str, Any], target: int, code: str, lowest: int) -> None:
    model, _ = _model({"sizes": np.array([2, 3, 9, 4], np.int64)} | attributes)
    found = refusal(model, target)
    assert (found.code, found.lowest_opset) == (code, lowest)
