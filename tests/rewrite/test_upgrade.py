"""Whole models at a later opset: what changes, what stays, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from onnx_kvtool.model_io.model import deserialize, serialize
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.rewrite.report import Outcome
from onnx_kvtool.rewrite.upgrade import upgrade
from tests.rewrite.upgrading.single import run


def _raised(message: onnx.ModelProto, target: int = 24) -> tuple[onnx.ModelProto, Outcome]:
    """Return the message at the target, and what was done."""
    model = deserialize(message.SerializeToString())
    outcome = upgrade(model, target)
    assert not outcome.refused, [str(refusal) for refusal in outcome.refused]
    return onnx.ModelProto.FromString(serialize(model)), outcome


def _refused(message: onnx.ModelProto, target: int = 24) -> Outcome:
    outcome = upgrade(deserialize(message.SerializeToString()), target)
    assert outcome.refused
    return outcome


def _decorated(opset: int = 18) -> onnx.ModelProto:
    """Return a model with everything that might get lost, whose operators need no rule."""
    message = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : {opset}, "my" : 3, "com.microsoft" : 1],
     producer_name: "exporter", producer_version: "7", model_version: 9, doc_string: "all of it">
    main (float[2,N] x, float[2,3] override) => (float[2,N] y, float[2,3] z)
    <float[2,3] override = {{1,2,3,4,5,6}}, float[3] w = {{1,2,3}}, float[2,N] a>
    {{
        ["first"] a = Relu (x)
        ["call"] b = my.twice <q = 2.5> (a)
        ["contrib"] y = com.microsoft.Gelu (b)
        ["third"] c = Add (override, sparse)
        ["fourth"] z = Mul (c, w)
    }}
    <domain: "my", opset_import: ["" : {opset}], doc_string: "a function">
    twice <p, q: float = 1.5> (u) => (v)
    {{
        k = Constant <value_float: float = @q> ()
        t = Mul (u, k)
        v = Identity (t)
    }}
    """)
    graph = message.graph
    graph.doc_string = "a graph"
    graph.node[0].doc_string = "a node"
    sparse = graph.sparse_initializer.add(dims=[2, 3])
    sparse.values.CopyFrom(helper.make_tensor("sparse", T.FLOAT, [1], [4.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", T.INT64, [1], [2]))
    annotation = graph.quantization_annotation.add(tensor_name="w")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w_scale")
    for holder in (message, graph, graph.node[0], graph.input[0], graph.value_info[0]):
        holder.metadata_props.add(key="key", value="value")
    return message


def test_nothing_but_the_versions_changes_where_no_rule_is_needed() -> None:
    source = _decorated()
    result, outcome = _raised(source)
    assert outcome.lowered == []
    assert (outcome.source_opset, outcome.target_opset) == (18, 24)
    expected = onnx.ModelProto.FromString(serialize(deserialize(source.SerializeToString())))
    for imports in (expected.opset_import, expected.functions[0].opset_import):
        next(entry for entry in imports if entry.domain == "").version = 24
    expected.ir_version = 12
    assert result == expected


def test_a_model_at_a_later_opset_stays_as_it_is() -> None:
    source = _decorated(24)
    result, outcome = _raised(source, 20)
    assert outcome.target_opset == 24
    assert result == onnx.ModelProto.FromString(serialize(deserialize(source.SerializeToString())))


@pytest.mark.parametrize(
    ("before", "target", "after"),
    [(4, 24, 12), (10, 21, 10), (12, 21, 12), (13, 24, 13)],
    ids=["rises", "is enough", "is more than enough", "is newer than the opset"],
)
def test_the_ir_version_rises_to_that_of_the_opset(before: int, target: int, after: int) -> None:
    source = onnx.parser.parse_model(
        f'<ir_version: {before}, opset_import: ["" : 11]> g (float[2] x) => (float[2] y)'
        " { y = Relu (x) }"
    )
    assert _raised(source, target)[0].ir_version == after


def test_initializers_that_an_old_file_lists_as_inputs_stay_inputs() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 3, opset_import: ["" : 9]> g (float[2,3] x, float[3] w) => (float[2,1,3] y)
    <float[3] w = {1,2,3}> { a = Mul (x, w)  y = Unsqueeze <axes = [1]> (a) }
    """)
    result, outcome = _raised(source)
    assert "1 initializer listed as input too" in outcome.notes[0]
    assert [value.name for value in result.graph.input] == ["x", "w"]
    assert [tensor.name for tensor in result.graph.initializer] == ["w", "kvtool/axes"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(result, {"x": x})[0], run(source, {"x": x})[0])
    w = np.array([3, 4, 5], np.float32)
    np.testing.assert_array_equal(run(result, {"x": x, "w": w})[0], (x * w)[:, None])


def test_scales_that_the_caller_may_override_are_not_taken_for_constants() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 10]> g (float[1,1,1,4] x, float[4] s) => (float[1,1,1,W] y)
    <float[4] s = {1,1,1,2}> { y = Resize (x, s) }
    """)
    result, _ = _raised(source)
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    for scale in (0.5, 0.7, 1, 1.6, 3):
        feeds = {"x": x, "s": np.array([1, 1, 1, scale], np.float32)}
        np.testing.assert_array_equal(run(result, feeds)[0], run(source, feeds)[0])


def test_a_node_that_a_rule_rewrites_is_still_known_by_its_name() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 12]> g (float[2,3,5] x) => (float[2,3,5] y)
    { ["norm"] y = Softmax (x) }
    """)
    node = source.graph.node[0]
    node.doc_string = "over all but the batch"
    node.metadata_props.add(key="layer", value="4")
    source.graph.output[0].metadata_props.add(key="kept", value="yes")
    source.graph.output[0].doc_string = "probabilities"
    result, outcome = _raised(source)
    assert [(done.location.node, done.rule) for done in outcome.lowered] == [("norm", "softmax")]
    last = result.graph.node[-1]
    assert (last.name, last.doc_string, list(last.output)) == ("norm", node.doc_string, ["y"])
    assert {entry.key: entry.value for n in result.graph.node for entry in n.metadata_props} == {
        "layer": "4"
    }
    output = result.graph.output[0]
    assert output.doc_string == "probabilities"
    assert {entry.key: entry.value for entry in output.metadata_props} == {"kept": "yes"}


def test_bodies_of_if_and_loop_are_upgraded() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 11]>
    g (float[2,3] x, bool c, int64 n) => (float[2,3] y, float[1,2,3] last)
    {
        y = If (c) <
            then_branch = yes () => (float[2,3] t)
                { s = ReduceSum <axes = [1]> (x)  t = Sub (x, s) },
            else_branch = no () => (float[2,3] e) { e = Softmax <axis = 0> (x) }>
        u = Unsqueeze <axes = [0]> (x)
        last = Loop (n, , u) <
            body = step (int64 i, bool k, float[1,2,3] a) => (bool m, float[1,2,3] b)
            { m = Identity (k)  q = Squeeze <axes = [0]> (a)  r = Add (q, y)
              b = Unsqueeze <axes = [0]> (r) }>
    }
    """)
    result, outcome = _raised(source)
    onnx.checker.check_model(result, full_check=True)
    paths = [done.location.graph for done in outcome.lowered]
    assert paths[:2] == ["g/#0.then_branch", "g/#0.else_branch"] and "g/#2.body" in paths
    for chosen in (True, False):
        feeds: Any = {
            "x": np.arange(6, dtype=np.float32).reshape(2, 3),
            "c": np.array(chosen),
            "n": np.array(3),
        }
        for got, one in zip(run(result, feeds), run(source, feeds), strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-6)


