"""What comes in memory is judged like its file, in every function, and is never changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import origin

TEXTS = {
    "unsorted nodes": "g (float[2] x) => (float[2] y) { y = Neg (a) a = Abs (x) }",
    "a dangling input": "g (float[2] x) => (float[2] y) { y = Add (x, nowhere) }",
    "an output that nobody makes": "g (float[2] x) => (float[2] y) { a = Neg (x) }",
    "a name of an outer graph in a body": """g (bool c, float[2] x) => (float[2] y) {
        a = Neg (x)
        y = If (c) <then_branch = t () => (float[2] a) { a = Abs (x) },
                    else_branch = e () => (float[2] b) { b = Abs (x) }> }""",
}
"""Models that the file form can hold and that are wrong."""


def message(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')


def found(source: Any) -> list[tuple[str, str]]:
    return [(finding.code, str(finding.location)) for finding in kv.check(source)]


@pytest.mark.parametrize("case", [*TEXTS])
def test_a_model_in_memory_has_the_findings_of_its_file(case: str, tmp_path: Path) -> None:
    model = message(TEXTS[case])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    expected = found(path)
    assert expected
    assert found(model) == expected
    assert found(ir.from_proto(model)) == expected
    assert found(kv.load(path)) == expected


@pytest.mark.long
@pytest.mark.parametrize("case", ["unsorted nodes", "a dangling input"])
@pytest.mark.parametrize("function", [kv.lower, kv.raise_, kv.infer, kv.inspect, kv.evaluate])
def test_every_function_says_of_it_what_it_says_of_the_file(
    case: str, function: Callable[..., Any], tmp_path: Path
) -> None:
    def outcome(source: Any) -> str:
        arguments = {"inputs": {"x": np.ones(2, np.float32)}} if function is kv.evaluate else {}
        try:
            result = function(source, **arguments)
        except kv.KvtoolError as error:
            return f"{type(error).__name__}: {error.message}".replace(f"`{path}`: ", "")
        report = result[1] if isinstance(result, tuple) else result
        return str(sorted(report if function is kv.evaluate else report.to_json()))

    path = tmp_path / "m.onnx"
    model = message(TEXTS[case])
    path.write_bytes(model.SerializeToString())
    assert outcome(ir.from_proto(model)) == outcome(path)
    assert outcome(model) == outcome(path)


def test_two_values_of_one_name_are_a_finding_as_in_a_file(tmp_path: Path) -> None:
    model = message("g (float[2] x) => (float[2] y) { y = Neg (x) }")
    model.graph.node.append(model.graph.node[0])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    x = ir.Value(name="x", shape=ir.Shape([2]), type=ir.TensorType(ir.DataType.FLOAT))
    nodes = [ir.node("Neg", [x]), ir.node("Abs", [x])]
    for node in nodes:
        node.outputs[0].name = "y"
    graph = ir.Graph([x], nodes[1].outputs, nodes=nodes, opset_imports={"": 18}, name="g")
    for source in (path, model, ir.Model(graph, ir_version=10)):
        (finding,) = kv.check(source)
        assert finding.code == "MD400" and "which the graph has already" in finding.message
        with pytest.raises(kv.UnreadableModel, match="produces `y`, which the graph has already"):
            kv.infer(source)


def test_a_defect_that_was_mended_in_memory_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(message(TEXTS["unsorted nodes"]).SerializeToString())
    model = kv.load(path)
    assert "MD422" in dict(found(model))
    model.graph.sort()
    assert "MD422" not in dict(found(model))


def test_what_only_the_file_had_is_still_known(tmp_path: Path) -> None:
    """onnx_ir keeps one of two attributes of a name."""
    model = message("g (float[2, 3] x) => (float[3, 2] y) { y = Transpose <perm = [1, 0]> (x) }")
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert "MD429" in dict(found(kv.load(path)))


def test_data_that_does_not_fit_its_shape_is_found(tmp_path: Path) -> None:
    model = message("g (float[2] x) => (float[2] y) { y = Add (x, w) }")
    model.graph.initializer.add(name="w", data_type=1, dims=[2], raw_data=b"\0" * 5)
    assert "MD451" in dict(found(model))
    assert "MD451" in dict(found(ir.from_proto(model)))


def test_no_weight_is_copied_or_touched() -> None:
    class Untouchable(ir.Tensor):
        def numpy(self) -> Any:
            raise AssertionError("a weight was read")

        tobytes = numpy

    model = ir.from_proto(message("g (float[64, 64] x) => (float[64, 64] y) { y = Add (x, w) }"))
    weight = Untouchable(np.zeros((64, 64), np.float32), name="w")
    (undefined,) = [v for n in model.graph for v in n.inputs if v is not None and v.name == "w"]
    undefined.const_value = weight
    model.graph.register_initializer(undefined)
    lowered, _ = kv.lower(model, opset=17, verify=False)
    assert lowered.graph.initializers["w"].const_value is weight
    assert kv.check(model).exit_code == 0


SPARSE = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[3] x) => (float[3] y) { c = Constant () y = Add (x, c) }
"""


def sparse_model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(SPARSE)
    attribute = model.graph.node[0].attribute.add(name="sparse_value", type=11)
    for sparse in (attribute.sparse_tensor, model.graph.sparse_initializer.add()):
        sparse.dims.append(3)
        sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([2], np.float32), "s"))
        sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([1], np.int64)))
    return model


@pytest.mark.parametrize("function", [kv.lower, kv.infer])
def test_sparse_constants_and_initializers_are_saved(function, tmp_path: Path) -> None:
    source = sparse_model()
    result, _ = function(source)
    kv.save(result, tmp_path / "saved.onnx")
    saved = onnx.load(tmp_path / "saved.onnx")
    assert saved.graph.sparse_initializer[0] == source.graph.sparse_initializer[0]
    assert saved.graph.node[0].attribute[0] == source.graph.node[0].attribute[0]
    outputs = kv.evaluate(tmp_path / "saved.onnx", {"x": np.ones(3, np.float32)})
    assert outputs["y"].tolist() == [1, 3, 1]


def test_saving_takes_the_data_along(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "other").mkdir()
    model = ir.from_proto(message("g (float[64, 64] x) => (float[64, 64] y) { y = Add (x, w) }"))
    (value,) = [v for n in model.graph for v in n.inputs if v is not None and v.name == "w"]
    value.const_value = ir.tensor(np.ones((64, 64), np.float32), name="w")
    model.graph.register_initializer(value)
    ir.save(model, tmp_path / "source" / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    kv.save(kv.load(tmp_path / "source" / "m.onnx"), tmp_path / "other" / "n.onnx")
    outputs = kv.evaluate(tmp_path / "other" / "n.onnx", {"x": np.ones((64, 64), np.float32)})
    assert outputs["y"].min() == outputs["y"].max() == 2


@pytest.mark.long
def test_where_a_model_came_from_is_kept(root: Path) -> None:
    path = root / "fixtures/models/native/llama_static.onnx"
    lowered, _ = kv.lower(kv.load(path), opset=18, verify=False)
    assert origin(lowered).path == str(path)
