"""Resize with axes, and with absent inputs, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.core.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime import onnxruntime
from tests.grids import search
from tests.rewrite.lowering.single import check, one_node, refusal, results

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


@st.composite
def _known(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """Draw a Resize of which all sizes are constant, and a target."""
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    case: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": draw(
            st.sampled_from(["half_pixel", "half_pixel_symmetric", "asymmetric"])
        ),
    }
    axes = draw(st.sampled_from([[2, 3], [3], [3, 2]]))
    case["axes"] = axes
    if draw(st.booleans()):
        scale = st.sampled_from([0.5, 0.6, 1.0, 1.5, 2.0, 2.5])
        case["scales"] = np.array([draw(scale) for _ in axes], _F)
    else:
        case["sizes"] = np.array([draw(st.integers(2, 11)) for _ in axes], np.int64)
        policy = st.sampled_from(["stretch", "not_larger", "not_smaller"])
        case["keep_aspect_ratio_policy"] = draw(policy)
    if mode == "nearest":
        case["nearest_mode"] = draw(
            st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        )
    else:
        case["antialias"] = draw(st.integers(0, 1))
    if mode == "cubic":
        case["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
        case["exclude_outside"] = draw(st.integers(0, 1))
    return case, draw(st.sampled_from([9, 10, 11, 13, 17]))


@search(60)
@given(_known())
def test_known_sizes_are_written_as_the_text_says(drawn: tuple[dict[str, Any], int]) -> None:
    """As onnxruntime has it on the source, or onnx's reference, whatever the opset lacks.

    The one mixes float32 with what antialiasing spreads, the other takes a coordinate that is a
    whole number for one a little below.
    """
    case, target = drawn
    _, inputs = _model(case)
    attributes = {k: v for k, v in case.items() if k not in inputs}
    constants = [name for name in ("scales", "sizes") if inputs.get(name) is not None]
    model = one_node("Resize", inputs, [_F], opset=19, constants=constants, **attributes)
    native = onnxruntime.Session(serialize(ir.from_proto(model)), "").run({"X": _X})
    expected = [native["out0"], *ReferenceEvaluator(model).run(None, {"X": _X})]
    try:
        (got,) = results(model, inputs, target)
        assert got.shape == expected[1].shape
        assert any(
            one.shape == got.shape and np.allclose(got, one, rtol=1e-4, atol=1e-4)
            for one in expected
        )
    except Refused as refused:
        (found,) = refused.report.refused
        assert case["mode"] == "nearest"  # where rounding decides
        assert found.code in ("attribute-value", "dynamic-input", "changed-meaning")
        event("refused")
