"""GroupQueryAttention as TensorScatter and Attention, beside onnxruntime's own kernel."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.runtime import onnxruntime, reference
from onnx_kvtool.runtime.kernels.contrib.grouped import Window
from tests.grids import search, thinned
from tests.rewrite.contrib.single import TOLERANCE, Array, refusal
from tests.runtime.kernels.contrib.grouped import HEADS, KV_HEADS, Call, D, M
from tests.runtime.kernels.contrib.node import needs_onnxruntime, node_model, ours, theirs
from tests.runtime.kernels.contrib.test_group_query_window import STEPS, steps_of

pytestmark = needs_onnxruntime

OUTPUTS = ("output", "present_key", "present_value")
CALLS = {
    "a prompt": Call(5, None, (5, 5), 5),
    "a prompt that is shorter in one row": Call(5, None, (5, 3), 5),
    "a prompt with an empty past": Call(5, 0, (5, 2), 5),
    "a prompt into a buffer": Call(3, 7, (3, 2), 3),
    "a step in a buffer": Call(1, 7, (4, 6), 6),
    "a step that fills a buffer, and a first one": Call(1, 7, (7, 1), 7),
    "a step that makes the cache grow": Call(1, 7, (8, 5), 8),
    "several rows in a buffer": Call(3, 7, (6,), 6),
    "several rows that make the cache grow": Call(3, 7, (10,), 10),
}


def model_of(
    inputs: dict[str, Array | None], attributes: dict[str, Any], is_fixed: bool, at: int
) -> onnx.ModelProto:
    """Return a model of which batch, rows and lengths are symbolic, as a host's are."""
    outputs = (*OUTPUTS, *(["output_qk"] if "qk_output" in attributes else []))
    proto = node_model("GroupQueryAttention", inputs, outputs, "com.microsoft", attributes)
    proto.opset_import[0].version = max(at, 16)
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in ("past_key", "past_value"):
            dims[0].dim_param, dims[2].dim_param = "batch", "past"
        elif value.name in ("query", "key", "value", "position_ids"):
            dims[0].dim_param, dims[1].dim_param = "batch", "length"
        elif value.name == "seqlens_k":
            dims[0].dim_param = "batch"
        elif value.name == "attention_bias":
            del value.type.tensor_type.shape.dim[:]
            value.type.tensor_type.shape.dim.extend(
                helper.make_tensor_type_proto(1, [None, None, "length", "total"])
                .tensor_type.shape.dim
            )  # fmt: skip
    rows = "past" if is_fixed else "present"
    size = int(inputs["past_key"].shape[3]) if inputs["past_key"] is not None else D
    past = inputs["past_key"] if inputs["past_key"] is not None else inputs["query"]
    assert past is not None
    kind = helper.np_dtype_to_tensor_dtype(past.dtype)
    for value in proto.graph.output[1:3]:
        value.CopyFrom(
            helper.make_tensor_value_info(value.name, kind, ["batch", KV_HEADS, rows, size])
        )
    return proto


def run_form(proto: onnx.ModelProto, inputs: dict[str, Array | None], at: int) -> dict[str, Array]:
    """Run the standard form of a node."""
    model = ir.from_proto(proto)
    outcome = legalise(model, at, Options(), contrib="standard")
    assert not outcome.refused, outcome.refused[0]
    assert not [n for n in model.graph.all_nodes() if n.domain != ""]
    feeds = {
        n: v
        for n, v in inputs.items()
        if v is not None and n in {i.name for i in model.graph.inputs}
    }
    data = serialize(model)
    try:
        return onnxruntime.Session(data, "").run(feeds)
    except KvtoolError:
        return reference.Session(data, "").run(feeds)