def _with_function(body: str, opset: int = 11, attributes: str = "", call: str = "") -> Any:
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : {opset}, "my" : 1]>
    g (float[2,3,4] x) => (float[A,B,C] y) {{ ["call"] y = my.f {call} (x) }}
    <domain: "my", opset_import: ["" : {opset}]> f {attributes} (u) => (v) {{ {body} }}
    """)


_X = {"x": np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)}


@pytest.mark.parametrize(
    ("body", "opset", "attributes", "call"),
    [
        ("s = ReduceSum <axes = [1]> (u)  v = Unsqueeze <axes = [0]> (s)", 11, "", ""),
        ("v = Softmax (u)", 11, "", ""),
        ("v = Clip <min = -1.0, max = 1.5> (u)", 9, "", ""),
        ("v = Pad <pads = [0, 0, 1, 1, 0, 0], value = 2.5> (u)", 9, "", ""),
        ("v = LeakyRelu <alpha: float = @slope> (u)", 11, "<slope>", "<slope = 0.25>"),
        (
            "t = Transpose <perm: ints = @order> (u)  v = Squeeze (t)",
            11,
            "<order>",
            "<order=[2,0,1]>",
        ),
    ],
    ids=["axes", "flattening", "bounds", "a value", "a parameter", "a list as parameter"],
)
def test_a_function_stays_a_function(body: str, opset: int, attributes: str, call: str) -> None:
    source = _with_function(body, opset, attributes, call)
    result, outcome = _raised(source)
    onnx.checker.check_model(result)
    assert [f.name for f in result.functions] == ["f"]
    assert all(value.type.tensor_type.elem_type for value in result.functions[0].value_info)
    assert result.functions[0].opset_import[0].version == 24
    assert all(done.location.graph == "my::f" for done in outcome.lowered)
    np.testing.assert_allclose(run(result, _X)[0], run(source, _X)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "attributes", "call"),
    [
        ("v = Softmax <axis: int = @along> (u)", "<along>", "<along = 2>"),
        ("v = ReduceSum <axes: ints = @over> (u)", "<over>", "<over = [0, 2]>"),
        (
            "m = ReduceMax <axes = [0]> (u)  v = Softmax <axis: int = @a> (u)",
            "<a>",
            "<a = 1>",
        ),
    ],
    ids=["an axis that is a parameter", "axes that are a parameter", "one of several nodes"],
)
def test_a_function_that_needs_its_call_is_inlined(body: str, attributes: str, call: str) -> None:
    source = _with_function(body, 11, attributes, call)
    result, outcome = _raised(source)
    onnx.checker.check_model(result)
    assert not result.functions
    assert next((d.location.node, d.rule) for d in outcome.lowered) == ("call", "inline")
    np.testing.assert_allclose(run(result, _X)[0], run(source, _X)[0], rtol=1e-6)


def test_a_function_that_nobody_calls_and_nobody_can_upgrade_is_left_out_with_a_note() -> None:
    source = _with_function("v = Softmax <axis: int = @a> (u)", 11, "<a>", "<a = 1>")
    source.graph.node[0].CopyFrom(helper.make_node("Relu", ["x"], ["y"]))
    result, outcome = _raised(source)
    assert not result.functions
    assert "function `my::f`, which nothing calls, is removed" in outcome.notes[0]


@pytest.mark.long
def test_equal_axes_are_one_constant() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 11]> g (float[2,3] x) => (float[1,2,3] y)
    { a = Unsqueeze <axes = [0]> (x)  b = Squeeze <axes = [0]> (a)  y = Unsqueeze <axes = [0]> (b) }
    """)
    result, _ = _raised(source)
    assert [tensor.name for tensor in result.graph.initializer] == ["kvtool/axes"]


