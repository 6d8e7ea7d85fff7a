"""Inference neither ends the process nor goes on for ever."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

import onnx_kvtool as kv
from onnx_kvtool.guard.inference import infer_with_data
from tests.grids import each

_HEAD = '<ir_version: 10, opset_import: ["": 24, "my": 1]>'

CASES = [
    pytest.param(
        'g (string[N] x) => (y) { t = my.Odd (x) [m] y = RegexFullMatch <pattern = "a"> (t) }',
        None,
        id="behind an operator that nobody knows",
    ),
    pytest.param(
        'g (string[N] x) => (y) { [m] y = RegexFullMatch <pattern = "a"> () }',
        None,
        id="an input that is absent",
    ),
    pytest.param(
        'g (string[N] x) => (y) { [m] y = RegexFullMatch <pattern = "a"> (x) }',
        onnx.TensorProto.BOOL,
        id="a type that is known",
    ),
    pytest.param(
        'g (string[N] x) => (y) { t = Identity (x) [m] y = RegexFullMatch <pattern = "a"> (t) }',
        onnx.TensorProto.BOOL,
        id="a type that is inferred",
    ),
]


@each(("text", "type_"), CASES)
@each("strict", [True, False])
def test_the_process_lives(text: str, type_: int | None, strict: bool) -> None:
    model = onnx.parser.parse_model(_HEAD + text)
    for node in model.graph.node:
        if not node.domain:
            node.ClearField("domain")  # which the parser sets
    before = model.SerializeToString(deterministic=True)
    try:
        result = infer_with_data(model, strict=strict)
    except onnx.shape_inference.InferenceError:
        assert type_ is None
    else:
        (output,) = result.graph.output
        assert output.type.tensor_type.elem_type == (type_ or 0)
        assert [n.domain for n in result.graph.node] == [n.domain for n in model.graph.node]
    assert model.SerializeToString(deterministic=True) == before
    kv.check(model)
    kv.infer(model)


def _inferred(equation: str) -> onnx.TypeProto:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[2, 3] x) => (y)'
        f'{{ y = Einsum <equation = "{equation}"> (x) }}'
    )
    inferred = infer_with_data(model)
    assert model.graph.node[0].domain == ""
    assert inferred.graph.node[0].domain == ""
    return inferred.graph.output[0].type


@each("equation", [".i", "....", "...i...", "i...j...->ij", "." * 100_000])
def test_a_stray_dot_does_not_hang(equation: str) -> None:
    assert not _inferred(equation).tensor_type.HasField("shape")


@each("equation", ["ij->ji", "...j -> j...", "i...", " i j -> i j"])
def test_other_equations_are_inferred(equation: str) -> None:
    assert len(_inferred(equation).tensor_type.shape.dim) == 2