def demand_same(
    call: Call,
    inputs: dict[str, Array | None],
    attributes: dict[str, Any],
    at: int,
    is_ours: bool = False,
) -> None:
    """Compare live rows of the output, and the valid rows of the caches bit for bit."""
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS} | attributes
    run = ours if is_ours else theirs
    outputs = (*OUTPUTS, *(["output_qk"] if "qk_output" in attributes else []))
    expected = run("GroupQueryAttention", inputs, outputs, **attributes)
    is_fixed = call.past is not None and call.total <= call.past
    found = run_form(model_of(inputs, attributes, is_fixed, at), inputs, at)
    kind = np.dtype(expected["output"].dtype).name
    bound = TOLERANCE[kind]
    is_rotated = attributes.get("do_rotary") == 1
    for name in outputs:
        assert (found[name].dtype, found[name].shape) == (
            expected[name].dtype,
            expected[name].shape,
        )
    for b, valid in enumerate(call.valid):
        live = valid if call.length == call.total else call.length
        for name in outputs:
            heads = () if name == "output" else (slice(None),)
            rows = (b, *heads, slice(valid if name in OUTPUTS[1:] else live))
            got, want = (x[name][rows].astype(np.float64) for x in (found, expected))
            if name in ("output", "output_qk") or (is_rotated and name == "present_key"):
                np.testing.assert_allclose(got, want, bound, bound, err_msg=name)
            else:
                np.testing.assert_array_equal(got, want, err_msg=name)


@search(90)
@given(
    call=st.sampled_from(list(CALLS)),
    at=st.sampled_from([24, 21, 18, 13]),
    dtype=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    packed=st.booleans(),
    rotary=st.sampled_from([None, "whole", "part", "interleaved"]),
    places=st.booleans(),
    scale=st.sampled_from([None, 0.0, 0.3]),
    softcap=st.sampled_from([None, 1.5]),
    window=st.sampled_from([-1, 1, 3]),
    causal=st.sampled_from([1, 1, 0]),
    bias=st.sampled_from([0, 1, 2]),
    sink=st.sampled_from([None, None, "smooth", "heads"]),
    shown=st.sampled_from([0, 0, 1, 2]),
)
def test_group_query_attention(
    call: str,
    at: int,
    dtype: Any,
    packed: bool,
    rotary: str | None,
    places: bool,
    scale: float | None,
    softcap: float | None,
    window: int,
    causal: int,
    bias: int,
    sink: str | None,
    shown: int,
) -> None:
    given_ = CALLS[call]
    inputs = given_.inputs(dtype, packed)
    attributes: dict[str, Any] = {"causal": causal}
    rng = np.random.default_rng(7)
    if causal:
        attributes["local_window_size"] = window
    numbers = {"scale": scale, "softcap": softcap}
    attributes |= {name: value for name, value in numbers.items() if value is not None}
    if rotary:
        half = 4 if rotary == "part" else D // 2
        angles = rng.standard_normal((M, half))
        inputs |= {
            "cos_cache": np.cos(angles).astype(dtype),
            "sin_cache": np.sin(angles).astype(dtype),
        }
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(rotary == "interleaved")}
        if places:
            rows = np.array(given_.starts)[:, None] + np.arange(given_.length)
            if given_.length == given_.total:
                rows = np.full_like(rows, 9)
                rows[0, 0] = 2
            inputs["position_ids"] = rows.astype(np.int64)
    if bias:
        sizes = (len(given_.valid), HEADS) if bias == 2 else (1, 1)
        added = rng.standard_normal((*sizes, given_.length, given_.total))
        inputs["attention_bias"] = added.astype(dtype)
    if sink == "heads":
        inputs["head_sink"] = (rng.standard_normal(HEADS) * 2).astype(dtype)
    elif sink:
        attributes["smooth_softmax"] = 1
    if shown:
        attributes["qk_output"] = shown
    # onnxruntime has no kernel for the one, and wants a multiple of 8 for the other.
    is_ours = dtype == ml_dtypes.bfloat16 or rotary == "part"
    demand_same(given_, inputs, attributes, at, is_ours=is_ours)


