"""Growing models of which the tokens of each sequence are counted: GroupQueryAttention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import read
from onnx_kvtool.verification.growing.grown import padding_host
from onnx_kvtool.verification.inputs.cases import Case
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.stepping import advance
from tests.grids import part
from tests.runtime.recorded import model

pytestmark = pytest.mark.long

GENAI = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "genai"

ATTENTION = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (float[B, S, 32] query, float[B, S, 16] key, float[B, S, 16] value,
   float[B, 2, P, 8] past_key, float[B, 2, P, 8] past_value,
   int32[B] seqlens_k, int32 total_sequence_length)
  => (float[B, S, 32] output, float[B, 2, T, 8] present_key, float[B, 2, T, 8] present_value)
{
  output, present_key, present_value = com.microsoft.GroupQueryAttention
    <num_heads = 4, kv_num_heads = 2>
    (query, key, value, past_key, past_value, seqlens_k, total_sequence_length)
}
"""

RUNS_ON = "B runs in a step past the capacity of {} rows, where it has to fail"


def with_rows(source: ir.Model, capacity: int) -> onnx.ModelProto:
    """Return the model with so many rows in its caches.

    GroupQueryAttention takes a past of more rows than are in use. With buffers that are not shared
    its present grows with one row too many, so that this is no right form at its end.
    """
    proto = ir.to_proto(source)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.name.startswith(("past", "present")):
            dim = value.type.tensor_type.shape.dim[2]
            dim.Clear()
            dim.dim_value = capacity
    return proto


@pytest.mark.parametrize(
    "name", ["what genai builds, counted from a mask", "one node, counts as inputs"]
)
def test_all_rows_in_use_are_equal_up_to_the_capacity(name: str) -> None:
    is_whole = name.startswith("what")
    growing = read(GENAI / "genai_llama_fp32_cpu.onnx") if is_whole else model(ATTENTION)
    found = kv.verify(growing, ir.from_proto(with_rows(growing, 17)))
    assert (found.status, found.detail) == ("different", RUNS_ON.format(17))
    assert all(output.bit_equal for output in found.outputs)
    assert found.cases == 6
    says = "attention_mask" if is_whole else "seqlens_k"
    assert any(f"rows of padding, as `{says}` says, skipped" in note for note in found.notes)


def test_a_capacity_of_as_many_rows_as_the_rotary_tables_have_is_proven() -> None:
    """The source itself takes no token behind them, and runs with fewer tokens prove nothing."""
    growing = read(GENAI / "genai_llama_fp32_cpu.onnx")
    _, report = kv.raise_(growing, capacity=128)
    assert report.verification.status == "equal"
    said = report.verification.detail or ""
    end = "nothing was run past the capacity of 128 rows: the source fails there"
    assert f"{end}, with `cos_cache` of 128 positions" in said


@pytest.mark.parametrize("index", [0, 4, 5])
def test_an_input_that_is_off_by_one_is_found(index: int) -> None:
    growing = model(ATTENTION)
    proto = with_rows(growing, 17)
    (node,) = proto.graph.node
    name = node.input[index]
    kind = onnx.TensorProto.INT32 if index == 5 else onnx.TensorProto.FLOAT
    one = onnx.helper.make_tensor("one", kind, [1], [1])
    proto.graph.initializer.append(one)
    proto.graph.node.insert(0, onnx.helper.make_node("Sub", [name, "one"], ["less"]))
    proto.graph.node[1].input[index] = "less"
    found = kv.verify(growing, ir.from_proto(proto))
    assert found.status == "different"
    assert found.detail != RUNS_ON.format(17)


def test_counts_follow_the_tokens_of_each_sequence() -> None:
    growing = model(ATTENTION)
    known = plan(growing)
    assert {spec.name: spec.role for spec in known.inputs[-2:]} == {
        "seqlens_k": "seqlens_k",
        "total_sequence_length": "total_sequence_length",
    }
    case = Case("ragged", 3, 1, 5, "anywhere", "right")
    inputs = draw(known, case, 0)
    assert inputs["seqlens_k"].tolist() == [5, 4, 3]
    assert inputs["total_sequence_length"].tolist() == 6
    outputs = {
        name: np.zeros((3, 2, 6, 8), np.float32) for name in ("present_key", "present_value")
    }
    following = advance(known, inputs, outputs, is_padded=True)
    assert following is not None
    assert following["seqlens_k"].tolist() == [6, 5, 4]
    assert following["total_sequence_length"].tolist() == 7


@part(3)
@pytest.mark.parametrize("capacity", [3, 8, 17])
@pytest.mark.parametrize(
    "name", ["what genai builds, counted from a mask", "one node, counts as inputs"]
)
def test_rows_behind_the_tokens_are_nobodys(name: str, capacity: int) -> None:
    """GroupQueryAttention gives zeros behind the tokens; its standard form leaves these rows."""
    is_whole = name.startswith("what")
    growing = read(GENAI / "genai_llama_fp32_cpu.onnx") if is_whole else model(ATTENTION)
    _, report = kv.raise_(ir.from_proto(with_rows(growing, capacity)))
    assert report.verification.status == "equal"
    assert report.verification.cases == 4


@pytest.mark.parametrize("rows", [1, 5])
def test_rows_of_padding_are_left_out_and_no_others(rows: int) -> None:
    known = plan(model(ATTENTION))
    inputs = draw(known, Case("ragged", 3, rows, 0, "anywhere", "right"), 0)
    inputs["seqlens_k"] = np.array([rows - 1, 0, rows - 1], np.int32)
    cache = np.ones((3, 2, rows + 2, 8), np.float32)
    found = padding_host(known).outputs(
        inputs, {"output": np.ones((3, rows, 32), np.float32), "present_key": cache}
    )
    counts = found["present_key"].sum(axis=(1, 2, 3)) / 16
    assert counts.tolist() == [rows, 1, rows]
    assert (found["output"].sum(axis=(1, 2)) / 32).tolist() == [rows, 1, rows]
