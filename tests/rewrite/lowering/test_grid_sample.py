"""GridSample-20 and GridSample-16, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.runtime import onnxruntime
from tests.grids import part, search
from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(23)
_IMAGE = _RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
_GRID = _RNG.uniform(-1.2, 1.2, (2, 4, 6, 2)).astype(np.float32)
_FAR = (_GRID * 4).astype(np.float32)
_VOLUME = _RNG.normal(size=(2, 3, 2, 5, 4)).astype(np.float32)
_SPACE = _RNG.uniform(-1.6, 1.6, (2, 1, 2, 3, 3)).astype(np.float32)
_MODES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@pytest.mark.parametrize("mode", [None, "linear", "nearest", "cubic"])
@pytest.mark.parametrize("target", [16, 19])
def test_grid_sample_keeps_its_mode_under_its_old_name(mode: str | None, target: int) -> None:
    inputs = {"X": _IMAGE, "grid": _GRID}
    attributes = {} if mode is None else {"mode": mode}
    model = one_node("GridSample", inputs, [np.float32], opset=20, **attributes)
    check(model, inputs, target, rtol=1e-4)


@pytest.mark.long
@part(8)
@pytest.mark.parametrize("target", [10, 11, 15])
@pytest.mark.parametrize("dims", [None, ["N", "C", "H", "W"]], ids=["known", "named"])
@pytest.mark.parametrize("aligned", [0, 1], ids=["centres", "corners"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", list(_MODES))
def test_pictures(mode: str, padding: str, aligned: int, dims: Any, target: int) -> None:
    """As onnxruntime has it; where a coordinate is moved to a border, as onnx.reference has it."""
    grid = _FAR if padding != "border" or mode != "cubic" else _GRID
    inputs = {"X": _IMAGE, "grid": grid}
    model = one_node(
        "GridSample",
        inputs,
        [np.float32],
        opset=16,
        dims=dims and {"X": dims, "grid": ["N", "h", "w", 2]},
        mode=_MODES[mode],
        padding_mode=padding,
        align_corners=aligned,
    )
    expected = onnxruntime.Session(model.SerializeToString(), "").run(inputs)["out0"]
    if mode == "cubic" and padding == "border":
        newer = one_node(
            "GridSample",
            inputs,
            [np.float32],
            opset=20,
            mode=mode,
            padding_mode=padding,
            align_corners=aligned,
        )
        expected = ReferenceEvaluator(newer).run(None, inputs)[0]
    check(model, inputs, target, [expected], rtol=0 if mode == "nearest" else 2e-5)


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("target", [11, 18])
@pytest.mark.parametrize("aligned", [0, 1], ids=["centres", "corners"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", list(_MODES))
def test_volumes(mode: str, padding: str, aligned: int, target: int) -> None:
    inputs = {"X": _VOLUME, "grid": _SPACE}
    model = one_node(
        "GridSample",
        inputs,
        [np.float32],
        opset=22,
        mode=mode,
        padding_mode=padding,
        align_corners=aligned,
    )
    check(model, inputs, target, rtol=0 if mode == "nearest" else 2e-5)


@pytest.mark.long
@pytest.mark.parametrize("aligned", [0, 1], ids=["centres", "corners"])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (2, 3)], ids=str)
def test_small_pictures_are_reflected_many_times(sizes: tuple[int, int], aligned: int) -> None:
    if aligned and 1 in sizes:
        pytest.skip("onnx.reference divides by the way between the centres, which is zero")
    inputs = {"X": _RNG.normal(size=(1, 2, *sizes)).astype(np.float32), "grid": _FAR[:1]}
    model = one_node(
        "GridSample",
        inputs,
        [np.float32],
        opset=20,
        mode="cubic",
        padding_mode="reflection",
        align_corners=aligned,
    )
    check(model, inputs, 13, rtol=1e-4)


@pytest.mark.long
def test_one_pixel_is_its_own_reflection() -> None:
    inputs = {"X": np.full((1, 1, 1, 1), 3, np.float32), "grid": _FAR[:1]}
    model = one_node(
        "GridSample",
        inputs,
        [np.float32],
        opset=20,
        padding_mode="reflection",
        align_corners=1,
    )
    check(model, inputs, 13, [np.full((1, 1, 4, 6), 3, np.float32)], rtol=1e-6)


def test_pixels_outside_are_zero_whatever_is_at_the_border() -> None:
    image = np.full((1, 1, 2, 2), np.inf, np.float32)
    grid = np.array([[[[-9, 0], [np.nan, 0], [np.inf, 0], [0.5, 0.5]]]], np.float32)
    inputs = {"X": image, "grid": grid}
    model = one_node("GridSample", inputs, [np.float32], opset=20, mode="nearest")
    check(model, inputs, 11, [np.array([[[[0, 0, 0, np.inf]]]], np.float32)])


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float64, np.float16])
def test_the_nearest_pixel_is_of_any_type(dtype: type) -> None:
    inputs = {"X": (_IMAGE * 9).astype(np.uint8).astype(dtype), "grid": _GRID}
    model = one_node("GridSample", inputs, [dtype], opset=20, mode="nearest")
    check(model, inputs, 13)


@search(25)
@given(
    sizes=st.tuples(*[st.integers(1, 6)] * 2),
    mode=st.sampled_from(list(_MODES)),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    seed=st.integers(0, 2**31),
)
def test_any_picture(sizes: tuple[int, int], mode: str, padding: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = {
        "X": rng.normal(size=(2, 3, *sizes)).astype(np.float32),
        "grid": rng.uniform(-1, 1, (2, 2, 3, 2)).astype(np.float32),
    }
    model = one_node(
        "GridSample",
        inputs,
        [np.float32],
        opset=16,
        mode=_MODES[mode],
        padding_mode=padding,
    )
    expected = onnxruntime.Session(model.SerializeToString(), "").run(inputs)["out0"]
    check(model, inputs, 13, [expected], rtol=0 if mode == "nearest" else 5e-5)


_WHOLE = np.zeros((1, 1, 2, 3), np.int32)


@pytest.mark.parametrize(
    ("inputs", "dims", "target", "code", "lowest"),
    [
        ({"X": _IMAGE, "grid": _GRID}, {"X": None}, 19, "unknown-rank", 20),
        ({"X": _IMAGE, "grid": _GRID}, {"X": None}, 13, "unknown-rank", 20),
        ({"X": _WHOLE, "grid": _GRID}, None, 13, "element-type", 16),
    ],
    ids=["an unknown rank", "an unknown rank further down", "integers between pixels"],
)
def test_grid_sample_is_refused(
    inputs: Any, dims: Any, target: int, code: str, lowest: int
) -> None:
    model = one_node("GridSample", inputs, [inputs["X"].dtype.type], opset=20, dims=dims)
    found = refusal(model, target)
    assert (found.code, found.lowest_opset) == (code, lowest)


@pytest.mark.long
@pytest.mark.parametrize("opset", [16, 20])
def test_grid_sample_goes_where_that_is_asked_for(opset: int) -> None:
    inputs = {"X": _IMAGE, "grid": _GRID}
    model = one_node("GridSample", inputs, [np.float32], opset=opset)
    lowered, _ = lower(ir.from_proto(model), only=["GridSample"], verify=False)
    assert "GridSample" not in [node.op_type for node in lowered.graph]
