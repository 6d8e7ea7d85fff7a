"""Models of the genai builder in native form: TensorScatter and Attention-24."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.contrib.grouped_call import Call
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.emit.forms import Term, size
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.runtime import onnxruntime, reference
from onnx_kvtool.runtime.onnxruntime import Session
from tests.grids import grid, part, rest
from tests.runtime.kernels.contrib.node import needs_onnxruntime

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models"
GENAI = MODELS / "genai" / "genai_llama_fp32_cpu.onnx"

pytestmark = needs_onnxruntime


@pytest.mark.long
def test_a_genai_model_gets_caches_of_a_capacity() -> None:
    raised, report = kv.raise_(GENAI, capacity=16)
    assert report.verification.status == "equal"
    counts = Counter(node.op_type for node in raised.graph)
    assert counts["TensorScatter"] == 4
    assert counts["Attention"] == 2
    assert {node.domain for node in raised.graph} == {""}
    assert [(c.capacity, c.source) for c in report.caches] == [(16, "group_query_attention")] * 4
    assert [(a.form, a.mask) for a in report.attention] == [("sliced", "causal")] * 2
    assert Counter(done.rule for done in report.contrib) == {
        "group_query_attention": 2,
        "simplified_layer_normalization": 1,
        "skip_simplified_layer_normalization": 4,
    }
    source = read(GENAI)
    assert [i.name for i in raised.graph.inputs] == [i.name for i in source.graph.inputs]
    assert [o.name for o in raised.graph.outputs] == [o.name for o in source.graph.outputs]
    shapes = {str(i.shape) for i in raised.graph.inputs if (i.name or "").startswith("past")}
    assert shapes == {"[batch_size,2,16,kv_cache_dim]"}
    assert "`auto` reads the rows in use" in report.attention[0].proof[-1]
    data = report.to_json()
    assert data["contrib"][0].keys() == {"graph", "node", "index", "op", "rule"}


@pytest.mark.long
def test_queries_are_scaled_by_their_angles_once_for_all_layers() -> None:
    """Attention that scales keys as well takes a fifth longer than GroupQueryAttention."""
    raised, _ = kv.raise_(GENAI, capacity=16, verify=False)
    attention = [node for node in raised.graph if node.op_type == "Attention"]
    assert [node.attributes["scale"].as_float() for node in attention] == [1.0] * 2
    rotated = [node for node in raised.graph if node.op_type == "RotaryEmbedding"]
    assert [len({node.inputs[i] for node in rotated}) for i in (1, 2)] == [2, 2]
    assert all(len(node.inputs) == 3 for node in rotated)


@pytest.mark.long
def test_without_a_capacity_its_attention_stays() -> None:
    raised, report = kv.raise_(GENAI)
    assert {refusal.code for refusal in report.refused} == {"growing-cache"}
    assert "`past_key_values.0.key`" in report.refused[0].message
    assert {node.op_type for node in raised.graph if node.domain} == {"GroupQueryAttention"}
    assert report.verification.status == "equal"


@pytest.mark.long
def test_operators_may_be_kept() -> None:
    with pytest.raises(kv.Refused, match="no cache got the 16 rows"):
        kv.raise_(GENAI, capacity=16, contrib="keep", verify=False)
    raised, report = kv.raise_(GENAI, capacity=16, contrib="keep", partial=True)
    assert not report.contrib
    assert not report.raised
    assert raised.opset_imports == read(GENAI).opset_imports


def test_caches_keep_their_shapes_beside_a_function_that_stays() -> None:
    model = read(GENAI)
    gelu = ir.node("Gelu", [ir.val("x")], domain="com.microsoft")
    last = ir.node("Other", gelu.outputs, domain="custom")
    body = ir.Graph(gelu.inputs, last.outputs, nodes=[gelu, last], opset_imports={"custom": 2})
    function = ir.Function("local", "Fn", graph=body, attributes=[])
    model.functions[function.identifier()] = function
    model.opset_imports["custom"] = 1
    with pytest.raises(kv.Refused, match="no cache got the 16 rows"):
        kv.raise_(model, capacity=16, verify=False)
    raised, report = kv.raise_(model, capacity=16, partial=True, verify=False)
    assert "operators in functions are left alone" in report.notes[0]
    past, present = raised.graph.inputs[2], raised.graph.outputs[1]
    shapes = [str(past.shape), str(present.shape)]
    assert shapes == [f"[batch_size,2,{n}_sequence_length,kv_cache_dim]" for n in ("past", "total")]


@pytest.mark.long
@grid(
    6,
    opset=[24, 18, 13],
    attention=["auto", "full"],
    lengths={"one sequence": (5,), "three, ragged": (5, 3, 4)},
    window={"all rows": 0, "a window": 4},
)
def test_a_host_gets_the_same_tokens(
    window: int, lengths: tuple[int, ...], attention: AttentionChoice, opset: int
) -> None:
    """A prompt with padding behind and eight steps; the native form in buffers of 16 rows."""
    source = read(GENAI)
    for node in source.graph:
        if window and node.op_type == "GroupQueryAttention":
            node.attributes["local_window_size"] = ir.AttrInt64("local_window_size", window)
    model, report = kv.raise_(source, capacity=16, attention=attention, verify=False)
    form = "full" if attention == "full" else "sliced"
    mask_form = "window" if window else "causal"
    assert [(a.form, a.mask) for a in report.attention] == [(form, mask_form)] * 2
    if opset < 24:
        model, lowered = kv.lower(model, opset=opset)
        assert lowered.verification.status == "equal"
    grown = Session(serialize(source), "")
    forms = [runtime.Session(serialize(model), "") for runtime in (onnxruntime, reference)]
    rng = np.random.default_rng(3)
    batch, longest = len(lengths), max(lengths)
    names = [i.name or "" for i in model.graph.inputs if (i.name or "").startswith("past")]
    empty = {n: np.zeros((batch, 2, 0, 16), np.float32) for n in names}
    buffers = {n: np.zeros((batch, 2, 16, 16), np.float32) for n in names}
    mask = (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64)
    ids = rng.integers(0, 97, (batch, longest))
    for step in range(9):
        fed = {"input_ids": ids, "attention_mask": mask}
        one = grown.run({**fed, **empty})
        other, again = (form.run({**fed, **buffers}) for form in forms)
        live = mask.astype(bool) if step == 0 else np.ones((batch, 1), bool)
        for found in (other, again):
            np.testing.assert_allclose(found["logits"][live], one["logits"][live], 1e-4, 1e-5)
        counts = np.array(lengths) + step
        for name in names:
            present = name.replace("past_key_values", "present")
            empty[name], buffers[name] = one[present], other[present]
            for b, count in enumerate(counts):
                rows = [cache[name][b, :, :count] for cache in (empty, buffers)]
                np.testing.assert_allclose(rows[1], rows[0], 1e-4, 1e-5)
        ids = rng.integers(0, 97, (batch, 1))
        mask = (np.arange(longest + step + 1) < (counts + 1)[:, None]).astype(np.int64)


def with_window(layers: int, window: int = 5) -> ir.Model:
    """Return the decoder with caches that drop what has left a window, as genai declares them."""
    model = read(GENAI)
    nodes = [node for node in model.graph if node.op_type == "GroupQueryAttention"][:layers]
    for node in nodes:
        for name, value in (("sliding_window_cache", 1), ("local_window_size", window)):
            node.attributes[name] = ir.AttrInt64(name, value)
        for values, which, dim in ((node.inputs, (3, 4), "past"), (node.outputs, (1, 2), "total")):
            for value in (values[index] for index in which):
                assert value is not None and value.shape is not None
                shape = [*value.shape]
                shape[2] = ir.SymbolicDim(f"{dim}_sliding_length")
                value.shape = ir.Shape(shape)
    return model


def planted(call: Call, count: Term) -> Term:
    """Return what a cache would keep that is always kept full."""
    return count.op("Min", size(call.site, None, call.site.required("past_key"), 2))


@pytest.mark.long
@pytest.mark.parametrize("layers", [1, *rest(2)])
def test_a_cache_that_drops_rows_is_proven(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, capacity = with_window(layers), 16 if layers == 1 else None
    raised, report = kv.raise_(source, capacity=capacity)
    assert report.verification.status == "equal"
    assert not [node for node in raised.graph if node.domain]
    assert [a.mask for a in report.attention] == ["window"] * layers + ["causal"] * (2 - layers)
    assert [c.past for c in report.caches] == [
        f"past_key_values.1.{kind}" for kind in ("key", "value")
    ] * (2 - layers)
    shapes = {v.name: str(v.shape) for v in (*raised.graph.inputs, *raised.graph.outputs)}
    assert shapes["present.0.key"] == shapes["past_key_values.0.key"]
    _, lowered = kv.lower(source, opset=18, contrib="standard")
    assert lowered.verification.status == "equal"
    monkeypatch.setattr(Call, "kept", planted)
    with pytest.raises(kv.Refused):
        kv.raise_(source, capacity=capacity)
    with pytest.raises(kv.Refused):
        kv.lower(source, opset=18, contrib="standard")


@pytest.mark.long
@pytest.mark.parametrize("opset", [24, 13])
def test_a_host_of_a_window_gets_the_same_tokens(opset: int) -> None:
    """A prompt and twelve steps, with a buffer of seven rows for a window of five."""
    source = with_window(1)
    model, _ = kv.raise_(source, capacity=24, verify=False)
    if opset < 24:
        model, _ = kv.lower(model, opset=opset, verify=False)
    sessions = [Session(serialize(each), "") for each in (source, model)]
    rng = np.random.default_rng(3)
    names = [i.name or "" for i in source.graph.inputs if (i.name or "").startswith("past")]
    caches = [
        {n: np.zeros((1, 2, 7 if ".0." in n else rows, 16), np.float32) for n in names}
        for rows in (0, 24)
    ]
    ids, total = rng.integers(0, 97, (1, 9)), 9
    for _ in range(13):
        fed = {"input_ids": ids, "attention_mask": np.ones((1, total), np.int64)}
        one, other = (run.run({**fed, **c}) for run, c in zip(sessions, caches, strict=True))
        np.testing.assert_allclose(other["logits"], one["logits"], 1e-4, 1e-5)
        for held, found in zip(caches, (one, other), strict=True):
            held.update({n: found[n.replace("past_key_values", "present")] for n in names})
        ids, total = rng.integers(0, 97, (1, 1)), total + 1


@pytest.mark.long
def test_a_decoder_keeps_a_window_in_rows_of_its_own() -> None:
    source = with_window(1)
    raised, _ = kv.raise_(source, capacity=24, verify=False)
    prompt = np.array([[3, 5, 7, 9]])
    expected = kv.Decoder(source, capacity=24).generate(prompt, 16)
    for rows in (24, 7):
        np.testing.assert_array_equal(
            kv.Decoder(raised, capacity=rows).generate(prompt, 16), expected
        )


@part(2)
@pytest.mark.long
@pytest.mark.parametrize("mode", [1, 2])
def test_scores_are_handed_out(mode: int) -> None:
    source = read(GENAI)
    first = next(node for node in source.graph if node.op_type == "GroupQueryAttention")
    first.attributes["qk_output"] = ir.AttrInt64("qk_output", mode)
    first.resize_outputs(4)
    scores, dims = first.outputs[3], ("batch_size", 4, "sequence_length", "total_sequence_length")
    scores.name, scores.type = "scores", ir.TensorType(ir.DataType.FLOAT)
    scores.shape = ir.Shape([d if isinstance(d, int) else ir.SymbolicDim(d) for d in dims])
    source.graph.outputs.append(scores)
    raised, report = kv.raise_(source, capacity=16)
    assert report.verification.status == "equal"
    # Those of all rows, which a sliced attention does not compute.
    assert [a.form for a in report.attention] == ["full", "sliced"]
    lowered, proven = kv.lower(raised, opset=13)
    assert proven.verification.status == "equal"
    assert {node.domain for node in lowered.graph} == {""}


@pytest.mark.long
def test_what_cannot_be_written_keeps_its_cache() -> None:
    model = read(GENAI)
    first = next(node for node in model.graph if node.op_type == "GroupQueryAttention")
    first.attributes["sliding_window_cache"] = ir.AttrInt64("sliding_window_cache", 1)
    raised, report = kv.raise_(model, capacity=16, verify=False)
    assert [node.op_type for node in raised.graph if node.domain] == ["GroupQueryAttention"]
    assert any("`sliding_window_cache`" in refusal.message for refusal in report.refused)
    shapes = {i.name: str(i.shape) for i in raised.graph.inputs}
    assert "past_sequence_length" in shapes["past_key_values.0.key"]
    assert ",16," in shapes["past_key_values.1.key"]


@pytest.mark.long
def test_caches_of_a_fixed_size_are_read_whole_where_all_sizes_are_fixed() -> None:
    source = read(GENAI)
    for value in (*source.graph.inputs, *source.graph.outputs):
        if (value.name or "").startswith(("past", "present")) and value.shape is not None:
            value.shape = ir.Shape([*value.shape[:2], 16, value.shape[3]])
    sizes = {"batch_size": 1, "sequence_length": 1, "total_sequence_length": 16, "kv_cache_dim": 16}
    fixed, report = kv.raise_(source, static=True, dims=sizes, verify=False)
    assert [done.form for done in report.attention] == ["full"] * 2
    assert not {"Shape", "Slice"} & {node.op_type for node in fixed.graph}
    _, report = kv.raise_(source, verify=False)
    assert [done.form for done in report.attention] == ["sliced"] * 2
