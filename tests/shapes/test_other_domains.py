"""Operators of the other domains of ONNX: what check and infer say, beside onnx's own inference."""

from __future__ import annotations

import onnx
import onnx.shape_inference
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnx_kvtool as kv
from tests.grids import each

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ML, PREVIEW, TRAINING = "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"
VALUES = {
    "x": (FLOAT, ["B", 3]),
    "half": (TensorProto.FLOAT16, ["B", 3]),
    "i": (INT64, [2]),
    "q": (FLOAT, ["B", 2, "S", 8]),
    "k": (FLOAT, ["B", 2, "T", 8]),
    "v": (FLOAT, ["B", 2, "T", 16]),
    "r": (FLOAT, []),
    "t": (INT64, []),
}


def made(op: str, domain: str, inputs: str, version: int, **attributes: object) -> ir.Model:
    """Return a model of one node with outputs y of which nothing is declared but the type."""
    names = inputs.split()
    node = helper.make_node(op, names, ["y"], "n", domain=domain, **attributes)
    given = [helper.make_tensor_value_info(n, *VALUES[n]) for n in dict.fromkeys(names)]
    kind = VALUES[names[0]][0]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", kind, None)])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, version)]
    return ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=10))


@each(
    ("op", "domain", "inputs", "version", "attributes", "code"),
    [
        pytest.param("Foo", ML, "x", 3, {}, "ON601", id="no such operator"),
        pytest.param("TreeEnsemble", ML, "x", 3, {}, "ON601", id="an operator of a later version"),
        pytest.param("FlexAttention", ML, "q k v", 3, {}, "ON601", id="one of another domain"),
        pytest.param("Binarizer", ML, "x", 3, {"cut": 1.0}, "ON602", id="no such attribute"),
        pytest.param("Binarizer", ML, "x", 3, {"threshold": 1}, "ON603", id="a wrong attribute"),
        pytest.param("Binarizer", ML, "x i", 3, {}, "ON605", id="too many inputs"),
        pytest.param("ArrayFeatureExtractor", ML, "x", 3, {}, "ON606", id="too few inputs"),
        pytest.param("Binarizer", ML, "half", 3, {}, "ON607", id="a type that it does not take"),
        pytest.param("TreeEnsembleRegressor", ML, "x", 5, {}, "ON609", id="one that is gone"),
        pytest.param("FlexAttention", PREVIEW, "x x x", 1, {}, "ON615", id="ranks that do not fit"),
    ],
)
def test_a_wrong_node_is_found(
    op: str, domain: str, inputs: str, version: int, attributes: dict[str, object], code: str
) -> None:
    model = made(op, domain, inputs, version, **attributes)
    report = kv.check(model, ignore=["MD433"])  # nothing is declared of the output
    assert {f.code for file in report.files for f in file.findings} == {code}


@each(
    ("op", "domain", "inputs", "version", "attributes", "shape"),
    [
        pytest.param("Binarizer", ML, "x", 3, {}, ["B", 3], id="elementwise"),
        pytest.param("Scaler", ML, "x", 3, {}, ["B", 3], id="what onnx has no rule for"),
        pytest.param("ArrayFeatureExtractor", ML, "x i", 1, {}, ["B", 2], id="columns"),
        pytest.param("FlexAttention", PREVIEW, "q k v", 1, {}, ["B", 2, "S", 16], id="attention"),
        pytest.param("Adagrad", TRAINING, "r t x x x", 1, {}, ["B", 3], id="a step of training"),
    ],
)
def test_a_shape_follows(
    op: str,
    domain: str,
    inputs: str,
    version: int,
    attributes: dict[str, object],
    shape: list[int | str],
) -> None:
    model = made(op, domain, inputs, version, **attributes)
    if op == "Adagrad":
        model.graph.outputs[0].producer().resize_outputs(2)
        model.graph[0].outputs[1].name = "z"
    inferred, report = kv.infer(model)
    assert report.conflicts == ()
    assert [d if isinstance(d, int) else d.value for d in inferred.graph.outputs[0].shape] == shape


def test_the_exit_code_of_infer_is_that_of_onnx() -> None:
    model = made("FlexAttention", PREVIEW, "x x x", 1)
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.shape_inference.infer_shapes(ir.to_proto(model), strict_mode=True)
    _, report = kv.infer(model)
    assert report.failed and "FlexAttention requires rank-4" in report.conflicts[0].message


def test_values_of_a_body_are_typed_by_what_its_inputs_declare() -> None:
    """Sizes are not taken over: `S` is another size in the graph around the body."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18, "ai.onnx.preview": 1]>
        g (float[B, 2, S, 8] q, float[B, 2, T, 8] k) => (float[B, 2, S, 8] y) {
            y = ai.onnx.preview.FlexAttention (q, k, k) <score_mod = body
                (float[B, H, L, S] s) => (float[B, H, L, S] r) <int64 axis = {3}> {
                sizes = Shape (s)
                last = Gather (sizes, axis)
                half = Neg (s)
                r = Abs (half)
            }>
        }""")
    inferred, _ = kv.infer(ir.from_proto(model))
    (node,) = inferred.graph
    found = {
        value.name: value
        for inner in node.attributes["score_mod"].as_graph()
        for value in inner.outputs
    }
    assert [found[name].dtype for name in ("sizes", "last", "half")] == [
        ir.DataType.INT64, ir.DataType.INT64, ir.DataType.FLOAT,
    ]  # fmt: skip
    assert found["half"].shape is not None
    assert "S" not in str(found["half"].shape)
    lowered, _ = kv.lower(ir.from_proto(model), opset=11, verify=False)
    assert lowered.opset_imports[""] == 11
