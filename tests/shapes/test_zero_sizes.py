"""A size of 0 that onnx's inference gives may be one without a number."""

from __future__ import annotations

import onnx.checker
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.shapes.annotations import annotate

_HEAD = '<ir_version: 10, opset_import: ["": 24]>'
_ATTENTION = (
    "g (float[b, 2, 4, 8] q, float[b, 2, K, 8] k, float[b, 2, K, 8] v)"
    "  => (float[b, 2, 4, 8] y, float[b, 2, 4, T] w) {"
    "  y, none, nothing, scores = Attention (q, k, v) z = Relu (scores) w = Neg (z) }"
)


def _model(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(_HEAD + text)
    for node in proto.graph.node:
        for index, name in enumerate(node.output):
            if name in ("none", "nothing"):
                node.output[index] = ""
    return ir.from_proto(proto)


def _dims(model: ir.Model, name: str) -> list[int | str | None]:
    value = next(v for node in model.graph for v in node.outputs if v.name == name)
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        pytest.param(_ATTENTION, "z", ["b", 2, 4, "K"], id="one without a number"),
        pytest.param(
            "g (float[b, 0] x) => (z) { y = Relu (x) z = Neg (y) }", "y", ["b", 0], id="a real one"
        ),
        pytest.param(
            "g (float[b] x) => (z) { o = Constant <value_float = 2.0> ()"
            "  n = Constant <value_ints = [0, 3]> () y = Expand (o, n) z = Neg (y) }",
            "z",
            [0, 3],
            id="one that is computed",
        ),
    ],
)
def test_a_size_of_zero_is_confirmed_or_found(
    text: str, name: str, expected: list[int | str]
) -> None:
    model = _model(text)
    annotations = annotate(model)
    assert _dims(model, name) == expected
    annotations.remove()
    assert _dims(model, name) == []


@pytest.mark.long
@pytest.mark.parametrize("opset", [11, 18, 22])
def test_the_scores_of_a_lowered_attention_have_no_size_of_zero(opset: int) -> None:
    result, report = lower(_model(_ATTENTION), opset=opset)
    assert report.verification.status == "equal"
    proto = ir.to_proto(result)
    onnx.checker.check_model(proto, full_check=True)
    values = (*proto.graph.value_info, *proto.graph.output)
    sizes = [d for v in values for d in v.type.tensor_type.shape.dim if d.HasField("dim_value")]
    assert 0 not in [dim.dim_value for dim in sizes]
