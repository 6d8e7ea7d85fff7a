"""Nodes are matched in time that grows with their number, and whatever they are called."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_kvtool as kv
from onnx_kvtool.review import matching
from onnx_kvtool.review.matching import Pairs

pytestmark = pytest.mark.long


def chain(layers: int, first: int = 0, op: str = "Mul") -> onnx.ModelProto:
    """Return layers that differ in a weight alone, with names that are numbered from `first` on."""
    nodes, weights, value = [], [], "x"
    for layer in range(layers):
        number, weight = first + 3 * layer, f"weight.{layer}"
        weights.append(numpy_helper.from_array(np.full(5, layer, np.float32), weight))
        names = [f"v{number + i}" for i in range(3)]
        nodes += [
            helper.make_node(op, [value, weight], names[:1], name=f"node_{number}"),
            helper.make_node("Transpose", names[:1], names[1:2], name=f"node_{number + 1}"),
            helper.make_node("Add", [names[1], value], names[2:], name=f"node_{number + 2}"),
        ]
        value = names[2]
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    square = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 5]) for name in "xy"]
    graph = helper.make_graph(nodes, "main", square[:1], square[1:], weights)
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often the matcher compares operators, asks for a pair or the readers of a value."""
    counted = [0]
    for name in ("_same_operator", "_outputs", "_is_constant"):
        function = getattr(matching, name)

        def count(*args, function=function):
            counted[0] += 1
            return function(*args)

        monkeypatch.setattr(matching, name, count)
    add = Pairs.add

    def adding(self, old, new):
        counted[0] += 1
        add(self, old, new)

    monkeypatch.setattr(Pairs, "add", adding)
    return counted


CHANGES = [
    pytest.param({}, {}, id="nothing"),
    pytest.param({"first": 7}, {"renamed"}, id="all names have another number"),
    pytest.param({"op": "Div"}, {"changed"}, id="an operator in every layer"),
    pytest.param({"op": "Div", "first": 7}, {"changed", "renamed"}, id="both"),
]


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_the_work_grows_with_the_nodes(steps: list[int], change, told) -> None:
    work = []
    for layers in (20, 80):
        steps[0] = 0
        report = kv.diff(chain(layers), chain(layers, **change))
        work.append(steps[0])
        assert not (report.added or report.removed or report.replaced or report.weights)
        assert len(report.changed) == ("changed" in told) * layers
        assert {c.what for c in report.changed} <= {"op"}
        assert len(report.renamed) == ("renamed" in told) * 6 * layers
    assert work[1] < 5 * work[0]


def test_a_layer_that_came_is_told_by_its_nodes_alone() -> None:
    longer = chain(7)
    report = kv.diff(chain(6), longer)
    added = sorted(n.location.op or "" for n in report.added)
    assert added == ["Add", "Mul", "Transpose"]
    assert not (report.removed or report.changed or report.replaced)
    assert [(w.name, w.what) for w in report.weights] == [("weight.6", "added")]


def test_equal_twins_keep_their_names() -> None:
    """Two nodes that nothing but their names tells apart, in another order."""
    text = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[B] x) => (float[B] z) {{ {} z = Add (a, b) }}
    """
    twins = ["[one] a = Neg (x)", "[two] b = Neg (x)"]
    models = [
        onnx.parser.parse_model(text.format(" ".join(order))) for order in (twins, twins[::-1])
    ]
    assert kv.diff(*models).status == "same"


def test_names_of_other_nodes_do_not_mislead() -> None:
    """After an export anew, each name is that of the node before."""
    text = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[B] x) => (float[B] z) {{
            {}[n{}] v{} = Neg (x)
            [n{}] v{} = Neg (v{})
            [n{}] z = Neg (v{})
        }}
    """
    old = text.format("", 0, 0, 1, 1, 0, 2, 1)
    new = text.format("[n0] v0 = Abs (x) ", 1, 1, 2, 2, 1, 3, 2)
    report = kv.diff(*(onnx.parser.parse_model(t) for t in (old, new)))
    assert [n.location.op for n in report.added] == ["Abs"]
    assert not (report.removed or report.changed or report.replaced)
    assert {r.kind for r in report.renamed} == {"node", "value"}
