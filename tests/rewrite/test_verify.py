"""Verification: equal models pass, and every planted fault is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.core.machine import Budget
from onnx_kvtool.model_io.model import read
from onnx_kvtool.rewrite.verify import Verifier
from onnx_kvtool.runtime import onnxruntime, reference
from onnx_kvtool.runtime.errors import RuntimeUnavailable
from onnx_kvtool.verification import affordable
from onnx_kvtool.verification.comparison import side_by_side
from onnx_kvtool.verification.report import Settings
from tests.grids import part, rest, thinned
from tests.runtime.recorded import HAS_24, NAMES, NATIVE, model, native, needs_24

Fault = Callable[[ir.Model], None]

RUNTIME = f"onnxruntime {onnxruntime.VERSION}" if HAS_24 else f"reference {reference.VERSION}"

CACHES = tuple(f"updated_{kind}_cache.{layer}" for layer in (0, 1) for kind in ("key", "value"))


def nodes(source: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in source.graph if node.op_type == op_type]


def constant(source: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
    value.shape = ir.Shape(array.shape)
    source.graph.initializers.add(value)
    return value


@part(2)
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_model_equals_itself_in_every_bit(name: str) -> None:
    source = native(name)
    found = Verifier(source).compare(native(name))
    assert (found.status, found.runtime) == ("equal", RUNTIME)
    assert (found.detail is None) is HAS_24
    assert found.bit_equal == tuple(value.name for value in source.graph.outputs)
    assert found.max_abs_diff == 0.0
    assert found.cases == 4
    assert found.steps >= found.cases


@pytest.mark.long
def test_a_small_decoder_is_verified_in_a_moment() -> None:
    source, result = native("llama_static"), native("llama_static")
    Verifier(source).compare(result)  # imports
    start = time.perf_counter()
    Verifier(source).compare(result)
    assert time.perf_counter() - start < 1.5


def flip_a_bit(source: ir.Model) -> None:
    value = source.graph.initializers["model.layers.1.mlp.down_proj.weight"]
    assert value.const_value is not None
    array = value.const_value.numpy().copy()
    # The highest bit of the exponent: not lost among the roundings of float16.
    array.view(f"u{array.itemsize}")[3, 5] ^= 1 << (8 * array.itemsize - 2)
    value.const_value = ir.tensor(array, name=value.name)


def scatter_along_another_axis(source: ir.Model) -> None:
    for node in nodes(source, "TensorScatter"):
        node.attributes["axis"] = ir.AttrInt64("axis", 2)


def start_one_row_late(source: ir.Model) -> None:
    scatter = nodes(source, "TensorScatter")[0]
    one = constant(source, "one", np.array([1], np.int64))
    late = ir.node("Add", [scatter.inputs[2], one])
    source.graph.insert_before(scatter, late)
    scatter.replace_input_with(2, late.outputs[0])


def write_values_as_keys(source: ir.Model) -> None:
    key, value = nodes(source, "TensorScatter")[:2]
    key.replace_input_with(1, value.inputs[1])


def forget_causality(source: ir.Model) -> None:
    nodes(source, "Attention")[-1].attributes["is_causal"] = ir.AttrInt64("is_causal", 0)


def forget_the_valid_length(source: ir.Model) -> None:
    nodes(source, "Attention")[-1].replace_input_with(6, None)


def forget_the_mask(source: ir.Model) -> None:
    masked = [node for node in nodes(source, "Attention") if node.inputs[3] is not None]
    masked[0].replace_input_with(3, None)


def swap_cosine_and_sine(source: ir.Model) -> None:
    rotary = nodes(source, "RotaryEmbedding")[-1]
    cosine, sine = rotary.inputs[1:3]
    rotary.replace_input_with(1, sine)
    rotary.replace_input_with(2, cosine)


def scale_by_another_factor(source: ir.Model) -> None:
    nodes(source, "Attention")[-1].attributes["scale"] = ir.AttrFloat32("scale", 0.26)


FAULTS: list[tuple[str, Fault]] = [
    *(
        (name, fault)
        for name in ("llama_static", "llama_static_fp16", "gemma4_hybrid_static")
        for fault in (
            flip_a_bit,
            scatter_along_another_axis,
            start_one_row_late,
            write_values_as_keys,
            forget_causality,
            forget_the_valid_length,
            swap_cosine_and_sine,
        )
    ),
    ("mistral_sliding_bias_static", forget_the_mask),
    ("gemma4_hybrid_static", forget_the_mask),
    ("llama_static", scale_by_another_factor),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fault"),
    thinned([pytest.param(*f, id=f"{f[1].__name__} in {f[0]}") for f in FAULTS], 6),
)
def test_planted_faults_are_found(name: str, fault: Fault) -> None:
    source = native(name)
    verifier = Verifier(source)
    fault(source)  # what the verifier needs was captured before
    found = verifier.compare(source)
    assert found.status == "different"
    assert found.detail is not None


SCATTER = """
g (float[B, 5, 3] past, float[B, L, 3] update, int64[B] start) => (float[B, 5, 3] present)
{ present = TensorScatter <axis = 1, mode = "MODE"> (past, update, start) }
"""


def test_circular_taken_for_linear_is_found() -> None:
    found = Verifier(model(SCATTER.replace("MODE", "circular"))).compare(
        model(SCATTER.replace("MODE", "linear"))
    )
    assert found.status == "different"
    assert "the result fails in rows up to the end of the cache" in (found.detail or "")


def test_one_bit_in_moved_data_is_found() -> None:
    source = model(SCATTER.replace("MODE", "linear"))
    verifier = Verifier(source)
    scatter = next(iter(source.graph))
    tiny = constant(source, "tiny", np.array(1 + 2**-23, np.float32))
    scaled = ir.node("Mul", [scatter.inputs[1], tiny])
    source.graph.insert_before(scatter, scaled)
    scatter.replace_input_with(1, scaled.outputs[0])
    found = verifier.compare(source)
    assert found.status == "different"
    assert found.bit_equal == ()


@pytest.mark.long
def test_rounding_in_written_rows_is_no_fault_but_one_bit_in_other_rows_is() -> None:
    source = native("llama_static")
    verifier = Verifier(source)
    scatter = nodes(source, "TensorScatter")[1]
    tiny = constant(source, "tiny", np.array(1 + 2**-23, np.float32))
    scaled = ir.node("Mul", [scatter.inputs[1], tiny])
    source.graph.insert_before(scatter, scaled)
    scatter.replace_input_with(1, scaled.outputs[0])
    found = verifier.compare(source)
    assert found.status == "equal"
    assert found.max_abs_diff is not None
    assert 0 < found.max_abs_diff < 1e-5
    assert "updated_key_cache.0" in found.bit_equal
    assert "updated_value_cache.0" not in found.bit_equal

    whole = ir.node("Mul", [scatter.inputs[0], tiny])
    source.graph.insert_before(scatter, whole)
    scatter.replace_input_with(0, whole.outputs[0])
    found = verifier.compare(source)
    assert found.status == "different"
    assert "updated_value_cache.0" in (found.detail or "")


@pytest.mark.long
def test_a_difference_is_described_and_the_outputs_that_agree_are_told() -> None:
    source = native("llama_static")
    verifier = Verifier(source)
    flip_a_bit(source)
    found = verifier.compare(source)
    assert found.detail is not None
    assert found.detail.startswith("output `logits` at [0, 0, 0] is ")
    first, earliest = found.detail.split("; ")
    assert first.endswith(" in a prompt for two empty caches")
    assert earliest.startswith("the earliest value that differs is that of main_graph, node `")
    assert "layers.1/mlp/down_proj" in earliest
    assert found.bit_equal == CACHES
    assert (found.cases, found.steps) == (4, 10)


def test_inputs_of_another_order_are_different_before_anything_is_run() -> None:
    other = model(
        "g (float[B, L, 3] update, float[B, 5, 3] past, int64[B] start) => (float[B, 5, 3] present)"
        "{ present = TensorScatter <axis = 1> (past, update, start) }"
    )
    found = Verifier(model(SCATTER.replace("MODE", "linear"))).compare(other)
    assert (found.status, found.runtime) == ("different", None)
    assert found.detail == (
        "the inputs are `update`, `past`, `start`, expected `past`, `update`, `start`"
    )


@pytest.mark.long
@needs_24
def test_a_result_that_breaks_the_specification_is_different() -> None:
    source = native("llama_static")
    verifier = Verifier(source)
    scatter = nodes(source, "TensorScatter")[0]
    scatter.replace_input_with(2, next(v for v in source.graph.inputs if v.name == "key_cache.1"))
    found = verifier.compare(source)
    assert found.status == "different"
    assert "cannot load the model" in (found.detail or "")


def without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise RuntimeUnavailable("onnxruntime is not available")

    monkeypatch.setattr(onnxruntime, "Session", refuse)


@pytest.mark.long
def test_the_reference_runs_what_onnxruntime_does_not_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_onnxruntime(monkeypatch)
    source = native("llama_static")
    verifier = Verifier(source)
    found = verifier.compare(source)
    assert (found.status, found.runtime) == ("equal", f"reference {reference.VERSION}")
    assert found.detail == "onnxruntime is not available"
    start_one_row_late(source)
    assert verifier.compare(source).status == "different"


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "float8e5m2", "int4", "string"])
def test_types_without_kernels_in_onnxruntime_are_verified(dtype: str) -> None:
    text = SCATTER.replace("MODE", "linear").replace("float[", f"{dtype}[")
    source = model(text)
    verifier = Verifier(source)
    assert verifier.compare(model(text)).status == "equal"
    start_one_row_late(source)
    assert verifier.compare(source).status == "different"


def test_a_model_that_no_runtime_loads_is_skipped_with_both_reasons() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 24, "far.away": 1]>'
        "g (float[N] x) => (float[N] y) { y = far.away.Swash (x) }"
    )
    found = Verifier(model(text)).compare(model(text))
    assert (found.status, found.runtime, found.max_abs_diff) == ("skipped", None, None)
    assert "onnxruntime" in (found.detail or "")
    assert "reference" in (found.detail or "")


def test_a_model_that_fails_on_whatever_is_drawn_is_skipped_with_the_reason() -> None:
    text = """
    g (float[N, 3] x, float[N, 5] z) => (float[M, K] y)
    { one = Identity (x) y = MatMul (one, z) }
    """
    found = Verifier(model(text), Settings(dims={"N": 2})).compare(model(text))
    assert found.status == "skipped"
    assert "the source does not run on drawn inputs" in (found.detail or "")


@pytest.mark.long
def test_a_result_that_fails_wherever_the_source_runs_is_different() -> None:
    """The result leads, as a TensorScatter tells where rows go, and runs on nothing."""
    text = """
    <ir_version: 10, opset_import: ["": 24]>
    g (float[N, 9, 3] past, float[N, L, 3] rows, int64[N] start)
        => (float[N, 9, 3] present, float y)
    { ONE present = UPDATE y = Gather (table, at) }
    """
    scatter = "TensorScatter <axis = 1> (past, rows, start)"
    table = "table = Constant <value_floats = [1.0, 2.0]> () at = Constant <value_int = AT> ()"
    copied = "Concat <axis = 1> (rows, left)"
    cut = (
        "one = Constant <value_ints = [1]> () shape = Shape <start = 1, end = 2> (rows) "
        "end = Constant <value_ints = [9]> () left = Slice (past, shape, end, one)"
    )
    source = text.replace("ONE", f"{table.replace('AT', '1')} {cut}").replace("UPDATE", copied)
    result = text.replace("ONE", table.replace("AT", "7")).replace("UPDATE", scatter)
    found = Verifier(model(source), needs_source=True).compare(model(result))
    assert found.status == "different"
    assert (found.detail or "").startswith("the result fails in ")


def test_another_reading_of_the_dimensions_is_tried() -> None:
    # `positions` has as many elements as there are rows, not sequences.
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[N, 9, 3] past, float[N, L, 3] rows, int64[P] positions) => (float[N, 9, 3] present)
    {
      a = Transpose <perm = [1, 0, 2]> (past)
      b = Transpose <perm = [1, 0, 2]> (rows)
      axes = Constant <value_ints = [-1]> ()
      i = Unsqueeze (positions, axes)
      c = ScatterND (a, i, b)
      present = Transpose <perm = [1, 0, 2]> (c)
    }
    """
    found = Verifier(model(text)).compare(model(text))
    assert (found.status, found.cases) == ("equal", 4)


