"""Equations that onnx's inference never finishes reading, and those that it reads as before."""

import onnx
import onnx.parser
import pytest

from onnx_kvtool.guard.inference import infer_with_data


def _inferred(equation: str) -> onnx.TypeProto:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[2, 3] x) => (y)'
        f'{{ y = Einsum <equation = "{equation}"> (x) }}'
    )
    inferred = infer_with_data(model)
    assert model.graph.node[0].domain == ""
    assert inferred.graph.node[0].domain == ""
    return inferred.graph.output[0].type


@pytest.mark.parametrize("equation", [".i", "....", "...i...", "i...j...->ij", "." * 100_000])
def test_a_stray_dot_does_not_hang(equation: str) -> None:
    assert not _inferred(equation).tensor_type.HasField("shape")


@pytest.mark.parametrize("equation", ["ij->ji", "...j -> j...", "i...", " i j -> i j"])
def test_other_equations_are_inferred(equation: str) -> None:
    assert len(_inferred(equation).tensor_type.shape.dim) == 2
