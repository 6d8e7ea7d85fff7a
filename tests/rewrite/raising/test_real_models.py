"""What is raised in models that real exporters wrote, and that the result computes the same."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from tests.grids import part
from tests.rewrite.raising.brute_force import Arrays, Runtimes, dead_nodes, same_bits

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models"

EVERYTHING = ("contiguous", "in-range", "finite")
"""Every assumption that needs no name."""

ROUNDING = 1e-4
"""Largest difference from what PyTorch recorded, absolute: outputs are of the order of 1."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be raised.

    Attributes:
        pattern: The rule that reads the updates.
        axis: The sequence axis of the caches.
        count: Number of updates.
        mode: Whether positions wrap.
        assume: What has to be granted first, in the order in which it is asked for.
        is_legal: Whether the source is legal ONNX, which onnx's checker takes.
        reader: Operator that reads the cache beside the update, which then cannot be in place.
    """

    pattern: str
    axis: int
    count: int = 1
    mode: str = "linear"
    assume: tuple[str, ...] = ()
    is_legal: bool = True
    reader: str | None = None


VERDICTS = {
    # P1 and P3: one start for all sequences, caches (B, H, S, D), two layers.
    "torch_static/hf/llama_static__dynamo_op18": Verdict("scatter_nd", 2, 4),
    "torch_static/hf/llama_static__dynamo_op23": Verdict("scatter_nd", 2, 4),
    "torch_static/hf/llama_static__ts_op17": Verdict("scatter_elements", 2, 4),
    "optimized/llama_static__ts_op17__onnxslim": Verdict("scatter_elements", 2, 4),
    # onnxruntime's optimiser leaves operators of its own in the default domain.
    "optimized/llama_static__ts_op17__ortext": Verdict("scatter_elements", 2, 4, is_legal=False),
    # P2: the positions are a free input.
    "torch_static/hand/index_copy_bhsd__dynamo_op18": Verdict(
        "scatter_nd", 2, assume=("contiguous:pos",)
    ),
    "torch_static/hand/index_copy_bhsd__ts_op17": Verdict(
        "scatter_elements", 2, assume=("contiguous:pos",)
    ),
    # P4 with free dimensions: cache, update and positions have a batch size of their own.
    "torch_static/hand/scatter_expand_bhsd__dynamo_op18": Verdict(
        "scatter_elements", 2, assume=("same-dim:s28=s11",)
    ),
    "torch_static/hand/scatter_expand_bhsd__ts_op17": Verdict(
        "scatter_elements", 2, assume=("same-dim:cache_d0=upd_d0", "same-dim:pos_d0=cache_d0")
    ),
    "optimized/scatter_expand_bhsd__ts_op17__onnxsim": Verdict(
        "scatter_elements", 2, assume=("same-dim:cache_d0=upd_d0", "same-dim:pos_d0=cache_d0")
    ),
    # P5: tuples (b, t).
    "torch_static/hand/perbatch_index_put_bhsd_sharedB__dynamo_op18": Verdict("scatter_nd", 2),
    "torch_static/hand/perbatch_index_put_bshd__ts_op17": Verdict(
        "scatter_nd", 1, assume=("same-dim:cache_d0=pos_d0",)
    ),
    # P6: slice assignment.
    "torch_static/hand/slice_assign_item__dynamo_op18": Verdict("scatter_nd", 2),
    # The update is expanded to the batch size of a slice of the cache, which may not be its own.
    "torch_static/hand/slice_assign_const5__ts_op17": Verdict("scatter_nd", 2, reader="Slice"),
    # P8: a modulus.
    "torch_static/hand/circular_scatter_sharedB__dynamo_op18": Verdict(
        "scatter_elements", 2, mode="circular"
    ),
    # P9: one token by a mask.
    "torch_static/hand/onehot_where_sharedB__dynamo_op18": Verdict(
        "where", 2, assume=("in-range:pos",)
    ),
    "torch_static/hand/onehot_mul__dynamo_op18": Verdict(
        "one_hot_sum", 2, assume=("in-range:pos", "finite:cache", "finite:upd")
    ),
    # P10: Concat of slices.
    "torch_static/hand/slice_cat__dynamo_op18": Verdict("concat", 2),
}

NEVER: dict[str, str | None] = {
    # P0: TensorScatter is there already.
    # Two of its layers grow their caches, and no capacity is given.
    "native/gemma4_hybrid_static": "growing-cache growing-cache",
    "native/llama_static": None,
    "native/llama_static_fp16": None,
    "native/mistral_sliding_bias_static": None,
    "native/mobius_block_bias_int64_2d": None,
    "native/BROKEN_gemma_static_raw_noopt": None,
    # GroupQueryAttention keeps its caches inside.
    "genai/genai_llama_fp32_cpu": None,
    # P11: slots have no batch axis.
    "torch_static/hand/flat_slots__ts_op17": "batch-not-first",
    # P12: the cache is no input.
    "torch_static/hand/buffered__dynamo_op18": "cache-is-initializer",
}
"""For each model that must stay, the reason given for each of its candidates."""


ELSEWHERE = {
    "torch_static/hand/shift_cat__dynamo_op18": "test_rolled_window",
    "torch_static/hand/sliding_hf_old__dynamo_op18": "test_rolled_window",
    "torch_static/hf/gemma3_static_slidingfull_L1__dynamo_op18": "test_rolled_window",
}
"""The tests of models of which more is asked than to raise an update."""


def recorded(name: str) -> tuple[Arrays, Arrays]:
    with np.load(MODELS / f"{name}.npz") as arrays:
        inputs = {k[3:]: arrays[k] for k in arrays if k.startswith("in:")}
        outputs = {k[4:]: arrays[k] for k in arrays if k.startswith("out:")}
    return inputs, outputs


@functools.cache
def raised(name: str) -> tuple[onnx.ModelProto, kv.RaiseReport]:
    """Return a model raised under the assumptions of its verdict, as it is written."""
    model, report = kv.raise_(
        MODELS / f"{name}.onnx",
        assume=VERDICTS[name].assume,
        attention="keep",
        contrib="keep",
        verify=False,
    )
    return onnx.load_from_string(serialize(model)), report


def op_types(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


cases = pytest.mark.parametrize(("name", "verdict"), VERDICTS.items(), ids=VERDICTS)


def test_every_model_of_the_fixtures_has_a_verdict() -> None:
    found = {path.relative_to(MODELS).with_suffix("").as_posix() for path in MODELS.rglob("*.onnx")}
    growing = {name for name in found if name.startswith(("concat/", "growing/", "optimum/"))}
    assert found - growing == {*VERDICTS, *NEVER, *ELSEWHERE}


@pytest.mark.long
@cases
def test_what_is_provable_is_raised(name: str, verdict: Verdict) -> None:
    model, report = raised(name)

    assert not report.refused
    assert len(report.raised) == verdict.count
    for done in report.raised:
        assert (done.pattern, done.axis, done.mode) == (verdict.pattern, verdict.axis, verdict.mode)
        assert done.assumed == verdict.assume
        assert done.proof
    assert op_types(model)["TensorScatter"] == verdict.count
    assert (report.source_opset, report.target_opset) == (int(name.split("_op")[1][:2]), 24)
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == 24


@pytest.mark.parametrize("name", [name for name, verdict in VERDICTS.items() if verdict.assume])
def test_each_assumption_is_asked_for_by_name(name: str) -> None:
    granted: list[str] = []
    for wanted in VERDICTS[name].assume:
        _, report = kv.raise_(
            MODELS / f"{name}.onnx", assume=granted, attention="keep", contrib="keep", verify=False
        )
        assert not report.raised
        (refusal,) = report.refused
        assert refusal.assumption == wanted
        granted.append(wanted)


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
@cases
def test_the_recorded_run_is_reproduced(name: str, verdict: Verdict) -> None:
    """Within rounding of PyTorch, and bit for bit what the source gives in the same runtime."""
    model, _ = raised(name)
    inputs, outputs = recorded(name)
    source = Runtimes(onnx.load(MODELS / f"{name}.onnx")).run(inputs)
    found = Runtimes(model).run(inputs)

    assert {"evaluator", "onnxruntime"} == set(source) == set(found)
    for runtime, expected in source.items():
        actual = found[runtime]
        assert expected is not None and actual is not None
        assert list(actual) == list(outputs)
        for output, array in actual.items():
            assert same_bits(array, expected[output]), (runtime, output)
            assert np.allclose(array, outputs[output], rtol=0, atol=ROUNDING), (runtime, output)
            if "/hand/" in name:
                assert same_bits(array, outputs[output]), (runtime, output)


@pytest.mark.long
@cases
def test_the_checker_accepts_the_result(name: str, verdict: Verdict) -> None:
    model, _ = raised(name)
    if verdict.is_legal:
        onnx.checker.check_model(model, full_check=True)
        return
    for each in (onnx.load(MODELS / f"{name}.onnx"), model):
        with pytest.raises(onnx.checker.ValidationError, match="No Op registered for Simplified"):
            onnx.checker.check_model(each)


@pytest.mark.long
@cases
def test_the_arithmetic_of_the_index_is_gone(name: str, verdict: Verdict) -> None:
    source = onnx.load(MODELS / f"{name}.onnx")
    model, report = raised(name)

    assert dead_nodes(model) == []
    assert len(model.graph.node) < len(source.graph.node)
    found = op_types(model)
    assert not found["ScatterND"] and not found["ScatterElements"]
    before = {node.name for node in source.graph.node}
    new = sum(node.name not in before for node in model.graph.node) + verdict.count
    assert len(source.graph.node) - report.removed + new == len(model.graph.node)


@cases
def test_names_and_types_of_inputs_and_outputs_stay(name: str, verdict: Verdict) -> None:
    source = onnx.load(MODELS / f"{name}.onnx")
    model, _ = raised(name)
    for before, after in (
        (source.graph.input, model.graph.input),
        (source.graph.output, model.graph.output),
    ):
        assert [(v.name, v.type) for v in before] == [(v.name, v.type) for v in after]


@pytest.mark.long
@cases
def test_inspect_finds_caches_that_can_be_updated_in_place(name: str, verdict: Verdict) -> None:
    model, report = raised(name)
    caches = kv.inspect(ir.from_proto(model)).to_json()["caches"]

    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    assert [cache["past"] for cache in caches] == [done.past for done in report.raised]
    for cache, done in zip(caches, report.raised, strict=True):
        assert cache["kind"] == "tensor_scatter"
        assert (cache["axis"], cache["mode"]) == (verdict.axis, verdict.mode)
        assert (cache["update"], cache["write_indices"]) == (done.update, done.write_indices)
        assert cache["past"] in inputs and cache["present"] in outputs
        reason = cache["in_place"]["reason"]
        if verdict.reader is None:
            assert cache["in_place"]["possible"], reason
        else:
            assert not cache["in_place"]["possible"] and f"`{verdict.reader}`" in reason


@pytest.mark.long
@part(2)
@pytest.mark.parametrize("assume", [(), EVERYTHING], ids=["nothing granted", "everything granted"])
@pytest.mark.parametrize(("name", "code"), NEVER.items(), ids=NEVER)
def test_what_is_no_tensor_scatter_stays(
    name: str, code: str | None, assume: tuple[str, ...]
) -> None:
    model, report = kv.raise_(
        MODELS / f"{name}.onnx", assume=assume, attention="keep", contrib="keep"
    )

    assert report.raised == []
    assert [refusal.code for refusal in report.refused] == (code or "").split()
    assert all(refusal.assumption is None for refusal in report.refused)
    assert report.target_opset == report.source_opset
    assert serialize(model) == serialize(kv.load(MODELS / f"{name}.onnx"))


@pytest.mark.long
def test_nothing_is_written_for_them(tmp_path: Path, kvtool: Any) -> None:
    for name in ("torch_static/hand/shift_cat__dynamo_op18", "native/llama_static"):
        result = kvtool("raise", MODELS / f"{name}.onnx", "-o", tmp_path / "out.onnx")
        assert result.exit_code == 0
    assert not list(tmp_path.iterdir())
