"""What GroupQueryAttention refuses: what contradicts itself, and what is not implemented."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.core.errors import KvtoolError
from tests.grids import each
from tests.runtime.kernels.contrib.grouped import HEADS, KV_HEADS, OUTPUTS, Call, D, M
from tests.runtime.kernels.contrib.node import ours

COUNTS = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
PROMPT, STEP, ROWS = Call(5, None, (5, 3), 5), Call(1, 7, (4, 6), 6), Call(3, 7, (6,), 6)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def lengths(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


ROTARY = {"cos_cache": zeros(M, D // 2), "sin_cache": zeros(M, D // 2)}

CASES = [
    pytest.param(PROMPT, {"num_heads": 3}, "`num_heads` is 3 and `kv_num_heads` is 2", id="heads"),
    pytest.param(PROMPT, {"query": zeros(2, 5, 66)}, "66, expected a multiple of 4", id="a width"),
    pytest.param(PROMPT, {"query": zeros(2, 64)}, "expected three dimensions", id="two dimensions"),
    pytest.param(PROMPT, {"query": zeros(2, 0, 64)}, "expected one row or more", id="no rows"),
    pytest.param(PROMPT, {"value": None}, "`key` is given alone", id="keys without values"),
    pytest.param(PROMPT, {"key": zeros(2, 4, 32)}, "`key` has shape", id="fewer keys than queries"),
    pytest.param(PROMPT, {"value": zeros(2, 5, 16)}, "`value` has shape", id="narrow values"),
    pytest.param(STEP, {"past_value": None}, "`past_key` is given alone", id="one past"),
    pytest.param(
        STEP,
        {"past_key": zeros(2, 7, KV_HEADS, D)},
        r"`past_key` has shape \(2, 7, 2, 16\), expected \(2, 2, 2, 16\)",
        id="a past with its rows before its heads",
    ),
    pytest.param(
        STEP,
        {"past_value": zeros(2, KV_HEADS, 5, D)},
        r"`past_value` has shape \(2, 2, 5, 16\), expected \(2, 2, 7, 16\)",
        id="pasts of two lengths",
    ),
    pytest.param(
        STEP,
        {name: zeros(2, KV_HEADS, 7, D, dtype=np.int8) for name in ("past_key", "past_value")},
        "`past_key` is of dtype int8, expected float32 as the keys: quantized caches",
        id="a quantized cache",
    ),
    pytest.param(
        STEP,
        {"total_sequence_length": lengths(9)},
        "`total_sequence_length` is 9, expected 1 to 7, or 8: there are 7 past rows and 1 new",
        id="a total beyond the buffer",
    ),
    pytest.param(
        PROMPT,
        {"total_sequence_length": lengths(4)},
        "`total_sequence_length` is 4, expected",
        id="a total below the new rows",
    ),
    pytest.param(
        STEP,
        {"total_sequence_length": lengths(6, 6)},
        r"`total_sequence_length` has shape \(2,\), expected one element",
        id="two totals",
    ),
    pytest.param(
        STEP, {"seqlens_k": lengths(3)}, "`seqlens_k` has shape .* expected 2", id="one length"
    ),
    pytest.param(
        STEP,
        {"seqlens_k": lengths(3, 6)},
        r"`seqlens_k`\[1\] is 6, expected 0 to 5",
        id="a length beyond the total",
    ),
    pytest.param(
        PROMPT,
        {"seqlens_k": lengths(-1, 4)},
        r"`seqlens_k`\[0\] is -1, expected 0 to 4",
        id="a negative length",
    ),
    pytest.param(
        ROWS,
        {"seqlens_k": lengths(1)},
        r"`seqlens_k`\[0\] is 1, expected 2 to 5",
        id="a length below the new rows",
    ),
    pytest.param(
        Call(3, 7, (6, 6), 6),
        {},
        "`query` has 2 batch rows and 3 rows behind a past, expected one of one",
        id="several rows behind a past in a batch of two",
    ),
    pytest.param(
        STEP,
        {"attention_bias": zeros(1, 1, 1, 7)},
        r"`attention_bias` has shape \(1, 1, 1, 7\), expected \(2, 4, 1, 6\)",
        id="a bias as long as the buffer",
    ),
    pytest.param(
        PROMPT, {"attention_bias": zeros(5, 5)}, "`attention_bias` has shape", id="a flat bias"
    ),
    pytest.param(PROMPT, {"head_sink": zeros(2)}, "`head_sink` has shape", id="too few sinks"),
    pytest.param(PROMPT, {"do_rotary": 1}, "`do_rotary` is 1, but", id="no angles"),
    pytest.param(
        STEP,
        {"do_rotary": 1, "cos_cache": zeros(5, 8), "sin_cache": zeros(5, 8)},
        "`cos_cache` has 5 rows, expected at least 6",
        id="too few angles",
    ),
    pytest.param(
        STEP,
        {"do_rotary": 1, **ROTARY, "position_ids": np.array([[4], [M]])},
        rf"`position_ids`\[1, 0\] is {M}, expected 0 to {M - 1}",
        id="a position beyond the angles",
    ),
    pytest.param(
        STEP,
        {"do_rotary": 1, **ROTARY, "position_ids": np.array([[4, 5]])},
        "`position_ids` has shape",
        id="positions of another shape",
    ),
    pytest.param(
        PROMPT, {"local_window_size": 0}, "`local_window_size` is 0, expected -1, or 1", id="0 keys"
    ),
    pytest.param(
        PROMPT,
        {"local_window_size": 3, "causal": 0},
        "`local_window_size` is 3, expected -1 as `causal` is 0",
        id="a window among all keys",
    ),
    pytest.param(PROMPT, {"causal": 2}, "`causal` is `2`", id="another causality"),
    pytest.param(PROMPT, {"qk_output": 3}, "`qk_output` is `3`", id="another stage"),
    pytest.param(
        STEP, {"sliding_window_cache": 2}, "`sliding_window_cache` is `2`", id="another cache"
    ),
    pytest.param(
        STEP,
        {"sliding_window_cache": 1},
        "`sliding_window_cache` is 1, but there is no `local_window_size`",
        id="a window cache without a window",
    ),
    pytest.param(
        PROMPT,
        {"sliding_window_cache": 1, "local_window_size": 3},
        "`sliding_window_cache` is 1, but there are no past buffers",
        id="a window cache without buffers",
    ),
    pytest.param(
        STEP,
        {"sliding_window_cache": 1, "local_window_size": 8},
        "`past_key` has 7 rows, expected at least 8, the `local_window_size`",
        id="a window cache below its window",
    ),
    pytest.param(
        STEP,
        {"sliding_window_cache": 1, "local_window_size": 3, "qk_output": 1},
        "`qk_output` is 1, expected 0 as `sliding_window_cache` is 1",
        id="scores of a window cache",
    ),
    pytest.param(
        Call(3, 7, (3,), 2),
        {"sliding_window_cache": 1, "local_window_size": 3},
        "`total_sequence_length` is 2, expected 3 or more",
        id="a total below the new rows of a window cache",
    ),
    pytest.param(
        Call(5, 7, (5, 3), 5),
        {"sliding_window_cache": 1, "local_window_size": 3},
        r"`seqlens_k`\[1\] is 2, expected 4 to 4",
        id="a short prompt into a window cache",
    ),
    pytest.param(PROMPT, {"k_quant_type": "PER_TENSOR"}, "`k_quant_type`", id="quantized keys"),
    pytest.param(PROMPT, {"v_quant_type": "PER_CHANNEL"}, "`v_quant_type`", id="quantized values"),
    pytest.param(PROMPT, {"kv_cache_bit_width": 4}, "`kv_cache_bit_width` is `4`", id="four bits"),
    pytest.param(PROMPT, {"k_scale": zeros(1)}, "`k_scale` is given", id="a scale of keys"),
    pytest.param(PROMPT, {"v_scale": zeros(1)}, "`v_scale` is given", id="a scale of values"),
    pytest.param(PROMPT, {"q_norm_weight": zeros(D)}, "`q_norm_weight` is given", id="a norm"),
    pytest.param(PROMPT, {"k_norm_weight": zeros(D)}, "`k_norm_weight` is given", id="a key norm"),
    pytest.param(
        PROMPT, {"query_seqlens": lengths(5, 3)}, "`query_seqlens` is given", id="padded chunks"
    ),
]

NAMES = (
    *Call(1, None, (1,), 1).inputs(),
    *("k_scale", "v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens"),
)


@pytest.mark.long
@each(("call", "changes", "message"), CASES)
def test_refusals(call: Call, changes: dict[str, Any], message: str) -> None:
    inputs = {name: changes.get(name, call.inputs().get(name)) for name in NAMES}
    attributes = COUNTS | {n: v for n, v in changes.items() if n not in NAMES}
    with pytest.raises(KvtoolError, match=message):
        ours("GroupQueryAttention", inputs, OUTPUTS[:3], **attributes)


def test_scores_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(KvtoolError, match="has an output `output_qk`, but `qk_output` is 0"):
        ours("GroupQueryAttention", PROMPT.inputs(), OUTPUTS, **COUNTS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seqlens_k", "`seqlens_k` is absent, and `GroupQueryAttention` needs it"),
        ("query", "`query` is absent"),
    ],
)
def test_an_input_that_is_needed(name: str, message: str) -> None:
    with pytest.raises(KvtoolError, match=message):
        ours("GroupQueryAttention", PROMPT.inputs() | {name: None}, OUTPUTS[:3], **COUNTS)


def test_heads_that_are_not_given() -> None:
    with pytest.raises(KvtoolError, match="the attribute `num_heads` is required and missing"):
        ours("GroupQueryAttention", PROMPT.inputs(), OUTPUTS[:3], kv_num_heads=KV_HEADS)
