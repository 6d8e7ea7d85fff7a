"""`inspect`: what a model keeps and costs, without its weights and without changing it."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.decoders import decoder
from onnx_kvtool.analysis.caches.cache import footprint
from onnx_kvtool.model_io.model import serialize

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures" / "models"
LLAMA = FIXTURES / "native" / "llama_static.onnx"


def test_the_model_in_numbers() -> None:
    report = kv.inspect(LLAMA)
    whole = onnx.load(LLAMA)
    nodes = [*whole.graph.node, *(node for f in whole.functions for node in f.node)]
    sizes = [onnx.numpy_helper.to_array(tensor) for tensor in whole.graph.initializer]
    model = report.model
    assert model.path == str(LLAMA)
    assert (model.ir_version, model.producer) == (11, "mobius 0.1.0")
    assert model.opset_imports == {"": 24, "com.microsoft": 1}
    assert model.nodes == len(nodes) == sum(report.ops.values())
    assert (model.functions, model.initializers) == (1, len(sizes))
    assert model.parameters == sum(array.size for array in sizes)
    assert model.weight_bytes == sum(array.nbytes for array in sizes)
    assert model.external_files == ()
    assert report.ops["TensorScatter"] == 4
    assert report.ops["com.microsoft::SkipSimplifiedLayerNormalization"] == 4
    assert [value.to_json() for value in report.inputs][:3] == [
        {"name": "input_ids", "dtype": "int64", "shape": ["batch", "sequence_len"]},
        {"name": "position_ids", "dtype": "int64", "shape": ["batch", "sequence_len"]},
        {"name": "key_cache.0", "dtype": "float32", "shape": ["batch", 32, 32]},
    ]
    assert [value.name for value in report.outputs][:2] == ["logits", "updated_key_cache.0"]
    assert report.nodes is None and "nodes" not in report.to_json()


def test_dims_give_the_bytes() -> None:
    free, bound = kv.inspect(LLAMA), kv.inspect(LLAMA, dims={"batch": 3})
    assert {cache.total_bytes for cache in free.caches} == {None}
    assert {cache.total_bytes for cache in bound.caches} == {3 * 32 * 32 * 4}
    assert {cache.bytes_per_token for cache in (*free.caches, *bound.caches)} == {32 * 4}
    assert bound.caches[0].shape == (3, 32, 32)
    assert bound.inputs[0].shape == (3, "sequence_len")
    assert footprint(bound.caches).total_bytes == 4 * 3 * 32 * 32 * 4


def test_the_bytes_of_a_token_are_those_of_the_cache_at_batch_1() -> None:
    hybrid = FIXTURES / "native" / "gemma4_hybrid_static.onnx"
    report = kv.inspect(hybrid, dims={"batch": 1, "past_sequence_len": 7})
    for cache in report.caches:
        assert cache.total_bytes is not None and isinstance(cache.capacity, int)
        assert cache.bytes_per_token == cache.total_bytes / cache.capacity


def test_a_dimension_that_no_input_has_is_wrong_usage() -> None:
    with pytest.raises(kv.UsageError, match="no input has a dimension called `bach`"):
        kv.inspect(LLAMA, dims={"bach": 2})


@pytest.mark.parametrize(
    "name", ["native/llama_static", "torch_static/hf/llama_static__dynamo_op18"]
)
def test_the_model_is_not_changed(name: str) -> None:
    model = kv.load(FIXTURES / f"{name}.onnx")
    before = serialize(model)
    report = kv.inspect(model, nodes=True)
    assert serialize(model) == before
    assert report.nodes is not None and len(report.nodes) == report.model.nodes


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["native/BROKEN_gemma_static_raw_noopt", "genai/genai_llama_fp32_cpu"]
)
def test_a_model_that_the_checker_rejects(name: str) -> None:
    path = FIXTURES / f"{name}.onnx"
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(path)
    assert len(kv.inspect(path).caches) == 4


@pytest.mark.long
def test_a_model_in_memory_has_no_path() -> None:
    model = ir.from_proto(onnx.load(LLAMA))
    assert kv.inspect(model).model.path == ""


def test_weights_are_neither_needed_nor_read(tmp_path: Path) -> None:
    """Not a single data file of the model is opened, and it need not be there."""
    data = tmp_path / "weights.data"
    path = tmp_path / "decoder.onnx"
    onnx.save(decoder(2, data_file=data, weight_bytes=3 << 30), path)
    opened: list[str] = []
    sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
    there = kv.inspect(path)
    data.unlink()
    missing = kv.inspect(path)
    assert there.to_json() == missing.to_json()
    assert there.model.external_files == ("weights.data",)
    assert there.model.weight_bytes > 3 << 30
    assert not [name for name in opened if name.endswith("weights.data")]


def test_an_input_with_a_default_need_not_be_given() -> None:
    text = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2] x, float[2] bias) => (float[2] y) <float[2] bias = {0.0, 0.0}> {
            y = Add (x, bias)
        }
    """
    report = kv.inspect(ir.from_proto(onnx.parser.parse_model(text)))
    assert [value.name for value in report.inputs] == ["x"]


def test_types_that_are_no_tensors_are_named() -> None:
    text = """
        <ir_version: 10, opset_import: ["": 18]>
        main (seq(float[N]) xs) => (float[M] y) { y = ConcatFromSequence <axis = 0> (xs) }
    """
    report = kv.inspect(ir.from_proto(onnx.parser.parse_model(text)))
    assert report.inputs[0].dtype == "seq(tensor(float))"


@pytest.mark.long
def test_a_lowered_model_has_the_caches_of_its_source() -> None:
    def facts(model: ir.Model) -> list[tuple[object, ...]]:
        return [
            (c.past, c.present, c.write_indices, c.axis, c.mode, c.bytes_per_token, c.in_place)
            for c in kv.inspect(model).caches
        ]

    model = kv.load(LLAMA)
    for via in ("scatternd", "scatterelements"):
        lowered, _ = kv.lower(model, opset=18, via=via, verify=False)
        assert facts(lowered) == facts(model)


def test_a_cache_in_two_rows_is_counted_once() -> None:
    text = """
        <ir_version: 10, opset_import: ["": 24]>
        main (float[2,7,5] past, float[2,1,5] new, int64[2] a, int64[2] b)
            => (float[2,7,5] present) {
            between = TensorScatter <axis = 1> (past, new, a)
            present = TensorScatter <axis = 1> (between, new, b)
        }
    """
    report = kv.inspect(ir.from_proto(onnx.parser.parse_model(text)))
    cost = footprint(report.caches)
    assert len(report.caches) == 2
    assert (cost.count, cost.bytes_per_token, cost.total_bytes) == (1, 20, 280)
