"""`infer`: a copy with the shape of every value, and the report; nothing else is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.decoders import decoder
from onnx_kvtool.commands.infer import run
from onnx_kvtool.commands.requests import InferRequest
from onnx_kvtool.model_io.model import serialize

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures" / "models"
LLAMA = FIXTURES / "native" / "llama_static.onnx"
CONFLICT = """
    <ir_version: 10, opset_import: ["": 24]>
    main (float[2, 3] x) => (float[3, 2] y) { y = Neg (x) }
"""

BODY = """
    <ir_version: 10, opset_import: ["": 24]>
    main (bool c, float[B, 5] x) => (float[B, 5] y) {
        y = If (c) <
            then_branch = yes () => (float[M, N] p) { q = Relu (x) p = Neg (q) },
            else_branch = no () => (float[M, N] r) { r = Abs (x) }>
    }
"""


def parsed(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


@pytest.mark.long
def test_a_copy_comes_back_with_every_shape() -> None:
    model = kv.load(LLAMA)
    before = serialize(model)
    inferred, report = kv.infer(model)
    assert serialize(model) == before
    assert report.values == report.known_after > report.known_before
    for node in inferred.graph:
        for value in node.outputs:
            assert value.dtype is not None and value.shape is not None
    present = next(v for v in inferred.graph.outputs if v.name == "updated_key_cache.0")
    assert present.shape == ir.Shape(["batch", 32, 32])


def test_the_shapes_of_a_copy_can_be_edited() -> None:
    inferred, _ = kv.infer(LLAMA)
    value = inferred.graph[0].outputs[0]
    assert value.shape is not None
    value.shape[0] = 7


def test_values_of_bodies_are_written() -> None:
    inferred, report = kv.infer(parsed(BODY))
    assert (report.values, report.known_after) == (6, 6)
    message = ir.to_proto(inferred)
    (branch, _) = (a.g for a in message.graph.node[0].attribute)
    (inner,) = branch.value_info
    assert inner.name == "q"
    assert [d.dim_param or d.dim_value for d in inner.type.tensor_type.shape.dim] == ["B", 5]


def test_dims_are_bound_in_inputs_and_outputs() -> None:
    inferred, _ = kv.infer(LLAMA, dims={"batch": 2, "sequence_len": 3})
    for value in (*inferred.graph.inputs, *inferred.graph.outputs):
        assert value.shape is not None and value.shape.is_static()
    assert inferred.graph.inputs[0].shape == ir.Shape([2, 3])
    onnx.checker.check_model(ir.to_proto(inferred), full_check=True)


@pytest.mark.long
def test_a_model_with_sizes_is_written_and_its_nodes_stay(tmp_path: Path) -> None:
    source = FIXTURES.parent / "growing" / "llama__optimum.onnx"
    dims = {"batch_size": 2, "sequence_length": 3, "past_sequence_length": 5}
    report = run(InferRequest(str(source), output=str(tmp_path / "fixed.onnx"), dims=dims))
    assert report.output is not None
    before, after = onnx.load(source), onnx.load(report.output)
    for value in (*after.graph.input, *after.graph.output, *after.graph.value_info):
        assert all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim), (
            value.name
        )
    shapes = {
        value.name: [d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*after.graph.input, *after.graph.output)
    }
    assert shapes["attention_mask"] == [2, 8]
    assert shapes["present.0.key"] == [2, 2, 8, 8]
    assert after.graph.node == before.graph.node


def test_a_dimension_that_no_input_has_is_wrong_usage() -> None:
    with pytest.raises(kv.UsageError, match="no input has a dimension called `bach`"):
        kv.infer(LLAMA, dims={"bach": 2})


def test_a_conflict_is_no_exception() -> None:
    inferred, report = kv.infer(parsed(CONFLICT))
    assert report.failed and len(report.conflicts) == 1
    assert inferred.graph.num_nodes() > 0


def test_strict_fails_where_something_is_unknown() -> None:
    text = """
        <ir_version: 10, opset_import: ["": 24]>
        main (float[B, 3] x) => (int64[P, Q] y) { y = NonZero (x) }
    """
    assert not kv.infer(parsed(text))[1].failed
    assert kv.infer(parsed(text), strict=True)[1].failed


def test_weights_are_neither_needed_nor_read(tmp_path: Path) -> None:
    """Not a single data file of the model is opened, and it need not be there."""
    data = tmp_path / "weights.data"
    path, output = tmp_path / "decoder.onnx", tmp_path / "out.onnx"
    onnx.save(decoder(2, data_file=data, weight_bytes=3 << 30), path)
    opened: list[str] = []
    sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
    report = run(InferRequest(str(path), output=str(output)))
    assert report.output == str(output)
    assert report.known_after == report.values
    _, missing = kv.infer(path)
    assert missing.known_after == report.known_after
    assert not [name for name in opened if name.endswith("weights.data")]
    old, new = (onnx.load(p, load_external_data=False).graph.initializer for p in (path, output))
    assert [t.SerializeToString() for t in old] == [t.SerializeToString() for t in new]


def test_nothing_is_written_on_a_conflict(tmp_path: Path) -> None:
    source, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    ir.save(parsed(CONFLICT), source)
    report = run(InferRequest(str(source), output=str(output)))
    assert report.output is None and not output.exists()
    assert "nothing was written because of a conflict" in report.notes


def test_nodes_that_lack_an_input_are_the_reason_for_what_is_unknown() -> None:
    broken = FIXTURES / "native" / "BROKEN_gemma_static_raw_noopt.onnx"
    report = run(InferRequest(str(broken)))
    assert report.unknown
    assert {value.lost.code for value in report.unknown} == {"malformed"}


@pytest.mark.long
def test_the_written_model_runs_as_before(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    run(InferRequest(str(LLAMA), output=str(output)))
    assert kv.verify(LLAMA, output, cases=1, steps=1).status == "equal"
