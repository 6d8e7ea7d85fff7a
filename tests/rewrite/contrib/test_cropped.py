"""Pictures that are cut as an input says, in their standard form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import each, search
from tests.rewrite.contrib.single import demand_same, normal, refusal
from tests.runtime.kernels.contrib.node import needs_onnxruntime

pytestmark = needs_onnxruntime

OPSETS = st.sampled_from([24, 21, 18, 13, 11])
some = search(60)


@some
@given(
    opset=OPSETS,
    mode=st.sampled_from([None, "bilinear", "nearest"]),
    crop=st.sampled_from([(3, 4), (1, 1), (5, 1), (1, 6), (2, 2)]),
    size=st.sampled_from([(5, 7), (1, 4), (3, 1)]),
    fill=st.sampled_from([None, -7.5]),
    stored=st.booleans(),
    seed=st.integers(0, 9),
)
def test_crop_and_resize(
    opset: int, mode: Any, crop: Any, size: Any, fill: Any, stored: bool, seed: int
) -> None:
    drawn = np.random.default_rng(seed).uniform(-0.3, 1.3, (5, 4))
    whole = [[0, 0, 1, 1], [1, 1, 0, 0], [0.5, 0.25, 0.5, 0.25]]
    rois = np.concatenate([drawn, whole]).astype(np.float32)
    inputs = {
        "X": normal(2, 3, *size),
        "rois": rois,
        "batch_indices": np.array([0, 1, 1, 0, 1, 0, 1, 1], np.int32),
        "crop_size": np.array(crop, np.int32),
    }
    given_ = {"mode": mode, "extrapolation_value": fill}
    attributes = {name: value for name, value in given_.items() if value is not None}
    constants = ["crop_size"] if stored else []
    demand_same("CropAndResize", inputs, at=opset, constants=constants, **attributes)


@pytest.mark.long
@each("number", [np.nan, np.inf, -np.inf])
def test_a_point_that_is_no_number_lies_outside(number: float) -> None:
    """onnxruntime reads memory that is not the picture's there."""
    inputs = {
        "X": normal(1, 2, 3, 5),
        "rois": np.array([[number, 0, number, 1]], np.float32),
        "batch_indices": np.zeros(1, np.int32),
        "crop_size": np.array([2, 3], np.int32),
    }
    expected = {"y": np.full((1, 2, 2, 3), 5, np.float32)}
    demand_same("CropAndResize", inputs, expected=expected, extrapolation_value=5.0)


@some
@given(
    opset=OPSETS,
    rank=st.sampled_from([1, 2]),
    pads=st.sampled_from([[0, 0, 0, 0], [1, 0, 2, 1], [0, 1, 1, 0]]),
    bias=st.booleans(),
    group=st.sampled_from([None, 1, 2]),
    strides=st.sampled_from([None, [2, 3]]),
    dilations=st.sampled_from([None, [2, 1]]),
    more=st.sampled_from([None, [1, 0]]),
    stored=st.booleans(),
)
def test_conv_transpose_with_dynamic_pads(
    opset: int,
    rank: int,
    pads: list[int],
    bias: bool,
    group: Any,
    strides: Any,
    dilations: Any,
    more: Any,
    stored: bool,
) -> None:
    more = more if strides else None  # what is added has to be less than a step
    inputs = {
        "X": normal(2, 4, *(5, 7)[:rank]),
        "W": normal(4, 3, *(3, 2)[:rank]),
        "Pads": np.array(pads[:rank] + pads[2 : 2 + rank], np.int64),
        "B": normal(3 * (group or 1)) if bias else None,
    }
    given_ = {"strides": strides, "dilations": dilations, "output_padding": more}
    attributes = {name: value[:rank] for name, value in given_.items() if value is not None}
    if group is not None:
        attributes["group"] = group
    constants = ["Pads"] if stored else []
    op_type = "ConvTransposeWithDynamicPads"
    demand_same(op_type, inputs, at=opset, constants=constants, tolerance=1e-4, **attributes)


PICTURE = normal(1, 2, 3, 5)
BOXES = {
    "X": PICTURE,
    "rois": np.zeros((1, 4), np.float32),
    "batch_indices": np.zeros(1, np.int32),
    "crop_size": np.ones(2, np.int32),
}
TURNED = {"X": PICTURE, "W": normal(2, 3, 3, 2), "Pads": np.array([0, 0, -1, 0])}


@each(
    ("op_type", "inputs", "options", "said"),
    {
        "a mode": ("CropAndResize", BOXES, {"mode": "cubic"}, "`mode`"),
        "padding of two kinds": (
            "ConvTransposeWithDynamicPads", TURNED, {"auto_pad": "VALID"}, "`auto_pad`",
        ),
        "no padding at all": (
            "ConvTransposeWithDynamicPads", TURNED | {"Pads": None}, {}, "`Pads`",
        ),
        "padding below zero": (
            "ConvTransposeWithDynamicPads", TURNED, {"constants": ["Pads"]}, "`Pads`",
        ),
    },
)  # fmt: skip
def test_refused(op_type: str, inputs: Any, options: Any, said: str) -> None:
    assert said in refusal(op_type, inputs, **options)
