"""OptionalHasElement and OptionalGetElement of what is known before the run."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime import onnxruntime
from tests.grids import part
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


_MADE = """g (float[2, 3] x) => (float[2, 3] y, bool has, bool none) {
    z = Neg (x)
    o = Optional (z)
    %s
    y = OptionalGetElement (p)
    has = OptionalHasElement (o)
    e = Optional <type: type_proto = float[2, 3]> ()
    none = OptionalHasElement (e)
}"""


@part(3)
@pytest.mark.parametrize("target", [9, 11, 14])
@pytest.mark.parametrize(
    ("opset", "handed"),
    [(15, "p = Optional (z)"), (16, "p = Identity (o)"), (18, "p = Identity (o)")],
)
def test_an_optional_that_the_model_makes_is_read_through(
    opset: int, handed: str, target: int
) -> None:
    head = f'<ir_version: 8, opset_import: ["": {opset}]> '
    model = onnx.parser.parse_model(head + _MADE % handed)
    lowered, report = lower(ir.from_proto(model), opset=target, verify=True)
    assert report.verification.status == "equal"
    assert {node.op_type for node in lowered.graph} == {"Neg", "Identity"}
    assert [(done.location.index, done.rule) for done in report.lowered] == [
        (3, "optional"), (4, "optional"), (6, "optional"),
    ]  # fmt: skip
    found = onnxruntime.Session(serialize(lowered), "").run({"x": _X})
    np.testing.assert_array_equal(found["y"], -_X)
    assert (bool(found["has"]), bool(found["none"])) == (True, False)


def test_an_optional_that_a_branch_gives_is_refused() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 16]> g (bool c, float[3] x) => (float[3] y) {
            o = If (c) <
                then_branch = t () => (optional(float[3]) a) { a = Optional (x) },
                else_branch = e () => (optional(float[3]) b) {
                    b = Optional <type: type_proto = float[3]> ()
                }>
            y = OptionalGetElement (o)
        }""")
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(model), opset=14, verify=False)
    assert {d.location.op for d in refused.value.report.refused} >= {"Optional"}