@search(60)
@given(
    call=st.sampled_from([name for name, call in CALLS.items() if call.past is not None]),
    at=st.sampled_from([24, 21, 18, 13]),
    dtype=st.sampled_from([np.float32, np.float16]),
    how=st.sampled_from(["PER_TENSOR", "PER_CHANNEL"]),
    window=st.sampled_from([-1, 3]),
    sink=st.booleans(),
)
def test_a_cache_of_codes(
    call: str, at: int, dtype: Any, how: str, window: int, sink: bool
) -> None:
    given_, rng = CALLS[call], np.random.default_rng(5)
    inputs = given_.inputs(dtype)
    shape = (1,) if how == "PER_TENSOR" else (KV_HEADS, 1, D)
    for name in ("key", "value"):
        past = inputs[f"past_{name}"]
        assert past is not None
        codes = np.asarray(rng.integers(-128, 128, past.shape), np.int8)
        inputs[f"past_{name}"] = codes
        inputs[f"{name[0]}_scale"] = (0.01 + rng.random(shape) / 40).astype(np.float32)
    if sink:
        inputs["head_sink"] = rng.standard_normal(HEADS).astype(dtype)
    attributes: dict[str, Any] = {"k_quant_type": how, "v_quant_type": how}
    attributes |= {"local_window_size": window, "kv_cache_bit_width": 8}
    demand_same(given_, inputs, attributes, at)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "rotated": {"do_rotary": 1}, "beside a sink": {"smooth_softmax": 1}
}  # fmt: skip
DROPPED = [
    pytest.param(step.values, (24, 21, 18, 13)[number % 4], options, id=f"{step.id}, {name}")
    for number, (step, (name, options)) in enumerate(itertools.product(STEPS, OPTIONS.items()))
]
"""Each way to step with each option, at one opset after the other."""


@pytest.mark.long
@pytest.mark.parametrize(("steps", "at", "options"), thinned(DROPPED, 4))
def test_a_cache_that_drops_rows(
    steps: tuple[list[int], int, int, int], at: int, options: dict[str, Any]
) -> None:
    """Step after step, as a host does, who may leave numbers behind the rows that are kept."""

    def form(_: str, inputs: dict[str, Array | None], *__: Any, **given: Any) -> dict[str, Array]:
        return run_form(model_of(inputs, given, True, at), inputs, at)

    lengths, capacity, window, batch = steps
    ends = itertools.accumulate(lengths)
    size = (capacity, window, batch)
    one, other = (steps_of(run, lengths, *size, 9.0, **options) for run in (form, ours))
    for end, found, expected in zip(ends, one, other, strict=True):
        np.testing.assert_allclose(found["output"], expected["output"], 2e-5, 2e-5)
        kept = Window(capacity, window).resident(end)
        for name in OUTPUTS[1:]:
            assert found[name].shape == expected[name].shape
            got, want = (x[name][:, :, :kept] for x in (found, expected))
            np.testing.assert_allclose(got, want, 2e-5, 2e-5)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "codes of 4 bits": (
        {"k_scale": np.ones(1, np.float32), "v_scale": np.ones(1, np.float32)},
        {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 4},
        "`kv_cache_bit_width`",
    ),
    "codes without a scale": ({}, {"k_quant_type": "PER_TENSOR"}, "`k_scale`"),
    "heads that are normalized": (
        {"q_norm_weight": np.ones(D, np.float32), "k_norm_weight": np.ones(D, np.float32)},
        {},
        "`q_norm_weight`",
    ),
    "a cache that drops rows, without a window": (
        {},
        {"sliding_window_cache": 1},
        "expected a `local_window_size` of 1 or more, here -1",
    ),
    "a cache that drops rows, of fewer than its window": (
        {},
        {"sliding_window_cache": 1, "local_window_size": 8},
        "here 8, a `past_key` of at least as many rows, here 7",
    ),
    "a cache that drops rows, beside a bias": (
        {"attention_bias": np.zeros((1, 1, 1, 6), np.float32)},
        {"sliding_window_cache": 1, "local_window_size": 3},
        "`attention_bias` of `GroupQueryAttention`",
    ),
    "lengths of queries": ({"query_seqlens": np.array([1, 1], np.int32)}, {}, "`query_seqlens`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    more, attributes, word = REFUSED[name]
    facts = contrib_facts("com.microsoft", "GroupQueryAttention")
    assert facts is not None
    ordered = [formal.name for formal in facts.inputs]
    inputs = CALLS["a step in a buffer"].inputs() | more
    found = {key: inputs.get(key) for key in ordered}
    counts = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    said = refusal("GroupQueryAttention", found, OUTPUTS, **counts, **attributes)
    assert word in said