def test_a_layer_normalization_that_an_optimiser_wrote_before_onnx_had_it() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 13]> g (float[2,3] x) => (float[2,3] y)
    <float[3] s = {1,2,3}> { y = LayerNormalization <axis = -1, stash_type = 1> (x, s, s) }
    """)
    result, _ = _raised(source)
    onnx.checker.check_model(result, full_check=True)
    feeds: Any = {"x": np.float32([[1, 5, 2], [0, 3, 9]])}
    np.testing.assert_array_equal(run(result, feeds)[0], run(source, feeds)[0])


def test_operators_that_onnx_does_not_define_stay_as_they_are() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 12, "com.microsoft" : 1]>
    g (float[2,3] x) => (float[2,3] y) <float[3] s = {1,2,3}>
    { a = SimplifiedLayerNormalization <axis = -1> (x, s)  y = com.microsoft.Gelu (a) }
    """)
    result, _ = _raised(source)
    assert [(n.domain, n.op_type, n.attribute) for n in result.graph.node] == [
        (n.domain, n.op_type, n.attribute) for n in source.graph.node
    ]


def test_every_refusal_is_reported_with_its_place() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 11]> g (float[2,3] x, bool c) => (float[2,3] y, bool[2,3] m)
    {
        ["drop"] d, m = Dropout (x)
        y = If (c) <
            then_branch = yes () => (float[2,3] t) { ["fit"] t = Squeeze <axes: ints = []> (d) },
            else_branch = no () => (float[2,3] e) { e = Relu (d) }>
    }
    """)
    found = [(r.code, r.location.graph, r.location.node) for r in _refused(source).refused]
    assert found == [
        ("changed-meaning", "g", "drop"),
        ("empty-axes", "g/#1.then_branch", "fit"),
    ]


def _training() -> onnx.ModelProto:
    source = _decorated()
    source.training_info.add().algorithm.CopyFrom(source.graph)
    return source


def _without_import() -> onnx.ModelProto:
    source = _decorated()
    del source.opset_import[0]
    return source


@pytest.mark.parametrize(
    ("message", "target", "code"),
    [
        (_decorated(), NEWEST + 1, "unknown-opset"),
        (_training(), 24, "training-info"),
        (_without_import(), 24, "no-opset-import"),
    ],
    ids=["an opset that onnx does not know", "training information", "no import"],
)
def test_a_model_is_refused_as_a_whole(message: onnx.ModelProto, target: int, code: str) -> None:
    (found,) = _refused(message, target).refused
    assert found.code == code


def test_external_data_is_neither_read_nor_moved() -> None:
    source = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 11]> g (float[2,3] x) => (float[1,2,3] y)
    <float[3] w = {1,2,3}> { a = Mul (x, w)  y = Unsqueeze <axes = [0]> (a) }
    """)
    tensor = source.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "w"))
    tensor.ClearField("raw_data")
    tensor.data_location = T.EXTERNAL
    tensor.external_data.add(key="location", value="nowhere.bin")
    result, _ = _raised(source)
    assert result.graph.initializer[0] == tensor
