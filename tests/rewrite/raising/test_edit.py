"""What the edit leaves behind: names, readers, shared sub-graphs, bodies, functions, opsets."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.rewrite.raise_report import RaiseReport

_CONSTANTS = """
    zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
    last = Constant <value_ints = [-1]> ()
"""
_POSITIONS = """
    shape = Shape <start = 1, end = 2> (update) length = Squeeze (shape)
    rows = Range (zero, length, one) positions = Add (rows, start)
    index = Unsqueeze (positions, last)
"""


def _write(present: str, cache: str = "cache", update: str = "update") -> str:
    return f"""
    {present}_c = Transpose <perm = [1, 0, 2]> ({cache})
    {present}_u = Transpose <perm = [1, 0, 2]> ({update})
    {present}_w = ScatterND ({present}_c, index, {present}_u)
    {present} = Transpose <perm = [1, 0, 2]> ({present}_w)
    """


_INPUTS = "float[B,7,5] cache, float[B,L,5] update, int64 start"
_BODY = f"{_CONSTANTS} {_POSITIONS} {_write('present')}"


def _raised(
    inputs: str, outputs: str, nodes: str, imports: str = "", functions: str = ""
) -> tuple[ir.Model, RaiseReport]:
    text = f"""<ir_version: 8, opset_import: ["": 18{imports}]>
    decoder ({inputs}) => ({outputs}) {{ {nodes} }} {functions}"""
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    raised, report = raise_(ir.from_proto(model), verify=True)
    assert report.verification.status == "equal", report.verification.detail
    onnx.checker.check_model(ir.to_proto(raised), full_check=True)
    return raised, report


def _ops(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph if node.op_type != "Constant"]


@pytest.mark.long
def test_layers_share_one_start() -> None:
    raised, report = _raised(
        f"{_INPUTS}, float[B,7,5] other",
        "float[B,7,5] present, float[B,7,5] second",
        f"{_BODY} {_write('second', 'other')}",
    )
    assert _ops(raised.graph) == ["Reshape", "Shape", "Expand", "TensorScatter", "TensorScatter"]
    assert {done.write_indices for done in report.raised} == {"write_indices"}


@pytest.mark.long
def test_index_arithmetic_that_others_read_stays() -> None:
    raised, _ = _raised(
        _INPUTS,
        "float[B,7,5] present, int64[L] positions",
        _BODY,
    )
    ops = _ops(raised.graph)
    assert ops.count("Range") == 1
    assert "Unsqueeze" not in ops
    assert "ScatterND" not in ops


@pytest.mark.long
def test_readers_of_the_scatter_itself_get_it_in_its_layout() -> None:
    raised, _ = _raised(
        _INPUTS,
        "float[B,7,5] present, float[7,B,5] seen",
        f"{_BODY} seen = Relu (present_w)",
    )
    ops = _ops(raised.graph)
    assert ops[-3:] == ["TensorScatter", "Transpose", "Relu"]


@pytest.mark.long
def test_a_scatter_that_is_an_output_itself_keeps_its_name_and_layout() -> None:
    raised, report = _raised(_INPUTS, "float[7,B,5] present_w, float[B,7,5] present", _BODY)
    assert [value.name for value in raised.graph.outputs] == ["present_w", "present"]
    assert report.raised[0].present == "present"


@pytest.mark.long
def test_two_outputs_with_one_present_keep_their_names() -> None:
    raised, _ = _raised(
        _INPUTS,
        "float[B,7,5] present, float[B,7,5] again",
        f"{_BODY} again = Transpose <perm = [1, 0, 2]> (present_w)",
    )
    assert [value.name for value in raised.graph.outputs] == ["present", "again"]
    assert _ops(raised.graph)[-2:] == ["TensorScatter", "Identity"]


@pytest.mark.long
def test_two_updates_of_one_cache_follow_each_other() -> None:
    raised, report = _raised(
        f"{_INPUTS}, float[B,L,5] more",
        "float[B,7,5] present",
        f"{_CONSTANTS} {_POSITIONS} {_write('middle')} {_write('present', 'middle', 'more')}",
    )
    assert [(done.past, done.present) for done in report.raised] == [
        ("cache", "middle"),
        ("middle", "present"),
    ]
    assert _ops(raised.graph).count("Transpose") == 0


@pytest.mark.long
def test_an_update_that_is_transposed_once_for_the_scatter_is_transposed_once_for_the_cache() -> (
    None
):
    raised, _ = _raised(
        "float[B,7,5] cache, float[L,5,B] fresh, int64 start",
        "float[B,7,5] present",
        f"""{_CONSTANTS} {_POSITIONS.replace("start = 1, end = 2> (update)", "end = 1> (fresh)")}
        c = Transpose <perm = [1, 0, 2]> (cache) u = Transpose <perm = [0, 2, 1]> (fresh)
        w = ScatterND (c, index, u) present = Transpose <perm = [1, 0, 2]> (w)""",
    )
    (transpose,) = [node for node in raised.graph if node.op_type == "Transpose"]
    assert list(transpose.attributes["perm"].as_ints()) == [2, 0, 1]
    assert transpose.inputs[0] is raised.graph.inputs[1]


def test_the_node_and_what_it_is_known_by_stay() -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]>
        decoder ({_INPUTS}) => (float[B,7,5] present) {{ {_BODY} }}"""
    )
    scatter = next(node for node in model.graph.node if node.op_type == "ScatterND")
    scatter.name, scatter.doc_string = "layer.0/write", "the cache"
    scatter.metadata_props.add(key="namespace", value="layer.0")
    source = ir.from_proto(model)
    before = ir.to_proto(source)
    raised, report = raise_(source, verify=False)
    (node,) = [n for n in raised.graph if n.op_type == "TensorScatter"]
    assert (node.name, node.doc_string) == ("layer.0/write", "the cache")
    assert node.metadata_props["namespace"] == "layer.0"
    assert report.raised[0].location.node == "layer.0/write"
    assert ir.to_proto(source) == before


