"""Types that the target lacks on their way from a constant to the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.rewrite.report import Refused
from tests.grids import part

_RNG = np.random.default_rng(7)
_FLOAT = TensorProto.FLOAT


def _int4(*shape: int) -> np.ndarray:
    return _RNG.integers(-8, 8, shape).astype(ml_dtypes.int4)


def _float8(*shape: int) -> np.ndarray:
    codes = _RNG.integers(0, 127, shape).astype(np.uint8)
    return codes.view(ml_dtypes.float8_e4m3fn)


def _tensor(values: np.ndarray, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(values, name)


def _model(
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
) -> ir.Model:
    x = helper.make_tensor_value_info("x", _FLOAT, ["batch", 5])
    y = helper.make_tensor_value_info("y", _FLOAT, ["batch", "columns"])
    graph = helper.make_graph(nodes, "main", [x, *inputs], [y, *outputs], constants)
    opsets = [helper.make_opsetid("", 24)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=12))


_SCALE = _tensor(np.array(0.25, np.float32), "scale")
_PRODUCT = helper.make_node("MatMul", ["x", "w"], ["y"])


def _dequantize(codes: str, output: str = "w", **attributes: int) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", [codes, "scale"], [output], **attributes)


def _body(node: onnx.NodeProto, constants: Sequence[onnx.TensorProto] = ()) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(node.output[0], _FLOAT, [5, 30])
    return helper.make_graph([node], "body", [], [output], constants)


def _branch(codes: str) -> onnx.NodeProto:
    """Return an If whose bodies dequantize a constant of their own and one from outside."""
    own = _tensor(_int4(5, 30), "own")
    return helper.make_node(
        "If",
        ["which"],
        ["w"],
        then_branch=_body(_dequantize(codes, "then")),
        else_branch=_body(_dequantize("own", "other"), [own]),
    )


_WAYS: dict[str, ir.Model] = {
    "moved by Transpose and Reshape": _model(
        [
            helper.make_node("Transpose", ["codes"], ["turned"]),
            helper.make_node("Reshape", ["turned", "shape"], ["shaped"]),
            _dequantize("shaped"),
            _PRODUCT,
        ],
        [_tensor(_int4(30, 5), "codes"), _tensor(np.array([5, 30]), "shape"), _SCALE],
    ),
    "an odd number of elements": _model(
        [_dequantize("codes"), _PRODUCT], [_tensor(_int4(5, 33), "codes"), _SCALE]
    ),
    "in a Constant": _model(
        [
            helper.make_node("Constant", [], ["codes"], value=_tensor(_int4(5, 30), "c")),
            _dequantize("codes"),
            _PRODUCT,
        ],
        [_SCALE],
    ),
    "read by two, one of which casts": _model(
        [
            _dequantize("codes", "w0"),
            helper.make_node("Cast", ["codes"], ["w1"], to=_FLOAT),
            helper.make_node("Add", ["w0", "w1"], ["w"]),
            _PRODUCT,
        ],
        [_tensor(_int4(5, 30), "codes"), _SCALE],
    ),
    "in bodies": _model(
        [_branch("codes"), _PRODUCT],
        [_tensor(_int4(5, 30), "codes"), _tensor(np.array(False), "which"), _SCALE],
    ),
    "8-bit floats, moved": _model(
        [
            helper.make_node("Transpose", ["codes"], ["turned"]),
            _dequantize("turned"),
            _PRODUCT,
        ],
        [_tensor(_float8(30, 5), "codes"), _SCALE],
    ),
    "8-bit floats, cast": _model(
        [helper.make_node("Cast", ["codes"], ["w"], to=_FLOAT), _PRODUCT],
        [_tensor(_float8(5, 30), "codes")],
    ),
    "quantized and dequantized": _model(
        [
            helper.make_node("QuantizeLinear", ["x", "scale"], ["codes"], output_dtype=22),
            helper.make_node("Identity", ["codes"], ["same"]),
            _dequantize("same", "y"),
        ],
        [_SCALE],
    ),
}


@pytest.mark.long
@part(3)
@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("model", list(_WAYS.values()), ids=list(_WAYS))
def test_carried(model: ir.Model, opset: int) -> None:
    result, report = lower(model, opset=opset)
    assert report.verification.status == "equal"
    onnx.checker.check_model(ir.to_proto(result), full_check=True)


def _held_back() -> dict[str, ir.Model]:
    declared = helper.make_tensor_value_info("codes", TensorProto.INT4, [5, 30])
    codes = _tensor(_int4(5, 30), "codes")
    return {
        "an initializer that is an input": _model(
            [_dequantize("codes"), _PRODUCT], [codes, _SCALE], inputs=[declared]
        ),
        "a constant that is an output": _model(
            [
                helper.make_node("Identity", ["codes"], ["given"]),
                _dequantize("given"),
                _PRODUCT,
            ],
            [codes, _SCALE],
            outputs=[helper.make_tensor_value_info("given", TensorProto.INT4, [5, 30])],
        ),
        "rounded to the type": _model(
            [
                helper.make_node("Cast", ["x"], ["codes"], to=TensorProto.INT4),
                helper.make_node("Cast", ["codes"], ["y"], to=_FLOAT),
            ],
            [],
        ),
    }


@pytest.mark.parametrize("model", list(_held_back().values()), ids=list(_held_back()))
def test_refused(model: ir.Model) -> None:
    with pytest.raises(Refused) as refused:
        lower(model, opset=18, verify=False)
    assert {d.lowest_opset for d in refused.value.report.refused} == {21}
    assert {d.code for d in refused.value.report.refused} == {"element-type"}
