"""GroupQueryAttention over a cache that holds no more than a window, step after step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.kernels.contrib.grouped import Window
from tests.grids import each, part, search
from tests.runtime.kernels.contrib.grouped import HEADS, KV_HEADS, OUTPUTS, Array, D
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

COUNTS = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
M = 40

Run = Callable[..., dict[str, Array]]


def rows(total: int, batch: int, heads: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((batch, total, heads * D)).astype(np.float32)


def steps_of(
    run: Run,
    steps: list[int],
    capacity: int,
    window: int,
    batch: int,
    behind: float = np.nan,
    **options: Any,
) -> list[dict[str, Array]]:
    """Return what each step gives, with the present of ours fed to the next."""
    total = sum(steps)
    query, key, value = (rows(total, batch, n, n) for n in (HEADS, KV_HEADS, KV_HEADS + 5))
    value = value[..., : KV_HEADS * D]
    past = {n: np.zeros((batch, KV_HEADS, capacity, D), np.float32) for n in ("key", "value")}
    angles = np.outer(np.arange(M), 1000.0 ** -np.linspace(0, 1, D // 2))
    caches = {"cos_cache": np.cos(angles), "sin_cache": np.sin(angles)}
    bias = np.random.default_rng(9).standard_normal((1, HEADS, total, total)).astype(np.float32)
    found, end = [], 0
    for length in steps:
        begin, end = end, end + length
        inputs: dict[str, Array | None] = {
            "query": query[:, begin:end],
            "key": key[:, begin:end],
            "value": value[:, begin:end],
            "past_key": past["key"],
            "past_value": past["value"],
            "seqlens_k": np.full(batch, end - 1, np.int32),
            "total_sequence_length": np.array([end], np.int32),
            **{
                n: c.astype(np.float32) if "do_rotary" in options else None
                for n, c in caches.items()
            },
            "position_ids": None,
            "attention_bias": bias[:, :, begin:end, :end] if "bias" in options else None,
        }
        attributes = {n: v for n, v in options.items() if n != "bias"}
        attributes |= COUNTS | {"sliding_window_cache": 1, "local_window_size": window}
        outputs = run("GroupQueryAttention", inputs, OUTPUTS[:3], **attributes)
        found.append(outputs)
        # What stands behind the rows that are kept is nobody's business.
        kept = Window(capacity, window).resident(end)
        past = {n: outputs[f"present_{n}"].copy() for n in past}
        for buffer in past.values():
            buffer[:, :, kept:] = behind
    return found


STEPS = [
    pytest.param([3, 1, 1, 1, 1, 1, 1, 1], 6, 4, 1, id="a prompt and steps"),
    pytest.param([9, 1, 1, 4], 6, 4, 1, id="more rows at once than the buffer has"),
    pytest.param([2, 1, 1, 1, 1, 1], 4, 4, 2, id="a buffer without slack"),
    pytest.param([1] * 14, 8, 3, 2, id="steps that empty much at once"),
    pytest.param([7, 3, 1, 5], 7, 1, 1, id="a window of one key"),
]


@part(3)
@needs_onnxruntime
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"do_rotary": 1}, id="rotated"),
        pytest.param({"bias": True, "softcap": 1.5}, id="a bias and a softcap"),
        pytest.param({"smooth_softmax": 1}, id="a smooth softmax"),
    ],
)
@pytest.mark.parametrize(("steps", "capacity", "window", "batch"), STEPS)
def test_against_onnxruntime(
    steps: list[int], capacity: int, window: int, batch: int, options: dict[str, Any]
) -> None:
    found, expected = (
        steps_of(run, steps, capacity, window, batch, **options) for run in (ours, theirs)
    )
    end = 0
    for length, one, other in zip(steps, found, expected, strict=True):
        end += length
        kept = Window(capacity, window).resident(end)
        np.testing.assert_allclose(one["output"], other["output"], rtol=3e-6, atol=3e-6)
        for name in OUTPUTS[1:3]:
            assert one[name].shape == other[name].shape
            np.testing.assert_allclose(
                one[name][:, :, :kept], other[name][:, :, :kept], rtol=3e-6, atol=3e-6
            )
            assert not one[name][:, :, kept:].any()


@search(40)
@given(
    steps=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    window=st.integers(1, 5),
    slack=st.integers(0, 4),
)
def test_a_window_cache_gives_what_a_whole_one_does(
    steps: list[int], window: int, slack: int
) -> None:
    found = steps_of(ours, steps, window + slack, window, 1, do_rotary=1, bias=True)
    # The same rows at once, in a buffer that has room for all.
    (whole,) = steps_of(ours, [sum(steps)], sum(steps) + window, window, 1, do_rotary=1, bias=True)
    output = np.concatenate([step["output"] for step in found], axis=1)
    np.testing.assert_allclose(output, whole["output"], rtol=1e-5, atol=1e-5)
    kept = Window(window + slack, window).resident(sum(steps))
    for name in OUTPUTS[1:3]:
        expected = whole[name][:, :, sum(steps) - kept : sum(steps)]
        np.testing.assert_allclose(found[-1][name][:, :, :kept], expected, rtol=1e-6, atol=1e-6)


@each(("positions", "kept"), [(0, 0), (1, 1), (6, 6), (7, 4), (8, 5), (9, 6), (10, 4)])
def test_positions_leave_at_once(positions: int, kept: int) -> None:
    """A buffer of six rows for a window of four: three leave when there is no room."""
    assert Window(6, 4).resident(positions) == kept