def test_an_input_that_cannot_be_drawn_is_a_reason_to_skip() -> None:
    text = "g (seq(float[N]) x) => (int64 y) { y = SequenceLength (x) }"
    found = Verifier(model(text)).compare(model(text))
    assert found.status == "skipped"
    assert "input `x` is not a tensor" in (found.detail or "")


HUGE = """
g (float[N] x) => (float[N] y) { y = Identity (x) }
"""


def huge() -> ir.Model:
    source = model(HUGE)
    tensor = ir.ExternalTensor(
        "w.bin", 0, None, ir.DataType.FLOAT, shape=ir.Shape([1 << 28]), name="w", base_dir="/"
    )
    value = ir.Value(name="w", const_value=tensor, type=ir.TensorType(ir.DataType.FLOAT))
    value.shape = ir.Shape([1 << 28])
    source.graph.initializers.add(value)
    return source


def test_large_models_are_run_with_smaller_weights_unless_forced() -> None:
    found = Verifier(huge()).compare(huge())
    assert found.status == "equal"
    assert found.detail == "verified on copies with 24 of 268,435,456 widths"
    assert found.to_json()["shrunken"] == [{"what": "widths", "from": 1 << 28, "to": 24}]
    assert "copies" not in (Verifier(huge(), force=True).compare(huge()).detail or "")


