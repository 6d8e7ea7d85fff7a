"""A symbolic dimension that gets its size for good."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.shapes.writing import fix_dims

_MODEL = """
<ir_version: 10, opset_import: ["" : 18]>
main (float[batch, length, 5] x, bool c, int64[n] w) => (float[M, length, 5] y, float[M] z) {
    flat = Reshape (x, w)
    z = Concat <axis = 0> (flat, flat)
    y = If (c) <
        then_branch = g1 () => (float[batch, length, 5] a) { b = Neg (x)  a = Neg (b) },
        else_branch = g2 () => (float[batch, length, 5] e) { e = Identity (x) }
    >
}
"""


def _model() -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(_MODEL))
    model.graph.outputs[1].shape = ir.Shape(["2*batch"])
    return model


def _shapes(model: ir.Model) -> dict[str, list[int | str | None]]:
    found = {}
    for value in (
        *model.graph.inputs,
        *(output for node in model.graph.all_nodes() for output in node.outputs),
    ):
        if value.shape is not None:
            found[value.name or ""] = [d if isinstance(d, int) else d.value for d in value.shape]
    return found


@pytest.mark.parametrize(
    ("dims", "changed"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param(
            {"batch": 2},
            {"x": [2, "length", 5], "z": [4], "a": [2, "length", 5], "e": [2, "length", 5]},
            id="a name, what is declared in terms of it, and bodies",
        ),
        pytest.param({"n": 3, "M": 2}, {"w": [3], "y": [2, "length", 5]}, id="two names"),
    ],
)
def test_fixed_dims(dims: dict[str, int], changed: dict[str, list[int | str | None]]) -> None:
    model = _model()
    before = _shapes(model)
    fix_dims(model, dims)
    assert _shapes(model) == before | changed


def test_a_part_of_an_expression() -> None:
    model = _model()
    model.graph.inputs[0].shape = ir.Shape(["past + length", None, 5], ["DATA_BATCH", None, None])
    fix_dims(model, {"past": 3})
    shape = model.graph.inputs[0].shape
    assert shape is not None
    assert shape[0] == ir.SymbolicDim("length + 3")
    assert shape.get_denotation(0) == "DATA_BATCH"
    assert shape[1] == ir.SymbolicDim(None)
