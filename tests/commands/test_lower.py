"""`kv.lower` and what `kvtool lower` writes: whole models, all or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from onnx_kvtool.commands.lower import lower, run
from onnx_kvtool.commands.requests import LowerRequest
from onnx_kvtool.core.errors import Unverified, UsageError
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from tests.cache_models import model, one_update, tensor_scatter_node, value

_SHAPES = ([2, 3, 7, 5], [2, 3, 4, 5])


def _saved(directory: Path, source: onnx.ModelProto, name: str = "m.onnx") -> Path:
    path = directory / name
    onnx.save(source, path)
    return path


def _two_refusals() -> onnx.ModelProto:
    """One update that can be lowered between two nodes that cannot."""
    source = one_update(*_SHAPES, batch=2)
    source.graph.node.insert(
        0, helper.make_node("RegexFullMatch", ["x"], ["y"], name="first", pattern="a+")
    )
    source.graph.node.append(helper.make_node("Bogus", ["y"], ["z"], name="unknown", domain="me"))
    source.graph.node.append(
        tensor_scatter_node(present="other", write_indices=None, axis=0),
    )
    source.graph.input.append(value("x", T.STRING, [3]))
    source.graph.output.extend([value("z", T.BOOL, [3]), value("other", T.FLOAT, _SHAPES[0])])
    source.opset_import.append(helper.make_opsetid("me", 1))
    return source


def test_every_refusal_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    path = _saved(tmp_path, _two_refusals())
    report = run(LowerRequest(model=str(path), verify=False))
    assert [(r.location.node, r.code) for r in report.refused] == [
        ("first", "new-operator"),
        ("ts_other", "axis-is-batch"),
    ]
    assert report.refused[0].lowest_opset == 20
    assert report.output is None
    assert os.listdir(tmp_path) == ["m.onnx"]


def _with_unknown() -> onnx.ModelProto:
    """A custom domain, and an operator that an optimiser put into the default domain."""
    source = one_update(*_SHAPES, batch=2)
    for domain, op in (("me", "Custom"), ("", "SimplifiedLayerNormalization")):
        node = helper.make_node(op, ["update"], [op], domain=domain, name=op, note="kept")
        source.graph.node.append(node)
        source.graph.output.append(value(op, T.FLOAT, [2, 3, 4, 5]))
    source.opset_import.append(helper.make_opsetid("me", 3))
    return source


@pytest.mark.long
def test_a_model_that_nothing_can_run_is_written_unverified_unless_that_is_asked_for(
    tmp_path: Path,
) -> None:
    path = _saved(tmp_path, _with_unknown())
    with pytest.raises(Unverified) as error:
        run(LowerRequest(model=str(path), verify=True))
    assert error.value.message.startswith("the result cannot be verified: ")
    assert "Custom" in error.value.message
    assert (error.value.exit_code, os.listdir(tmp_path)) == (3, ["m.onnx"])
    report = run(LowerRequest(model=str(path)))
    assert report.verification.status == "skipped"
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.opset18.onnx"]


def test_unknown_operators_pass_through_unchanged() -> None:
    source = _with_unknown()
    result, report = lower(ir.from_proto(source), opset=13, verify=False)
    assert [n.op_type for n in result.graph][-2:] == ["Custom", "SimplifiedLayerNormalization"]
    assert all(n.attributes["note"].value == "kept" for n in list(result.graph)[-2:])
    assert result.opset_imports == {"": 13, "me": 3}
    assert [n for n in report.notes if "ONNX does not define" in n] == [
        "1 `SimplifiedLayerNormalization` node left alone: ONNX does not define the operator",
        "1 `me::Custom` node left alone: ONNX does not define the operator",
    ]


def test_an_operator_newer_than_the_opset_of_the_model_is_refused() -> None:
    source = one_update(*_SHAPES, batch=2, opset=18)
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(source), opset=13, verify=False)
    assert [r.code for r in refused.value.report.refused] == ["unknown-operator"]


def _summing(axes: str, *, also_output: bool = False, overridable: bool = False) -> Any:
    """A sum over axes from an initializer, which may have other uses."""
    nodes = [helper.make_node("ReduceSum", ["x", axes], ["y"], name="sum", keepdims=0)]
    outputs = [value("y", T.FLOAT, ["N"])]
    inputs = [value("x", T.FLOAT, ["N", 1])]
    if also_output:
        nodes.append(helper.make_node("Identity", [axes], ["copy"]))
        outputs.append(value("copy", T.INT64, [1]))
    if overridable:
        inputs.append(value(axes, T.INT64, [1]))
    constant = numpy_helper.from_array(np.array([1], np.int64), axes)
    return model(nodes, inputs, outputs, opset=18, initializers=[constant])


def test_a_constant_that_became_an_attribute_is_removed() -> None:
    result, _ = lower(ir.from_proto(_summing("axes")), opset=12, verify=False)
    (node,) = result.graph
    assert list(node.attributes["axes"].value) == [1]
    assert not result.graph.initializers


def test_a_constant_with_another_reader_stays() -> None:
    source = _summing("axes", also_output=True)
    result, _ = lower(ir.from_proto(source), opset=12, verify=False)
    assert list(result.graph.initializers) == ["axes"]


def test_an_overridable_initializer_is_not_folded_into_an_attribute() -> None:
    """The caller may still give other axes."""
    result, _ = lower(ir.from_proto(_summing("axes", overridable=True)), opset=12, verify=False)
    session = Session(serialize(result), "")
    x = np.array([[1], [2], [4]], np.float32)
    assert session.run({"x": x})["y"].tolist() == [1, 2, 4]
    assert session.run({"x": x, "axes": np.array([0])})["y"].tolist() == [7]


def test_constants_of_an_outer_graph_are_folded_in_a_branch() -> None:
    branch = helper.make_graph(
        [helper.make_node("Squeeze", ["x", "axes"], ["then_y"])],
        "then",
        [],
        [value("then_y", T.FLOAT, ["N"])],
    )
    other = helper.make_graph(
        [helper.make_node("Squeeze", ["x", "axes"], ["else_y"])],
        "else",
        [],
        [value("else_y", T.FLOAT, ["N"])],
    )
    choose = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    inputs = [value("c", T.BOOL, []), value("x", T.FLOAT, ["N", 1])]
    source = model([choose], inputs, [value("y", T.FLOAT, ["N"])], opset=18, initializers=[axes])
    result, _ = lower(ir.from_proto(source), opset=11, verify=False)
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    feeds = {"c": np.array(True), "x": np.ones((3, 1), np.float32)}
    assert Session(serialize(result), "").run(feeds)["y"].shape == (3,)


def test_metadata_of_nodes_is_stripped_where_the_ir_version_lacks_it() -> None:
    source: ir.Model = ir.from_proto(one_update(*_SHAPES, batch=2))
    source.metadata_props["author"] = "me"
    next(iter(source.graph)).metadata_props["layer"] = "0"
    result, report = lower(source, opset=18, verify=False)
    assert result.ir_version == 8
    assert result.metadata_props == {"author": "me"}
    assert not any(node.metadata_props for node in result.graph)
    assert any("metadata" in note for note in report.notes)
    kept, _ = lower(source, opset=22, verify=False)
    assert kept.ir_version == 10
    assert all(node.metadata_props == {"layer": "0"} for node in kept.graph)


def test_a_model_at_an_older_opset_is_written_as_it_is(tmp_path: Path) -> None:
    path = _saved(tmp_path, _summing("axes"))
    report = run(LowerRequest(model=str(path), opset=20, verify=False))
    assert (report.source_opset, report.target_opset) == (18, 18)
    assert report.output == str(tmp_path / "m.opset18.onnx")
    assert "the model is at opset 18 already, nothing to lower" in report.notes
    assert read(tmp_path / "m.opset18.onnx").opset_imports[""] == 18


@pytest.mark.long
def test_names_of_inputs_and_outputs_stay(tmp_path: Path) -> None:
    path = _saved(tmp_path, one_update(["B", 3, 7, 5], ["B", 3, "L", 5], batch="B"))
    result = read(str(run(LowerRequest(model=str(path))).output))
    assert [v.name for v in result.graph.inputs] == ["past_cache", "update", "write_indices"]
    assert [v.name for v in result.graph.outputs] == ["present_cache"]


@pytest.mark.long
def test_the_default_output_replaces_no_other_file(tmp_path: Path) -> None:
    """The same result again is no conflict; something else under the name is."""
    path = _saved(tmp_path, one_update(*_SHAPES, batch=2))
    request = LowerRequest(model=str(path), verify=False)
    first = run(request).output
    assert run(request).output == first
    assert first is not None
    Path(first).write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists and contains something else"):
        run(request)
    assert Path(first).read_bytes() == b"mine"
    named = LowerRequest(model=str(path), output=first, verify=False)
    assert run(named).output == first
    assert read(first).opset_imports[""] == 18


def test_in_place_writes_through_a_link(tmp_path: Path) -> None:
    path = _saved(tmp_path, one_update(*_SHAPES, batch=2), "real.onnx")
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    report = run(LowerRequest(model=str(link), in_place=True, verify=False))
    assert report.output == str(link)
    assert link.is_symlink()
    assert read(path).opset_imports[""] == 18


_WRONG: dict[str, Callable[[Path], LowerRequest]] = {
    "the output is the input": lambda p: LowerRequest(model=str(p), output=str(p)),
    "the output is a link to the input": lambda p: LowerRequest(model=str(p), output=str(_link(p))),
    "an opset above 23": lambda p: LowerRequest(model=str(p), opset=24),
    "an opset below 9": lambda p: LowerRequest(model=str(p), opset=8),
    "only with an opset": lambda p: LowerRequest(model=str(p), opset=18, only=("TensorScatter",)),
    "int32 with ScatterND": lambda p: LowerRequest(
        model=str(p), index_dtype="int32", via="scatternd"
    ),
    "an operator that does not exist": lambda p: LowerRequest(model=str(p), only=("Bogus",)),
    "an operator that cannot be replaced": lambda p: LowerRequest(model=str(p), only=("MatMul",)),
    "a dimension that no input has": lambda p: LowerRequest(model=str(p), dims={"nosuch": 4}),
}


def _link(path: Path) -> Path:
    link = path.with_name("alias.onnx")
    link.symlink_to(path)
    return link


@pytest.mark.parametrize("build", list(_WRONG.values()), ids=list(_WRONG))
def test_wrong_usage(build: Callable[[Path], LowerRequest], tmp_path: Path) -> None:
    path = _saved(tmp_path, one_update(*_SHAPES, batch=2))
    before = path.read_bytes()
    with pytest.raises(UsageError):
        run(build(path))
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} <= {"m.onnx", "alias.onnx"}


@pytest.mark.long
def test_only_takes_operators_with_a_function_body() -> None:
    root = Path(__file__).resolve().parents[2]
    source = root / "fixtures" / "models" / "native" / "llama_static.onnx"
    result, report = lower(source, only=["Attention", "TensorScatter"])
    assert report.verification.status == "equal"
    assert {done.rule for done in report.lowered} == {"attention", "tensor_scatter"}
    left = {node.op_type for node in result.graph}
    assert "RMSNormalization" in left
    assert not left & {"Attention", "TensorScatter"}
    assert result.opset_imports[""] == 24


def test_training_information_is_not_lowered(tmp_path: Path) -> None:
    source = one_update(*_SHAPES, batch=2)
    source.training_info.add()
    path = _saved(tmp_path, source)
    report = run(LowerRequest(model=str(path), verify=False))
    assert [r.code for r in report.refused] == ["training-info"]


def test_an_input_that_nothing_produces_is_refused(tmp_path: Path) -> None:
    source = one_update(*_SHAPES, batch=2)
    source.graph.node[0].input[1] = "nowhere"
    path = _saved(tmp_path, source)
    report = run(LowerRequest(model=str(path), verify=False))
    assert [r.code for r in report.refused] == ["undefined-input"]
    assert report.output is None


def test_what_onnx_ir_would_lose_survives_a_lowering(tmp_path: Path) -> None:
    """A sparse initializer, an overridable one, an unused function, documentation."""
    source = one_update([2, 3, 7, 5], [2, 3, 4, 5], batch=2)
    values = numpy_helper.from_array(np.array([5.0], np.float32), "sparse")
    indices = numpy_helper.from_array(np.array([1], np.int64))
    source.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    default = numpy_helper.from_array(np.array([1.0], np.float32), "factor")
    source.graph.initializer.append(default)
    source.graph.input.append(value("factor", T.FLOAT, [1]))
    source.graph.node.append(helper.make_node("Mul", ["sparse", "factor"], ["product"]))
    source.graph.output.append(value("product", T.FLOAT, [3]))
    source.graph.input[0].doc_string = "the cache"
    twice = helper.make_node("Add", ["x", "x"], ["y"])
    imports = [helper.make_opsetid("", 24)]
    source.functions.append(helper.make_function("mine", "Twice", ["x"], ["y"], [twice], imports))
    source.opset_import.append(helper.make_opsetid("mine", 1))
    source.metadata_props.add(key="author", value="me")
    report = run(LowerRequest(model=str(_saved(tmp_path, source)), verify=False))
    result = onnx.load(str(report.output))
    assert [t.values.name for t in result.graph.sparse_initializer] == ["sparse"]
    assert "factor" in [t.name for t in result.graph.initializer]
    assert [v.name for v in result.graph.input][-1] == "factor"
    assert result.graph.input[0].doc_string == "the cache"
    assert [(f.name, f.opset_import[0].version) for f in result.functions] == [("Twice", 18)]
    assert [(p.key, p.value) for p in result.metadata_props] == [("author", "me")]


@pytest.mark.long
def test_dims_are_fixed_in_the_result() -> None:
    """With a batch of one the rows of a cache (B, S, KV * D) are read where they lie."""
    source = read("fixtures/models/native/llama_static.onnx")
    lowered, report = lower(source, opset=18, dims={"batch": 1})
    assert report.verification.status == "equal"
    for outer in (*lowered.graph.inputs, *lowered.graph.outputs):
        assert outer.shape is not None
        assert outer.shape[0] == 1
    rows = [list(n.attributes["perm"].value) for n in lowered.graph if n.op_type == "Transpose"]
    assert [1, 2, 0, 3] in rows
    assert source.graph.inputs[0].shape == ir.Shape(["batch", "sequence_len"])
