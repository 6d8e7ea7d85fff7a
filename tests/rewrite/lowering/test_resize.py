"""Resize with axes, and with absent inputs, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import onnxruntime
from tests.grids import part, search
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
    "antialiasing by sizes": {
        "sizes": np.array([2, 4], np.int64), "axes": [2, 3], "mode": "linear", "antialias": 1,
    },
    "antialiasing by scales, of one axis larger": {
        "scales": np.array([1, 1, 0.5, 1.5], _F), "mode": "cubic", "antialias": 1,
        "exclude_outside": 1,
    },
    "sizes that keep the aspect ratio": {
        "sizes": np.array([9, 8], np.int64), "axes": [3, 2], "mode": "linear",
        "keep_aspect_ratio_policy": "not_larger",
    },
    "sizes that keep the aspect ratio of rows": {
        "sizes": np.array([7, 8], np.int64), "axes": [2, 3],
        "keep_aspect_ratio_policy": "not_smaller",
    },
    "a symmetric half pixel": {
        "scales": np.array([1, 1, 0.6, 1.3], _F), "mode": "linear",
        "coordinate_transformation_mode": "half_pixel_symmetric",
    },
}  # fmt: skip


def _model(case: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    inputs = {"X": _X} | {name: case.get(name) for name in ("roi", "scales", "sizes")}
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    attributes = {k: v for k, v in case.items() if k not in inputs}
    return one_node("Resize", inputs, [_F], opset=19, **attributes), inputs


@part(2)
@pytest.mark.parametrize("target", [11, 13, 17, 18])
@pytest.mark.parametrize("case", list(_CASES.values()), ids=list(_CASES))
def test_equal(case: dict[str, Any], target: int) -> None:
    model, inputs = _model(case)
    check(model, inputs, target, rtol=1e-5)


_REFUSED = {
    "antialiasing of integers": ({"antialias": 1, "mode": "linear"}, 17, 18),
    "a symmetric half pixel of integers": (
        {"coordinate_transformation_mode": "half_pixel_symmetric", "mode": "linear"},
        11,
        19,
    ),
    "shares of integers": ({"mode": "linear"}, 10, 11),
}


@pytest.mark.parametrize(
    ("attributes", "target", "lowest"), list(_REFUSED.values()), ids=list(_REFUSED)
)
def test_refused(attributes: dict[str, Any], target: int, lowest: int) -> None:
    inputs = {"X": np.ones((1, 1, 3, 5), np.int32), "roi": None, "scales": None}
    inputs["sizes"] = np.array([1, 1, 5, 7], np.int64)
    model = one_node("Resize", inputs, [np.int32], opset=19, **attributes)
    assert refusal(model, target).lowest_opset == lowest


@pytest.mark.parametrize("target", [10, 17])
def test_an_unknown_rank_is_refused(target: int) -> None:
    _, inputs = _model({"sizes": np.array([2, 3, 9, 4], np.int64)})
    attributes = {"mode": "linear", "antialias": 1}
    dims: dict[str, Any] = {"X": None}
    model = one_node("Resize", inputs, [_F], opset=19, dims=dims, **attributes)
    assert refusal(model, target).lowest_opset == 18


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
    (got,) = results(model, inputs, target)
    assert any(
        one.shape == got.shape and np.allclose(got, one, rtol=1e-4, atol=1e-4) for one in expected
    )


_MODES = (
    *("asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"),
    "tf_crop_and_resize",
)


_BY_LENGTH = ("align_corners", "pytorch_half_pixel", "tf_crop_and_resize")


def _is_cut_off(case: dict[str, Any]) -> bool:
    """Return whether the size of the result is not the length that the scales make."""
    if "scales" not in case:
        return case.get("keep_aspect_ratio_policy", "stretch") != "stretch"
    lengths = np.array([_X.shape[axis] for axis in case["axes"]], _F) * case["scales"]
    return bool((lengths != np.floor(lengths)).any())


@st.composite
def _unknown(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Draw a Resize of which sizes are known at run time alone, its dimensions, and a target."""
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    place = draw(st.sampled_from(_MODES))
    axes = draw(st.sampled_from([[2, 3], [3], [3, 2], [0, 1, 2, 3]]))
    case: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": place, "axes": axes}
    kept = [1] * (len(axes) - 2) if len(axes) == 4 else []  # kernels resize no more axes than two
    ends = len(axes) - len(kept)
    if draw(st.booleans()):
        scales = [*kept, *(draw(st.floats(0.25, 3, width=32)) for _ in range(ends))]
        case["scales"] = np.array(scales, _F)
    else:
        sizes = [draw(st.integers(1, 11)) for _ in range(ends)]
        case["sizes"] = np.array([2, 3, *sizes] if kept else sizes, np.int64)
        if not kept:
            policy = st.sampled_from(["stretch", "not_larger", "not_smaller"])
            case["keep_aspect_ratio_policy"] = draw(policy)
    if place == "tf_crop_and_resize":
        starts = [0.0] * len(kept) + [draw(st.floats(-0.25, 0.5, width=16)) for _ in range(ends)]
        stops = [1.0] * len(kept) + [draw(st.floats(0.5, 1.25, width=16)) for _ in range(ends)]
        case["roi"] = np.array(starts + stops, _F)
        case["extrapolation_value"] = 5.0
    if mode == "nearest":
        rounding = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        case["nearest_mode"] = draw(st.sampled_from(rounding))
    if mode == "cubic":
        case["exclude_outside"] = draw(st.integers(0, 1))
    names = [1, "h", "w"] if len(axes) == 1 else ["c", "h", "w"]
    dims = draw(st.sampled_from([{}, {"X": [2, *names]}, {"X": [None] * 4}]))
    return case, dims, draw(st.sampled_from([9, 10]))


