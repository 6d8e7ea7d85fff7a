"""OptionalHasElement and OptionalGetElement of values that are not optional."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("target", [11, 17])
def test_a_tensor_is_there(target: int) -> None:
    inputs = {"input": _X}
    has = one_node("OptionalHasElement", inputs, [np.bool_], opset=18)
    check(has, inputs, target, [np.array(True)])
    get = one_node("OptionalGetElement", inputs, [np.float32], opset=18)
    check(get, inputs, target, [_X])


def test_an_absent_input_is_not_there() -> None:
    model = one_node("OptionalHasElement", {}, [np.bool_], opset=18)
    check(model, {}, 17, [np.array(False)])


@pytest.mark.parametrize("op", ["OptionalHasElement", "OptionalGetElement"])
def test_an_optional_value_is_refused(op: str) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    given = helper.make_value_info("input", helper.make_optional_type_proto(tensor))
    output = np.bool_ if op == "OptionalHasElement" else np.float32
    model = one_node(op, {"input": _X}, [output], opset=18)
    model.graph.input[0].CopyFrom(given)
    assert isinstance(model, onnx.ModelProto)
    found = refusal(model, 14)
    assert (found.code, found.lowest_opset) == ("element-type", 15)
