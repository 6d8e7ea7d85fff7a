"""Inference neither ends the process nor goes on for ever."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

import onnx_kvtool as kv
from onnx_kvtool.guard.weightless import infer_with_data
from tests.grids import each

FUNCTION = (
    "g (float[6, 3] x) => (y) { y, z = my.two <n = 1> (x) }"
    '<domain: "my", opset_import: ["": 24]> two <n> (x) => (y, z)'
    "{ y, z = Split <num_outputs: int = @n> (x) }"
)
"""What `num_outputs` is shows at the call."""

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


CASES += [
    pytest.param(
        f"g (float[6, 3] x, int64[2, 1] i) => (y) {{ {text} }}",
        type_ and onnx.TensorProto.FLOAT,
        id=text,
    )
    for text, type_ in {
        "t = my.Odd (x) [m] y = EyeLike <dtype = 1> (t)": None,
        "[m] y = EyeLike <dtype = 1> (x)": True,
        "t = my.Odd (x) [m] y = EyeLike (t)": None,
        "[m] y, z = Split <num_outputs = 1> (x)": None,
        "[m] y, z = Split <num_outputs = 2> (x)": True,
        "[m] y = Split <num_outputs = 2147483647> (x)": None,
        "[m] y = GatherND <batch_dims = -3> (x, i)": None,
        "[m] y = GatherND <batch_dims = 0> (x, i)": True,
        "[m] y, a, b = LayerNormalization <axis = 2147483648> (x, x)": None,
        "[m] y, a, b = LayerNormalization <axis = 1> (x, x)": True,
    }.items()
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


def test_a_reference_ends_no_process() -> None:
    infer_with_data(onnx.parser.parse_model(_HEAD + FUNCTION))


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