@pytest.mark.long
@pytest.mark.parametrize("target", [9, 10])
def test_a_scale_counts_though_it_makes_as_many_rows(target: int) -> None:
    """onnxruntime copies here; the text divides each place by 1.1."""
    rows = np.arange(7, dtype=_F)
    inputs = {"X": rows, "roi": None, "scales": np.array([1.1], _F)}
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    model = one_node("Resize", inputs, [_F], opset=19, mode="nearest", **attributes)
    check(model, inputs, target, [np.floor(rows / _F(1.1))])


@search(60)
@given(_unknown())
def test_unknown_sizes_are_those_of_onnxruntime(
    drawn: tuple[dict[str, Any], dict[str, Any], int],
) -> None:
    """Bit for bit where rows are chosen, whatever rounding makes of their coordinates.

    onnxruntime copies where all sizes stay, and takes no region of an axis whose size stays. It
    cuts the resized length off, which onnx's reference does not.
    """
    case, dims, target = drawn
    _, inputs = _model(case)
    inputs["X"] = inputs["X"][:, :1] if dims.get("X", [0, 0])[1] == 1 else inputs["X"]
    if case["mode"] == "cubic" and case["axes"] == [3]:
        return  # onnxruntime has no cubic kernel for one axis
    attributes = {k: v for k, v in case.items() if k not in inputs}
    model = one_node("Resize", inputs, [_F], opset=19, dims=dims, **attributes)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    try:
        native = onnxruntime.Session(serialize(ir.from_proto(model)), "").run(feeds)["out0"]
    except KvtoolError:
        event("refused by onnxruntime")
        return
    (got,) = results(model, inputs, target)
    assert got.shape == native.shape
    sizes = zip(native.shape, inputs["X"].shape, strict=True)
    if case["coordinate_transformation_mode"] in _BY_LENGTH and _is_cut_off(case):
        if case["mode"] != "nearest" and case["coordinate_transformation_mode"] != _BY_LENGTH[1]:
            (native,) = ReferenceEvaluator(model).run(None, feeds)
            np.testing.assert_allclose(got, native, rtol=1e-3, atol=1e-3)
        event("cut off by onnxruntime")
        return
    stays = [new == old for axis, (new, old) in enumerate(sizes) if axis in case["axes"]]
    if all(stays) or (any(stays) and case["coordinate_transformation_mode"] == _MODES[-1]):
        event("copied by onnxruntime")
        return
    if case["mode"] == "nearest":
        np.testing.assert_array_equal(got, native)
    else:
        np.testing.assert_allclose(got, native, rtol=1e-4, atol=1e-4)
