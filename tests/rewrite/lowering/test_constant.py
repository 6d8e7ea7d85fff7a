"""Constant-12 of numbers and strings, for opset 11."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from tests.rewrite.lowering.single import check, one_node, refusal

FORMS = {
    "an integer": ({"value_int": -5}, np.array(-5)),
    "integers": ({"value_ints": [3, -7]}, np.array([3, -7])),
    "a float": ({"value_float": 0.1}, np.array(0.1, np.float32)),
    "floats": ({"value_floats": [0.5, -2.0, 7.0]}, np.array([0.5, -2, 7], np.float32)),
    "strings": ({"value_strings": ["a", "", "bc"]}, np.array(["a", "", "bc"], object)),
}


@pytest.mark.parametrize(("attributes", "expected"), FORMS.values(), ids=FORMS)
def test_a_constant_becomes_the_tensor_it_stands_for(
    attributes: dict[str, Any], expected: np.ndarray
) -> None:
    model = one_node("Constant", {}, [expected.dtype], opset=12, **attributes)
    check(model, {}, 11, [expected])
    lowered, _ = lower(ir.from_proto(model), opset=11, verify=False)
    (node,) = lowered.graph
    assert (node.op_type, list(node.attributes)) == ("Constant", ["value"])


def test_a_constant_of_two_values_is_refused() -> None:
    model = one_node("Constant", {}, [np.int64], opset=12, value_int=3, value_ints=[3])
    found = refusal(model, 11)
    assert found.code == "constant-form"
