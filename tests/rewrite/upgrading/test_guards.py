"""What the rules refuse, what stays as it is, and what counts as the same meaning."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

from tests.rewrite.lowering.single import one_node
from tests.rewrite.upgrading.single import check, refusal, upgraded

_F = np.float32
_CUBE = np.arange(30, dtype=_F).reshape(2, 3, 5)
_IMAGE = np.arange(210, dtype=_F).reshape(2, 3, 5, 7)
_FIVE: Any = {"x": _IMAGE} | {n: np.ones(3, _F) for n in ("s", "b", "m", "v")}
_SIZES: Any = {"x": ["N", 3, "H", "W"]}
_RESIZE: Any = {"x": _IMAGE, "roi": np.zeros(0, _F), "s": np.ones(4, _F)}
_HALF: Any = {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}
_DECONVOLUTION: Any = {"x": np.ones((1, 1, 3, 3), _F), "w": np.ones((1, 2, 4, 4), _F)}


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "outputs", "attributes", "dims", "code"),
    [
        ("BatchNormalization", 9, _FIVE, 5, {}, None, "changed-meaning"),
        ("Dropout", 10, {"x": _CUBE}, 2, {}, None, "changed-meaning"),
        ("Resize", 11, _RESIZE, 1, _HALF | {"mode": "linear"}, None, "attribute-value"),
        ("Resize", 11, _RESIZE, 1, _HALF | {"nearest_mode": "ceil"}, None, "attribute-value"),
        ("ConvTranspose", 10, _DECONVOLUTION, 1, {"output_shape": [4, 4]}, None, "changed-meaning"),
        (
            "ConvTranspose",
            10,
            _DECONVOLUTION,
            1,
            {"auto_pad": "SAME_LOWER"},
            None,
            "changed-meaning",
        ),
        (
            "MaxPool",
            12,
            {"x": _IMAGE},
            1,
            {"kernel_shape": [1, 2], "strides": [2, 3], "ceil_mode": 1},
            _SIZES,
            "changed-meaning",
        ),
        ("Erf", 9, {"x": _CUBE.astype(np.int32)}, 1, {}, None, "element-type"),
        (
            "Upsample",
            9,
            {"x": _IMAGE, "s": np.ones(4, _F)},
            1,
            {"mode": "x"},
            None,
            "attribute-value",
        ),
        ("Add", 6, {"x": _CUBE, "y": _CUBE}, 1, {}, None, "old-opset"),
    ],
    ids=[
        "BatchNormalization in training",
        "a mask of Dropout that is read",
        "a linear Resize at whole pixels",
        "a Resize at whole pixels that rounds up",
        "pads of ConvTranspose that follow from the output",
        "pads of ConvTranspose that are chosen",
        "a pool whose last window may begin in the padding",
        "Erf of integers",
        "an Upsample in a mode that there is not",
        "an operator from before opset 7",
    ],
)
def test_a_node_is_refused(
    op: str, opset: int, inputs: Any, outputs: int, attributes: Any, dims: Any, code: str
) -> None:
    kinds: list[Any] = [_F] + [np.bool_ if op == "Dropout" else _F] * (outputs - 1)
    if op == "Erf":
        kinds = [np.int32]
    model = one_node(op, inputs, kinds, opset=opset, dims=dims, **attributes)
    found = refusal(model)
    assert (found.code, found.location.op) == (code, op)
    assert found.message and not found.message.endswith(".")


def test_an_empty_list_of_axes_of_squeeze_is_refused() -> None:
    model = one_node("Squeeze", {"x": _CUBE}, [_F], opset=11)
    model.graph.node[0].attribute.append(
        helper.make_attribute("axes", [], attr_type=onnx.AttributeProto.INTS)
    )
    assert refusal(model).code == "empty-axes"


def test_a_pool_of_unknown_size_whose_last_window_begins_inside() -> None:
    inputs = {"x": _IMAGE}
    model = one_node(
        "MaxPool",
        inputs,
        [_F],
        opset=10,
        dims=_SIZES,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
    )
    check(model, inputs)


def test_an_operator_from_before_opset_7_that_did_not_change_since() -> None:
    inputs = {"x": np.array([True, False])}
    check(one_node("Not", inputs, [np.bool_], opset=4), inputs)


def test_extra_outputs_without_a_name_are_no_training_step() -> None:
    model = one_node("BatchNormalization", _FIVE, [_F], opset=9)
    model.graph.node[0].output.extend(["", ""])
    assert upgraded(model).graph.node[0].op_type == "BatchNormalization"


_FNUZ = ml_dtypes.float8_e4m3fnuz
_WIDE = np.array([1.5, np.inf, -np.inf, 300], _F)


@pytest.mark.parametrize("op", ["Cast", "CastLike"])
def test_an_infinity_stays_nan_in_a_float8_that_has_none(op: str) -> None:
    """Opset 24 makes it the largest number, which is 240 here."""
    inputs: dict[str, np.ndarray | None] = {"x": _WIDE}
    if op == "CastLike":
        inputs["like"] = np.zeros(1, np.uint8).view(_FNUZ)
    model = one_node(op, {"x": _WIDE}, [np.uint8], opset=19)
    node = model.graph.node[0]
    model.graph.output[0].type.tensor_type.elem_type = T.FLOAT8E4M3FNUZ
    if op == "Cast":
        node.attribute.append(helper.make_attribute("to", T.FLOAT8E4M3FNUZ))
    else:
        node.input.append("like")
        model.graph.input.append(helper.make_tensor_value_info("like", T.FLOAT8E4M3FNUZ, [1]))
    result = upgraded(model)
    assert [n.op_type for n in result.graph.node] == ["IsInf", "Where", op]
    node.attribute.append(helper.make_attribute("saturate", 0))
    assert [n.op_type for n in upgraded(model).graph.node] == [op]


def test_a_float8_with_infinities_is_cast_as_before() -> None:
    model = one_node("Cast", {"x": _WIDE}, [np.uint8], opset=19, to=T.FLOAT8E5M2)
    model.graph.output[0].type.tensor_type.elem_type = T.FLOAT8E5M2
    assert [n.op_type for n in upgraded(model).graph.node] == ["Cast"]
