"""A model with growing caches beside its fixed form: equal where it is right, and every fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.machine import Budget
from onnx_kvtool.model_io.model import read
from onnx_kvtool.verification.affordable import Large, compare_shrunk
from onnx_kvtool.verification.growing.grown import growing_cases
from onnx_kvtool.verification.growing.pair import growing_pair
from onnx_kvtool.verification.inputs.cases import Case
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.stepping import advance
from onnx_kvtool.verification.report import Settings
from onnx_kvtool.verification.subject import Subject, capture
from tests.grids import rest, thinned
from tests.growing_pairs import FAULTS, fixed_form
from tests.runtime.recorded import needs_24

pytestmark = [pytest.mark.long, needs_24]

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

GPT2 = "models/concat/gpt2_dynamic__ts_op17"
LLAMA = "growing/llama_dynamic__dynamo_op18"
OPTIMUM = "growing/llama__optimum"
QWEN = "growing/qwen3__dynamo_op18"


def source(name: str) -> ir.Model:
    return read(FIXTURES / f"{name}.onnx")


@pytest.mark.parametrize(
    ("name", "capacity", "rows", "runs"),
    [
        pytest.param(LLAMA, 60, 60, 19, id="a number, a length of its own for each past"),
        pytest.param(OPTIMUM, "max_length", 13, 19, id="a name, positions that the host counts"),
        pytest.param(
            *(GPT2, 7, 7, 16),
            id="fewer rows than cases would like",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(LLAMA, 2, 2, 7, id="two rows"),
    ],
)
def test_a_right_form_is_equal(name: str, capacity: int | str, rows: int, runs: int) -> None:
    growing = source(name)
    found = kv.verify(growing, fixed_form(growing, capacity))
    assert (found.status, found.detail, found.cases, found.steps) == ("equal", None, 7, runs)
    assert all(output.bit_equal for output in found.outputs)
    grows, padding, end = found.notes
    assert grows.endswith(f"those of B have {rows} rows: the rows in use were compared")
    assert padding.endswith("rows of padding, as `attention_mask` says, skipped")
    assert end.startswith(f"B fails in a step past the capacity of {rows} rows, as it has to: ")


@pytest.mark.parametrize("fault", FAULTS[:1])
def test_a_faulty_form_is_different(fault: str) -> None:
    """The next test finds each in three models, and in both runtimes."""
    growing = source(QWEN)
    found = kv.verify(growing, fixed_form(growing, 40, fault))
    assert found.status == "different"
    assert found.detail


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [GPT2, LLAMA, OPTIMUM])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_form_is_different_in_either_runtime(name: str, fault: str) -> None:
    growing = source(name)
    number = FAULTS.index(fault) + [GPT2, LLAMA, OPTIMUM].index(name)
    faulty = fixed_form(growing, (9, "rows")[number % 2], fault)
    runtime = ("onnxruntime", "reference")[number // 2 % 2]
    assert kv.verify(growing, faulty, runtime=runtime).status == "different"


@pytest.mark.parametrize(
    "fault", [FAULTS[2], *rest(None, *(fault for fault in FAULTS if fault != FAULTS[2]))]
)
def test_copies_show_the_same(fault: str | None) -> None:
    growing = source(LLAMA)
    models = Large(growing, "A"), Large(fixed_form(growing, 40, fault), "B")
    found = compare_shrunk(*models, Settings())
    assert (found.status, found.shrunk) == ("different" if fault else "equal", True)


@pytest.mark.exhaustive
def test_that_a_fault_hides_where_no_case_goes_is_no_wonder() -> None:
    """The cases that find a fault are those that are there for it."""
    growing = source(OPTIMUM)
    ignored = fixed_form(growing, 40, "the mask is ignored")
    prompt = kv.verify(growing, ignored, cases=1)
    assert prompt.status == "equal"
    found = kv.verify(growing, ignored)
    assert "padding on the left" in (found.detail or "")
    unread = fixed_form(growing, 40, "attention reads a row that is not in use")
    assert "decode step 1" in (kv.verify(growing, unread).detail or "")
    unending = fixed_form(growing, 40, "nothing fails past the capacity")
    found = kv.verify(growing, unending)
    assert found.detail == "B runs in a step past the capacity of 40 rows, where it has to fail"


@pytest.mark.exhaustive
def test_a_form_with_numbers_for_all_sizes_is_fed_a_mask_of_all_rows() -> None:
    growing = source(OPTIMUM)
    known, capacity = plan(growing), 12
    fixed = ir.to_proto(fixed_form(growing, capacity))
    sizes = {"batch_size": 2, "sequence_length": 1}
    for value in fixed.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
            elif value.name == "attention_mask" and axis == 1:
                dim.dim_value = capacity
    # The mask of all rows, cut to those in use, is the one that the growing model has.
    cut = onnx.parser.parse_graph(
        "g (int64[2,12] mask, int64[1] past_length) => (int64[2,T] m)"
        "{ zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()"
        "  end = Add (past_length, one) m = Slice (mask, zero, end, one) }"
    )
    for node in fixed.graph.node:
        for index, name in enumerate(node.input):
            if name == "attention_mask":
                node.input[index] = "m"
    for node in reversed(cut.node):
        for index, name in enumerate(node.input):
            if name == "mask":
                node.input[index] = "attention_mask"
        fixed.graph.node.insert(0, node)
    found = kv.verify(growing, ir.from_proto(fixed))
    assert (found.status, found.detail) == ("equal", None)
    assert "B fails in a step past the capacity of 12 rows" in found.notes[-1]
    assert known.pairs


def test_models_are_a_pair_by_their_interfaces_only() -> None:
    growing = source(QWEN)
    fixed = fixed_form(growing, 40)

    def side(model: ir.Model) -> Subject:
        return capture(model, "A")

    pair = growing_pair(side(growing), side(fixed), {})
    assert pair is not None
    assert (pair.capacity, len(pair.caches)) == (40, 4)
    assert pair.is_counter_fed
    assert growing_pair(side(fixed), side(growing), {}) is None
    assert growing_pair(side(growing), side(growing), {}) is None
    assert growing_pair(side(fixed), side(fixed), {}) is None
    fixed.graph.inputs[-1].name = "offset"
    assert growing_pair(side(growing), side(fixed), {}) is None
    found = kv.verify(growing, fixed)
    assert (found.status, found.cases) == ("different", 0)
    assert "`offset`" in (found.detail or "")


@pytest.mark.parametrize("capacity", thinned([3, 1, 2, 5, 13, 100], 6))
def test_no_case_goes_beyond_the_capacity(capacity: int) -> None:
    growing = source(QWEN)
    fixed = fixed_form(growing, capacity)
    pair = growing_pair(capture(growing, "A"), capture(fixed, "B"), {})
    assert pair is not None
    for case in growing_cases(pair, 30, None):
        assert case.length >= 1 and case.past + case.length <= capacity
    last = growing_cases(pair, None, None)[-1]
    assert last.past + last.length + sum(last.chunks or ()) == capacity


@pytest.mark.exhaustive
def test_a_cache_that_takes_too_much_memory_is_not_run() -> None:
    growing = source(OPTIMUM)
    found = kv.verify(growing, fixed_form(growing, 1 << 22), verify_budget="1MiB")
    assert found.status == "unrunnable"
    assert "a run of B would take" in (found.detail or "")
    assert Budget().memory > 1 << 20


GROWING = sorted(path.stem for path in (FIXTURES / "growing").glob("*.onnx"))

OFTEN = ("llama_dynamic__dynamo_op18",)


@pytest.mark.parametrize(
    "name",
    [*OFTEN, *rest(*(name for name in GROWING if name not in OFTEN))],
)
def test_what_raise_makes_of_a_real_decoder_is_verified(name: str) -> None:
    _, report = kv.raise_(FIXTURES / "growing" / f"{name}.onnx", capacity=48, partial=True)
    if not report.raised:
        assert "rolling" in name
        return
    found = report.verification
    assert found.status == "equal"
    assert "the rows in use were compared" in (found.detail or "")
    # Windows that stay as they are take no 48 rows, and nothing goes so far.
    end = "nothing was run past" if "rolling" in name else "fails in a step past"
    assert f"{end} the capacity of 48 rows" in (found.detail or "")
    assert ("rows of padding" in (found.detail or "")) is not name.startswith(
        ("t5", "gemma3_rolling")
    )


def test_a_prompt_has_a_branch_of_its_own() -> None:
    """T5 as one file chooses by an input whether it reads caches, as a host says it does."""
    growing = source("growing/t5_decoder_merged__optimum")
    known = plan(growing)
    assert [spec.name for spec in known.with_role("condition")] == ["use_cache_branch"]
    for past in (0, 4):
        case = Case("a prompt", 2, 3, past, "anywhere", "none")
        inputs = draw(known, case, 0)
        assert inputs["use_cache_branch"].tolist() == [past > 0]
        presents = {pair.present: np.zeros((2, 4, past + 3, 8), np.float32) for pair in known.pairs}
        following = advance(known, inputs, presents, is_padded=True)
        assert following is not None
        assert following["use_cache_branch"].tolist() == [True]


HALF = """
<ir_version: 10, opset_import: ["": 18]>
g (float16[B, S, 12] x, float16[B, 3, P, 4] past)
  => (float16[B, 3, S, 4] y, float16[B, 3, T, 4] present)
{
  shape = Constant <value_ints = [0, 0, 3, 4]> ()
  projected = MatMul (x, w)
  heads = Reshape (projected, shape)
  new = Transpose <perm = [0, 2, 1, 3]> (heads)
  present = Concat <axis = 2> (past, new)
  keys = Transpose <perm = [0, 1, 3, 2]> (present)
  scores = MatMul (new, keys)
  weights = Softmax <axis = -1> (scores)
  y = MatMul (weights, present)
}
"""


@pytest.mark.parametrize("fault", [None, "one layer writes one row early"])
def test_models_of_16_bits_are_judged_by_their_twins(fault: str | None) -> None:
    proto = onnx.parser.parse_model(HALF)
    weight = np.random.default_rng(3).normal(size=(12, 12)) / 3
    tensor = onnx.numpy_helper.from_array(weight.astype(np.float16), "w")
    proto.graph.initializer.append(tensor)
    growing = ir.from_proto(proto)
    fixed, _ = kv.raise_(growing, capacity=20, verify=False)
    if fault is not None:
        starts = next(n for n in fixed.graph if n.op_type == "TensorScatter").inputs[2]
        assert starts is not None
        one = ir.Value(name="one", const_value=ir.tensor(np.ones(1, np.int64), name="one"))
        fixed.graph.register_initializer(one)
        late = ir.node("Sub", [starts, one])
        place = next(n for n in fixed.graph if n.op_type == "TensorScatter")
        place.replace_input_with(2, late.outputs[0])
        fixed.graph.insert_before(place, late)
    found = kv.verify(growing, fixed)
    assert found.status == ("different" if fault else "equal")
    if fault is None:
        assert found.twins is not None
        assert found.twins.max_abs_diff < 1e-5


def test_the_other_order_is_refused() -> None:
    growing = source(QWEN)
    fixed = fixed_form(growing, 40)
    for budget in ("256MiB", "1kiB"):
        found = kv.verify(fixed, growing, verify_budget=budget)
        assert found.status == "unrunnable"
        assert "`past_key_values.0.key` grows in B" in (found.detail or "")
