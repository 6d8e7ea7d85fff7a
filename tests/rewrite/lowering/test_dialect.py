"""The portable dialect: what the last pass mends, and the fixtures held against the page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from tests.dialect import FORMS, departures
from tests.grids import each, thinned

_ROOT = Path(__file__).resolve().parents[3]
_FIXTURES = {
    path.stem: path
    for folder in ("contrib", "encoders", "growing", "models")
    for path in sorted((_ROOT / "fixtures" / folder).rglob("*.onnx"))
}


_LOWERED = [
    pytest.param((11, 13, 18, 23)[number % 4], name, id=name)
    for number, name in enumerate(_FIXTURES)
]


def _parsed(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def _ops(model: ir.Model) -> list[str]:
    return [node.op_type for _, _, node in nodes(model)]


def test_the_page_and_the_checks_name_the_same_forms() -> None:
    page = (_ROOT / "docs" / "developing" / "dialect.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
    assert [row for row in rows if row not in ("form", "---")] == list(FORMS)


@pytest.mark.long
@pytest.mark.parametrize(("opset", "name"), thinned(_LOWERED, 17))
def test_fixtures_keep_to_the_dialect(opset: int, name: str) -> None:
    try:
        lowered, _ = lower(_FIXTURES[name], opset=opset, verify=False)
    except Refused:
        return  # nothing is written
    assert departures(lowered, read(_FIXTURES[name])) == []


_BROKEN = {
    "bytes": """
        g (float[n, 3] x) => (float[m, 3] out) <float[0, 3] e = {}> {
            [kvtool] out = Concat <axis = 0> (x, e)
        }""",
    "Where": """
        g (bool[2,1,1] c, float[2,3,5] x, float[1,3,1] y) => (float[2,3,5] out) {
            [kvtool] out = Where (c, x, y)
        }""",
    "int32": """
        g (int64[3] x) => (int64[3] out) <int64 big = {4294967296}> {
            [kvtool] out = Add (x, big)
        }""",
    "readers": """
        g (float[3] x) => (float[3] out) {
            [one] out = Neg (x)
            [two] dead = Abs (x)
        }""",
    "Constant": "g () => (int64 out) { [one] out = Constant <value_int = 3> () }",
    "Pad value": """
        g (float[3] x) => (float[5] out) <int64[2] pads = {1, 1}, float[1] number = {7}> {
            [one] out = Pad (x, pads, number)
        }""",
    "Pad axes": """
        g (float[3] x) => (float[5] out) <int64[2] pads = {1, 1}, int64[1] axes = {0}> {
            [one] out = Pad (x, pads, , axes)
        }""",
    "Squeeze": "g (float[3,1] x) => (float[3] out) { [one] out = Squeeze (x) }",
    "sizes": "g (float[3,1] x) => (int64[2] out) { [kvtool] out = Shape (x) }",
}


@each("form", [*FORMS])
def test_the_check_of_a_form_finds_what_departs_from_it(form: str) -> None:
    text = f'<ir_version: 10, opset_import: ["": 18]> {_BROKEN[form]}'
    empty = _parsed(
        '<ir_version: 10, opset_import: ["": 18]> g (float x) => (float y) { y = Neg (x) }'
    )
    assert [found.partition(":")[0] for found in departures(_parsed(text), empty)] == [form]


_EVERYTHING = """
    <ir_version: 10, opset_import: ["": 24, "me": 1, "ai.onnx.ml": 5]>
    g (float[2,1] x, int64[2] pads, bool[2,1] c, float[1] free, float[2,1] cache, float[1,1] row)
        => (float[5] y, float[5] z, float[2] filled, float[2,1] present, int64[2] two)
        <int64[1] axis = {0}, int64[2] one_two = {1, 2}, float[1] seven = {7}> {
        [squeeze] s = Squeeze (x)
        [pad] y = Pad (s, one_two, seven, axis)
        [pad_at_run_time] z = Pad (s, pads, , axis)
        [pad_free] filled = Pad (s, nothing, free)
        [nothing] zero = Constant <value_int = 0> ()
        [zeros] nothing = Concat <axis = 0> (lists, lists_too)
        [lists] lists = Constant <value_ints = [0]> ()
        [lists_too] lists_too = Identity (lists)
        [two] two = Constant <value_ints = [1, 2]> ()
        [dead] unread = Abs (only_dead)
        [dead_too] only_dead = Neg (x)
        [unknown] other = me.Print (x)
        [scatter] present = TensorScatter <axis = 1> (cache, row_of_two)
        [rows] row_of_two = Concat <axis = 0> (row, row)
    }"""


def _everything() -> ir.Model:
    model = _parsed(_EVERYTHING)
    model.graph.sort()
    return model


def test_the_last_pass_brings_the_source_to_the_dialect() -> None:
    lowered, report = lower(_everything(), opset=18, verify=False)
    assert departures(lowered, _everything()) == []
    found = _ops(lowered)
    assert found.count("Print") == 1
    assert "Abs" not in found
    assert "Neg" not in found
    assert found.count("Constant") == 2
    assert set(lowered.opset_imports) == {"", "me"}
    assert "3 nodes removed: no node or output uses the results" in report.notes


def test_its_results_are_those_of_the_source() -> None:
    lowered, _ = lower(_everything(), opset=18, verify=False)
    (unknown,) = (node for node in lowered.graph if node.op_type == "Print")
    lowered.graph.remove(unknown, safe=True)
    del lowered.opset_imports["me"]
    feeds = {
        "x": np.array([[2], [3]], np.float32),
        "pads": np.array([2, 1]),
        "c": np.ones((2, 1), np.bool_),
        "free": np.array([5], np.float32),
        "cache": np.zeros((2, 1), np.float32),
        "row": np.array([[4]], np.float32),
    }
    found = Session(serialize(lowered), "").run(feeds)
    assert found["y"].tolist() == [7, 2, 3, 7, 7]
    assert found["z"].tolist() == [0, 0, 2, 3, 0]
    assert found["filled"].tolist() == [2, 3]
    assert found["present"].tolist() == [[4], [4]]
    assert found["two"].tolist() == [1, 2]


def test_only_leaves_the_nodes_of_the_source_as_they_are() -> None:
    lowered, _ = lower(_everything(), only=["TensorScatter"], verify=False)
    found = Counter(_ops(lowered))
    expected = Counter(_ops(_everything()))
    del expected["TensorScatter"]
    assert expected <= found
    assert {"value_ints", "value_int"} <= {
        name for node in lowered.graph for name in node.attributes
    }


def test_a_dead_node_stays_whose_body_may_do_more() -> None:
    text = """
        <ir_version: 10, opset_import: ["": 21, "me": 1]> g (bool c, float[3] x) => (float[3] y) {
            y = Neg (x)
            one = If (c) <
                then_branch = a () => (float[3] a_out) { a_out = me.Print (x) },
                else_branch = b () => (float[3] b_out) { b_out = Abs (x) }
            >
            two = If (c) <
                then_branch = d () => (float[3] d_out) { d_out = Abs (x) },
                else_branch = e () => (float[3] e_out) { e_out = Neg (x) }
            >
        }"""
    lowered, _ = lower(_parsed(text), opset=18, verify=False)
    assert [node.outputs[0].name for node in lowered.graph] == ["y", "one"]


def test_a_call_of_a_function_that_computes_alone_is_left_out_where_nobody_reads_it() -> None:
    text = """
        <ir_version: 10, opset_import: ["": 21, "f": 1, "me": 1]> g (float[3] x) => (float[3] y) {
            y = f.Twice (x)
            dead = f.Twice (x)
        }
        <domain: "f", opset_import: ["": 21%s]> Twice (x) => (y) {
            unread = Abs (x)
            %sy = Add (x, x)
        }"""
    pure, _ = lower(_parsed(text % ("", "")), opset=20, verify=False)
    assert [node.outputs[0].name for node in pure.graph] == ["y"]
    assert sum(op == "Abs" for op in _ops(pure)) == 0
    impure, _ = lower(
        _parsed(text % (', "me": 1', "printed = me.Print (x)\n            ")),
        opset=20,
        verify=False,
    )
    assert [node.outputs[0].name for node in impure.graph] == ["y", "dead"]


def test_tensors_that_poor_readers_mistake_are_written_as_raw_bytes() -> None:
    """Without elements no field would be set; patterns of 16 bits stand in one for integers."""
    text = """<ir_version: 8, opset_import: ["": 18]>
        g (float16[n, 3] x) => (float16[m, 3] y) <float16[2, 3] h, float16[0, 3] e>
        { y = Concat <axis = 0> (x, h, e) }"""
    source = onnx.parser.parse_model(text)
    del source.graph.initializer[:]
    patterns = [15360, 48128, 31744, 32768, 1, 0]  # 1, -1, infinity, -0, the least number, 0
    for name, dims, held in (("h", [2, 3], patterns), ("e", [0, 3], [])):
        source.graph.initializer.add(name=name, dims=dims, data_type=10, int32_data=held)
    lowered, _ = lower(ir.from_proto(source), opset=13, verify=False)
    tensors = {one.name: one for one in onnx.load_from_string(serialize(lowered)).graph.initializer}
    assert all(one.HasField("raw_data") and not one.int32_data for one in tensors.values())
    assert np.frombuffer(tensors["h"].raw_data, np.uint16).tolist() == patterns
    assert list(tensors["e"].dims) == [0, 3]
