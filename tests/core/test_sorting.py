"""Nodes that stand before what they read are put behind it, and no others are moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands import evaluate
from onnx_kvtool.commands.infer import run
from onnx_kvtool.commands.requests import EvalRequest, InferRequest
from onnx_kvtool.model_io.model import deserialize, origin
from onnx_kvtool.model_io.sorting import sort_nodes, unsortable
from tests.grids import each

_HEAD = '<ir_version: 10, opset_import: ["": 24, "my": 1]>'
_TWICE = """
    <domain: "my", opset_import: ["": 24]> twice (x) => (y) { [s] y = Add (h, h) [r] h = Relu (x) }
"""
_IF = (
    "If (c) <then_branch = t () => (float[3] p) {{ [t1] p = Abs ({0}) }},"
    " else_branch = e () => (float[3] q) {{ [e1] q = Neg ({1}) [e2] {1} = Exp (x) }}>"
)


def _model(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(_HEAD + text)
    return deserialize(proto.SerializeToString())


def _order(model: ir.Model) -> list[str]:
    found = [node.name or "" for node in model.graph.all_nodes()]
    return found + [n.name or "" for f in model.functions.values() for n in f.all_nodes()]


CASES = [
    pytest.param(
        "g (float[3] x) => (float[3] y) { [a] y = Neg (z) [b] z = Exp (x) }",
        ["b", "a"],
        1,
        id="two nodes",
    ),
    pytest.param(
        "g (float[3] x) => (float[3] y, float[3] w, float[3] v) {"
        " [a] w = Abs (x) [b] y = Neg (z) [c] v = Sin (x) [d] z = Cast <to = 1> (x) }",
        ["a", "d", "b", "c"],
        1,
        id="a cast at the end, as the converter to float16 writes it; the others keep their order",
    ),
    pytest.param(
        "g (bool c, float[3] x) => (float[3] y) { [i] y = "
        + _IF.format("z", "k")
        + " [b] z = Exp (x) }",
        ["b", "i", "t1", "e2", "e1"],
        2,
        id="bodies, and what they read from outside",
    ),
    pytest.param(
        "g (float[3] x) => (float[3] y) { [c] y = my.twice (x) }" + _TWICE,
        ["c", "r", "s"],
        1,
        id="a function",
    ),
    pytest.param(
        "g (float[3] x) => (float[3] y) { [b] z = Exp (x) [a] y = Neg (z) }",
        ["b", "a"],
        0,
        id="nothing",
    ),
]


@each(("text", "order", "moved"), CASES)
def test_nodes_are_sorted(text: str, order: list[str], moved: int) -> None:
    model = _model(text)
    assert unsortable(model) == frozenset()
    what = "1 node stood before what it reads"
    if moved > 1:
        what = f"{moved} nodes stood before what they read"
    notes = [f"{what}: the nodes are sorted in the result"] * bool(moved)
    assert sort_nodes(model) == notes
    assert _order(model) == order
    assert [d.code for d in origin(model).defects] == []
    assert sort_nodes(model) == []


def test_a_cycle_stays_and_what_is_beside_it_is_sorted() -> None:
    model = _model(
        "g (float[3] x) => (float[3] y) { [a] z = Add (x, y) [b] y = my.twice (z) }" + _TWICE
    )
    assert unsortable(model) == {"g"}
    assert len(sort_nodes(model)) == 1
    assert _order(model) == ["a", "b", "r", "s"]
    assert [(d.code, d.location.node) for d in origin(model).defects] == [("unsorted-nodes", "a")]


def _halves() -> onnx.ModelProto:
    """An update whose cast the converter to float16 puts behind its readers."""
    return onnx.parser.parse_model(
        _HEAD + "g (float[2, 3, 7, 5] past, float16[2, 3, 1, 5] new, int64[2] at)"
        "  => (float16[2, 3, 7, 5] y) { [t] y = TensorScatter (half, new, at)"
        "  [c] half = Cast <to = 10> (past) }"
    )


def test_lower_sorts_and_says_so() -> None:
    model, report = kv.lower(_halves(), opset=18)
    assert [node.op_type for node in model.graph][-1] == "ScatterND"
    assert report.verification.status == "equal"
    assert report.notes[0] == (
        "1 node stood before what it reads: the nodes are sorted in the result"
    )


@pytest.mark.long
def test_raise_sorts_and_says_so() -> None:
    source = kv.lower(_halves(), opset=18)[0]
    proto = ir.to_proto(source)
    proto.graph.node.insert(0, proto.graph.node.pop())
    model, report = kv.raise_(proto)
    assert [node.op_type for node in model.graph][-1] == "TensorScatter"
    assert report.verification.status == "equal"
    assert "the nodes are sorted" in report.notes[0]


def test_check_finds_and_fixes_it_unless_there_is_a_cycle() -> None:
    (finding,) = kv.check(_halves(), select=["MD422"])
    assert finding.fix is not None and finding.fix.title == "sort the nodes"
    circle = onnx.parser.parse_model(
        _HEAD + "g (float[3] x) => (float[3] y) { z = Add (x, y) y = Abs (z) }"
    )
    (finding,) = kv.check(circle, select=["MD422"])
    assert finding.fix is None


def test_infer_sorts_and_says_so(tmp_path: Path) -> None:
    inferred, report = kv.infer(_halves())
    assert [node.name for node in inferred.graph] == ["c", "t"]
    assert inferred.graph.outputs[0].shape == (2, 3, 7, 5)
    note = "1 node stood before what it reads: the nodes are sorted in the result"
    assert report.notes == [note]
    source, result = tmp_path / "halves.onnx", tmp_path / "inferred.onnx"
    onnx.save(_halves(), source)
    written = run(InferRequest(str(source), output=str(result)))
    assert (written.notes, written.known_after) == ([note], 5)
    onnx.checker.check_model(onnx.load(result), full_check=True)
    assert run(InferRequest(str(source))).notes == []  # which writes nothing


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["reference", "onnxruntime"])
def test_eval_and_verify_run_them_in_order(runtime: str, tmp_path: Path) -> None:
    text = "g (float[3] x) => (float[3] y) { [a] y = Neg (z) [b] z = Exp (x) }"
    proto = onnx.parser.parse_model(_HEAD.replace("24", "23") + text)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    report = evaluate.run(EvalRequest(model=str(path), random=True, runtime=runtime))
    (warning,) = report.warnings
    assert (warning.code, warning.location.graph) == ("unsorted-nodes", "g")
    assert warning.message == (
        "1 node stood before what it reads: the nodes were run in a valid order"
    )
    found = kv.evaluate(proto, {"x": np.zeros(3, np.float32)}, runtime=runtime)
    np.testing.assert_array_equal(found["y"], np.full(3, -1, np.float32))
    assert kv.verify(proto, proto, runtime=runtime).status == "equal"