def test_large_models_that_cannot_be_made_small_are_skipped_with_the_reason() -> None:
    def fixed() -> ir.Model:
        source = huge()
        hardmax = ir.node("Hardmax", [source.graph.initializers["w"]])
        source.graph.insert_before(source.graph[0], hardmax)
        return source

    found = Verifier(fixed()).compare(fixed())
    assert found.status == "skipped"
    assert found.detail == (
        "a copy with smaller weights would still take 1 GiB, more than 42.7 MiB; "
        "`--verify-budget 8GiB` allows it"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", [write_values_as_keys, *rest(start_one_row_late, swap_cosine_and_sine)]
)
def test_faults_of_large_models_are_found_on_small_copies(fault: Fault) -> None:
    source = native("llama_static")
    verifier = Verifier(source, Settings(budget=Budget(1 << 20)))
    found = verifier.compare(source)
    assert found.status == "equal"
    assert (found.detail or "").startswith("verified on copies with ")
    fault(source)
    found = verifier.compare(source)
    assert found.status == "different"
    assert "verified on copies" in (found.detail or "")


@pytest.mark.long
@pytest.mark.parametrize("runtime", [pytest.param("onnxruntime", marks=needs_24), "reference"])
def test_external_data_is_found_beside_the_model(
    tmp_path: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(NATIVE / "llama_static.onnx")
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    if runtime == "reference":
        without_onnxruntime(monkeypatch)
    found = Verifier(read(path)).compare(native("llama_static"))
    assert found.status == "equal"
    assert found.runtime is not None
    assert found.runtime.startswith(runtime)
    assert found.bit_equal == ("logits", *CACHES)


@pytest.mark.long
def test_steps_are_counted_and_may_be_none() -> None:
    source = native("llama_static")
    counts = {
        steps: Verifier(source, Settings(steps=steps)).compare(source).steps
        for steps in (0, 1, 2, 5)
    }
    # The last case fills the cache, so that nothing follows; of the third, two steps fill it.
    assert counts == {0: 4, 1: 7, 2: 10, 5: 16}


@pytest.mark.long
def test_a_fault_that_only_a_later_step_shows_is_found() -> None:
    source = native("llama_static")
    scatter = nodes(source, "TensorScatter")[-1]
    verifiers = [Verifier(source, Settings(steps=steps, dims={"batch": 1})) for steps in (0, 1)]
    # Row 3 is written as row 2: only a step that starts there tells.
    two, three = (constant(source, str(n), np.array([n], np.int64)) for n in (2, 3))
    at_three = ir.node("Equal", [scatter.inputs[2], three])
    start = ir.node("Where", [at_three.outputs[0], two, scatter.inputs[2]])
    source.graph.insert_before(scatter, [at_three, start])
    scatter.replace_input_with(2, start.outputs[0])
    first, stepped = (verifier.compare(source) for verifier in verifiers)
    assert stepped.status == "different"
    assert "a prompt for two empty caches, decode step 1" in (stepped.detail or "")
    assert "decode step" not in (first.detail or "")


@pytest.mark.long
def test_both_models_are_fed_the_presents_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[dict[str, np.ndarray]] = []
    advance = side_by_side.advance

    def record(*args: object, **options: object) -> object:
        following = advance(*args, **options)  # type: ignore[arg-type]
        if following is not None:
            fed.append((args[2], following))  # type: ignore[arg-type]
        return following

    monkeypatch.setattr(side_by_side, "advance", record)
    # Of what a process of its own runs, nothing comes back here but the report.
    monkeypatch.setattr(affordable, "confined", lambda work, limits, progress: work(progress))
    source = native("llama_static")
    assert Verifier(source).compare(native("llama_static")).status == "equal"
    assert fed
    for outputs, following in fed:  # type: ignore[misc]
        for layer in (0, 1):
            past, present = f"key_cache.{layer}", f"updated_key_cache.{layer}"
            assert np.array_equal(following[past], outputs[present])


@pytest.mark.long
def test_a_noisy_model_is_measured_before_it_is_called_different() -> None:
    # `rest` would be 0 but for rounding, which is then made large.
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[N, 63] x) => (float[N, 1] y)
    {
      axes = Constant <value_ints = [1]> ()
      big = Constant <value_float = 300.0> ()
      mean = ReduceMean (x, axes)
      centred = Sub (x, mean)
      rest = ReduceSum (centred, axes)
      noise = Mul (rest, big)
      y = Add (noise, mean)
    }
    """
    mean = "mean = ReduceMean (x, axes)"
    sum_of_parts = (
        "part = Constant <value_float = {}> () parts = Mul (x, part) mean = ReduceSum (parts, axes)"
    )
    verifier = Verifier(model(text), Settings(dims={"N": 50}))
    found = verifier.compare(model(text.replace(mean, sum_of_parts.format(1 / 63))))
    assert found.status == "equal", found.detail
    assert found.max_abs_diff is not None
    assert found.max_abs_diff > 1e-4
    assert "as the source does by rounding alone" in (found.detail or "")
    # One part in ten is no rounding.
    found = verifier.compare(model(text.replace(mean, sum_of_parts.format(1.1 / 63))))
    assert found.status == "different"


@pytest.mark.long
@needs_24
def test_the_json_form_holds_what_the_contract_names() -> None:
    source = native("mobius_block_bias_int64_2d")
    found = Verifier(source).compare(source).to_json()
    because = found.pop("covered")["tolerance"]["attention_bias"]["because"]
    assert because == "data that is moved and never rounded"
    assert found == {
        "status": "equal",
        "runtime": RUNTIME,
        "cases": 4,
        "steps": 4,
        "max_abs_diff": 0.0,
        "bit_equal": ["attention_bias"],
        "detail": None,
        "shrunken": [],
        "insufficient": None,
    }
