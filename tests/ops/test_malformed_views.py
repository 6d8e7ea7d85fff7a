"""A node that its schema does not allow cannot be read; which axes there are."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.ops.view import MalformedNode, NodeView, counted_axes, counted_axis
from tests.grids import each


def _node(text: str) -> ir.Node:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    model = onnx.parser.parse_model(f"{header} g (float[2] x) => (y) {{ {text} }}")
    (node,) = ir.from_proto(model).graph
    return node


@each(
    ("text", "code"),
    [
        pytest.param("y = NoSuch(x)", "unknown-operator", id="an operator that nobody knows"),
        pytest.param("y = Neg(x, x)", "too-many-inputs", id="an input too many"),
        pytest.param("y = Add(x)", "missing-input", id="an input too few"),
        pytest.param('y = Add("", x)', "missing-input", id="a required input that is absent"),
        pytest.param("y = Sum()", "missing-input", id="no value of several"),
        pytest.param('y = Sum(x, "", x)', "missing-input", id="one absent value of several"),
        pytest.param("y, z = Neg(x)", "output-count", id="an output too many"),
    ],
)
def test_a_malformed_node_cannot_be_read(text: str, code: str) -> None:
    with pytest.raises(MalformedNode) as caught:
        NodeView(_node(text), 18)
    assert caught.value.code == code


def test_a_node_without_outputs_cannot_be_read() -> None:
    with pytest.raises(MalformedNode, match="has 1 output at opset 18, got 0"):
        NodeView(ir.Node("", "Neg", [ir.Value(name="x")], num_outputs=0), 18)


@each(("axis", "rank", "found"), [(0, 1, 0), (-1, 3, 2), (-3, 3, 0), (2, 3, 2)])
def test_an_axis_is_counted_from_the_front(axis: int, rank: int, found: int) -> None:
    assert counted_axis(axis, rank) == found


@each(("axis", "rank"), [(0, 0), (-1, 0), (3, 3), (-4, 3), (2**62, 3)])
def test_an_axis_that_is_not_there_is_no_axis(axis: int, rank: int) -> None:
    with pytest.raises(MalformedNode, match=f"`axes` is {axis}, expected"):
        counted_axes([axis], rank)


def test_an_axis_that_is_named_twice_is_no_axis() -> None:
    with pytest.raises(MalformedNode, match="names an axis twice"):
        counted_axes([1, -2], 3)
