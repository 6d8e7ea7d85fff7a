"""What rules are given of a model is in the order of the model, whatever it is asked by."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.core.walk import graphs
from onnx_kvtool.lint.context import Context
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.shapes.annotations import Annotations

_MODEL = """
    <ir_version: 10, opset_import: ["": 18, "my": 1]>
    main (bool c, float[2] x) => (float[2] z) {
        [n0] a = Neg (x)
        [n1] z = If (c) <
            then_branch = yes () => (float[2] p) { [n2] q = Abs (a) [n3] p = Neg (q) },
            else_branch = no () => (float[2] r) { [n4] r = my.Neg (a) }
        >
        [n5] b = Abs (z)
    }
    <opset_import: ["": 18], domain: "my"> Neg (u) => (v) { [n6] v = Neg (u) }
"""


@pytest.fixture(name="context")
def _context() -> Context:
    model = deserialize(onnx.parser.parse_model(_MODEL).SerializeToString())
    return Context(model, (), Annotations([]))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param(["Neg"], ["n0", "n3", "n4", "n6"], id="one name, in any domain"),
        pytest.param(["Abs", "Neg"], ["n0", "n2", "n3", "n4", "n5", "n6"], id="two, in order"),
        pytest.param(["Abs", "Abs"], ["n2", "n5"], id="one name twice"),
        pytest.param(["Exp"], [], id="a name that no node has"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_sites_of(context: Context, asked: list[str], found: list[str]) -> None:
    assert [site.node.name for site in context.sites_of(*asked)] == found


def test_graphs(context: Context) -> None:
    assert list(context.graphs) == list(graphs(context.model))
    assert {id(site.node.graph) for site in context.sites} == {id(g) for _, g in context.graphs}
    assert isinstance(context.graphs[0][1], ir.Graph)