BODIES = {
    "a branch of If": (
        f"{_INPUTS}, bool yes",
        f"""result = If (yes) <
            then_branch = yes_body () => (float[B,7,5] present) {{ {_BODY} }},
            else_branch = no_body () => (float[B,7,5] same) {{ same = Identity (cache) }}>""",
        "decoder/#0.then_branch",
        "cache",
    ),
    "the body of Loop": (
        f"{_INPUTS}, int64 times, bool go",
        f"""result = Loop (times, go, cache) <
            body = steps (int64 step, bool again, float[B,7,5] state)
                => (bool still, float[B,7,5] present) {{
                still = Identity (again) {_CONSTANTS} {_POSITIONS}
                {_write("present", "state")} }}>""",
        "decoder/#0.body",
        "state",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("inputs", "nodes", "graph", "past"), BODIES.values(), ids=BODIES)
def test_bodies_are_raised(inputs: str, nodes: str, graph: str, past: str) -> None:
    _, report = _raised(inputs, "float[B,7,5] result", nodes)
    (done,) = report.raised
    assert (done.location.graph, done.past, done.present) == (graph, past, "present")


_FUNCTION = f"""<domain: "my", opset_import: ["": 18]>
    write (cache, update, start) => (present) {{ {_BODY} }}
    <domain: "my", opset_import: ["": 18]>
    twice (x) => (y) {{ y = Add (x, x) }}"""


@pytest.mark.long
def test_a_function_that_holds_an_update_is_inlined_and_others_stay() -> None:
    raised, report = _raised(
        f"{_INPUTS}, float[B,7,5] other",
        "float[B,7,5] one, float[B,7,5] two",
        "two_updates = my.twice (update) one = my.write (cache, update, start)"
        " two = my.write (other, two_updates, start)",
        ', "my": 1',
        _FUNCTION,
    )
    assert [name for _, name, _ in raised.functions] == ["twice"]
    places = [(done.location.graph, done.location.op, done.past) for done in report.raised]
    assert places == [("my::write", "ScatterND", "cache"), ("my::write", "ScatterND", "other")]
    assert raised.functions["my", "twice", ""].opset_imports[""] == 24


def test_a_function_whose_update_is_refused_stays_a_function() -> None:
    functions = _FUNCTION.replace("rows, start)", "start, start)").replace(
        "positions = Add", "positions = Mul"
    )
    source = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18, "my": 1]>
        decoder ({_INPUTS}) => (float[B,7,5] one) {{ one = my.write (cache, update, free) }}
        {functions}""".replace("int64 start)", "int64[L] free)")
    )
    raised, report = raise_(ir.from_proto(source), verify=False)
    assert [r.location.graph for r in report.refused] == ["my::write"]
    assert ir.to_proto(raised) == ir.to_proto(ir.from_proto(source))


@pytest.mark.parametrize("opset", [24, 25])
def test_the_model_comes_to_the_opset_that_was_asked_for(opset: int) -> None:
    source = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]>
        decoder ({_INPUTS}) => (float[B,7,5] present) {{ {_BODY} }}"""
    )
    raised, report = raise_(ir.from_proto(source), opset=opset)
    assert (report.source_opset, report.target_opset) == (18, opset)
    assert raised.opset_imports[""] == opset
    assert report.verification.status == "equal"
