"""GroupQueryAttention against onnxruntime, and against one query and one key at a time."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.grids import each, part
from tests.runtime.kernels.contrib.grouped import (
    HEADS,
    KV_HEADS,
    OUTPUTS,
    Array,
    Call,
    D,
    M,
    naive,
)
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

COUNTS = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}

CALLS = [
    pytest.param(Call(5, None, (5, 5), 5), id="a prompt"),
    pytest.param(Call(5, None, (5, 3), 5), id="a prompt that is shorter in one row"),
    pytest.param(Call(5, 0, (5, 2), 5), id="a prompt with an empty past"),
    pytest.param(Call(3, 7, (3, 2), 3), id="a prompt into a buffer"),
    pytest.param(Call(1, 7, (4, 6), 6), id="a step in a buffer"),
    pytest.param(Call(1, 7, (7, 1), 7), id="a step that fills a buffer, and a first one"),
    pytest.param(Call(1, 7, (8, 5), 8), id="a step that makes the cache grow"),
    pytest.param(Call(3, 7, (6,), 6), id="several rows in a buffer"),
    pytest.param(Call(3, 7, (10,), 10), id="several rows that make the cache grow"),
]

OPTIONS = [
    pytest.param({}, id="plain"),
    pytest.param({"scale": 0.3}, id="a scale"),
    pytest.param({"scale": 0.0}, id="a scale of 0"),
    pytest.param({"softcap": 1.5}, id="a softcap"),
    pytest.param({"local_window_size": 1}, id="a window of one key"),
    pytest.param({"local_window_size": 3}, id="a window"),
    pytest.param({"local_window_size": 2, "softcap": 1.5}, id="a window and a softcap"),
    pytest.param({"causal": 0}, id="all keys"),
    pytest.param({"smooth_softmax": 1}, id="a smooth softmax"),
    pytest.param({"smooth_softmax": 0}, id="no smooth softmax"),
    pytest.param({"attention_bias": 2}, id="a bias"),
    pytest.param({"attention_bias": 1, "softcap": 1.5}, id="a bias for all heads, and a softcap"),
    pytest.param({"head_sink": True}, id="sinks"),
    pytest.param({"head_sink": True, "smooth_softmax": 1, "local_window_size": 2}, id="all sinks"),
]


def with_extra(call: Call, inputs: dict[str, Array | None], options: dict[str, Any]) -> Any:
    """Return inputs and attributes of options, some of which are inputs."""
    rng = np.random.default_rng(11)
    attributes = dict(options)
    query = inputs["query"]
    assert query is not None
    if many := attributes.pop("attention_bias", 0):
        sizes = (len(call.valid), HEADS) if many == 2 else (1, 1)
        bias = rng.standard_normal((*sizes, call.length, call.total))
        inputs = inputs | {"attention_bias": bias.astype(query.dtype)}
    if attributes.pop("head_sink", False):
        inputs = inputs | {"head_sink": rng.standard_normal(HEADS).astype(query.dtype)}
    return inputs, attributes


def demand_same(
    call: Call, found: dict[str, Array], expected: dict[str, Array], window: bool = False
) -> None:
    """Compare the output and the caches.

    The queries of padding are left out where there is a window: onnxruntime counts it from their
    own place or from the last key, by what else is asked for.
    """
    limit = {"float32": 2e-6, "float16": 4e-3}[expected["output"].dtype.name]
    for name in OUTPUTS[:3]:
        assert found[name].dtype == expected[name].dtype
        assert found[name].shape == expected[name].shape
        for row, valid in enumerate(call.valid):
            one, other = found[name][row], expected[name][row]
            if name == "output" and window:
                one, other = one[:valid], other[:valid]
            np.testing.assert_allclose(one, other, rtol=limit, atol=limit, err_msg=name)


@part(6)
@needs_onnxruntime
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("call", CALLS)
def test_against_onnxruntime(call: Call, options: dict[str, Any]) -> None:
    inputs, attributes = with_extra(call, call.inputs(), options)
    arguments = ("GroupQueryAttention", inputs, OUTPUTS[:3])
    found, expected = (run(*arguments, **COUNTS, **attributes) for run in (ours, theirs))
    demand_same(call, found, expected, window="local_window_size" in attributes)


@part(6)
@needs_onnxruntime
@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize(
    ("positions", "interleaved"),
    [
        pytest.param(None, 0, id="halves, by rows"),
        pytest.param(None, 1, id="neighbours, by rows"),
        pytest.param("shifted", 0, id="halves, by positions"),
        pytest.param("any", 1, id="neighbours, by positions in no order"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("call", CALLS)
def test_rotation_against_onnxruntime(
    call: Call, dtype: Any, positions: str | None, interleaved: int, packed: bool
) -> None:
    rng = np.random.default_rng(3)
    angles = np.outer(np.arange(M), 1000.0 ** -np.linspace(0, 1, D // 2))
    inputs = call.inputs(dtype, packed) | {
        "cos_cache": np.cos(angles).astype(dtype),
        "sin_cache": np.sin(angles).astype(dtype),
    }
    if positions is not None:
        shape = (len(call.valid), call.length)
        some = rng.integers(0, M - call.length, shape)
        rows = np.array(call.starts)[:, None] + np.arange(call.length) + 2
        inputs["position_ids"] = some if positions == "any" else rows
    attributes = {**COUNTS, "do_rotary": 1, "rotary_interleaved": interleaved}
    arguments = ("GroupQueryAttention", inputs, OUTPUTS[:3])
    found, expected = (run(*arguments, **attributes) for run in (ours, theirs))
    demand_same(call, found, expected)


@part(6)
@needs_onnxruntime
@pytest.mark.parametrize("mode", [1, 2], ids=["before the softmax", "after it"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("call", CALLS)
def test_scores_against_onnxruntime(call: Call, options: dict[str, Any], mode: int) -> None:
    inputs, attributes = with_extra(call, call.inputs(), options)
    arguments = ("GroupQueryAttention", inputs, OUTPUTS)
    found, expected = (
        run(*arguments, **COUNTS, **attributes, qk_output=mode)["output_qk"]
        for run in (ours, theirs)
    )
    assert found.shape == expected.shape
    for row, valid in enumerate(call.valid):
        # Behind the valid keys onnxruntime initializes nothing; for queries of padding see above.
        queries = slice(valid if "local_window_size" in attributes else None)
        np.testing.assert_allclose(
            found[row, :, queries, :valid],
            expected[row, :, queries, :valid],
            rtol=2e-6,
            atol=2e-6,
        )
        assert not found[row, ..., valid:].any()


@part(6)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float32, 2e-6), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)],
)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("call", CALLS)
def test_against_one_query_and_one_key_at_a_time(
    call: Call, options: dict[str, Any], dtype: Any, tolerance: float
) -> None:
    inputs, attributes = with_extra(call, call.inputs(dtype), options)
    found = ours("GroupQueryAttention", inputs, OUTPUTS, **COUNTS, **attributes, qk_output=2)
    expected, weights = naive(call, inputs, **attributes)
    assert found["output"].dtype == found["output_qk"].dtype == dtype
    for name, value in (("output", expected), ("output_qk", weights)):
        np.testing.assert_allclose(
            found[name].astype(np.float64), value, rtol=tolerance, atol=tolerance, err_msg=name
        )


@each("call", CALLS)
def test_the_cache_holds_the_past_the_new_rows_and_zeros(call: Call) -> None:
    inputs = call.inputs()
    found = ours("GroupQueryAttention", inputs, OUTPUTS[:3], **COUNTS)
    for name in ("key", "value"):
        past, new, present = inputs[f"past_{name}"], inputs[name], found[f"present_{name}"]
        assert new is not None
        rows = new.reshape(*new.shape[:2], KV_HEADS, D).transpose(0, 2, 1, 3)
        assert present.shape[2] == max(call.total, call.past or 0)
        for b, start in enumerate(call.starts):
            end = start + call.length
            assert past is None or np.array_equal(present[b, :, :start], past[b, :, :start])
            assert np.array_equal(present[b, :, start:end], rows[b])
            assert not present[b, :, end:].any()


def test_what_a_query_does_not_see_does_not_reach_it() -> None:
    call = Call(1, 7, (4, 6), 6)
    inputs = call.inputs()
    plain = ours("GroupQueryAttention", inputs, OUTPUTS[:3], **COUNTS)
    for name in ("past_key", "past_value"):
        past = inputs[name]
        assert past is not None
        poisoned = past.copy()
        for b, valid in enumerate(call.valid):
            poisoned[b, :, valid - 1 :] = np.nan
        inputs[name] = poisoned
    found = ours("GroupQueryAttention", inputs, OUTPUTS[:3], **COUNTS)
    for name in OUTPUTS[:3]:
        assert np.array_equal(found[name], plain[name])


def test_a_hidden_key_that_is_nan_and_a_value_that_is_nan() -> None:
    inputs = Call(5, None, (5,), 5).inputs()
    for name, reached in (("key", [4]), ("value", [0, 1, 2, 3, 4])):
        given = inputs[name]
        assert given is not None
        poisoned = given.copy()
        poisoned[:, 4] = np.nan
        found = ours("GroupQueryAttention", inputs | {name: poisoned}, OUTPUTS[:3], **COUNTS)
        assert np.flatnonzero(np.isnan(found["output"]).any(axis=(0, 2))).tolist() == reached


def test_a_query_whose_keys_are_all_hidden_by_the_bias_gives_zero() -> None:
    inputs = Call(5, None, (5, 5), 5).inputs()
    bias = np.zeros((1, 1, 5, 5), np.float32)
    bias[..., 2, :] = -np.inf
    found = ours("GroupQueryAttention", inputs | {"attention_bias": bias}, OUTPUTS[:3], **COUNTS)
    assert np.flatnonzero(~found["output"].any(axis=(0, 2))).tolist() == [2]
    assert np.isfinite(found["output"]).all()


@needs_onnxruntime
def test_half_of_each_head_is_rotated() -> None:
    wide = Call(3, 7, (6,), 6)
    rng = np.random.default_rng(3)
    angles = rng.standard_normal((M, 8)).astype(np.float32)
    inputs: dict[str, Array | None] = {
        "query": rng.standard_normal((1, 3, HEADS * 32)).astype(np.float32),
        "key": rng.standard_normal((1, 3, KV_HEADS * 32)).astype(np.float32),
        "value": rng.standard_normal((1, 3, KV_HEADS * 32)).astype(np.float32),
        "past_key": rng.standard_normal((1, KV_HEADS, 7, 32)).astype(np.float32),
        "past_value": rng.standard_normal((1, KV_HEADS, 7, 32)).astype(np.float32),
        "seqlens_k": np.array([5], np.int32),
        "total_sequence_length": np.array(6, np.int32),
        "cos_cache": np.cos(angles),
        "sin_cache": np.sin(angles),
    }
    arguments = ("GroupQueryAttention", inputs, OUTPUTS[:3])
    found, expected = (run(*arguments, **COUNTS, do_rotary=1) for run in (ours, theirs))
    demand_same(wide, found, expected)
