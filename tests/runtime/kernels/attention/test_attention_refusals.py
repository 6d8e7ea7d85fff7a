"""What Attention refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.attention import attention_23
from onnx_kvtool.runtime.kernels.kernel import Context
from tests.grids import each
from tests.runtime.kernels.attention.test_attention_results import PLAIN

_B, _H, _KV, _L, _S, _D, _E, _P = 2, 6, 3, 4, 5, 8, 7, 9


def _zeros(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(dims, dtype)


def _feeds(**changes: Any) -> dict[str, Any]:
    feeds = {
        "Q": _zeros(_B, _H, _L, _D),
        "K": _zeros(_B, _KV, _S, _D),
        "V": _zeros(_B, _KV, _S, _E),
    }
    return {**feeds, **changes}


_FLAT = {"Q": _zeros(_B, _L, 48), "K": _zeros(_B, _S, 24), "V": _zeros(_B, _S, 21)}

_REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ranks differ": (
        {"K": _zeros(_B, _S, 24)},
        {},
        (
            "`Q`, `K` and `V` have shapes (2, 6, 4, 8), (2, 5, 24) and (2, 3, 5, 7), expected "
            "three dimensions each, or four each"
        ),
    ),
    "three dimensions need head counts": (
        _FLAT,
        {"kv_num_heads": 3},
        "`q_num_heads` is missing, which three dimensions need",
    ),
    "heads divide the last dimension": (
        _FLAT,
        {"q_num_heads": 5, "kv_num_heads": 3},
        (
            "`q_num_heads` is 5, expected a divisor of 48, the last dimension of `Q` with shape "
            "(2, 4, 48)"
        ),
    ),
    "no heads": (
        _FLAT,
        {"q_num_heads": 6, "kv_num_heads": 0},
        (
            "`kv_num_heads` is 0, expected a divisor of 24, the last dimension of `K` with shape "
            "(2, 5, 24)"
        ),
    ),
    "head counts contradict four dimensions": (
        {},
        {"kv_num_heads": 6},
        "`kv_num_heads` is 6, but dimension 1 of four has 3 heads",
    ),
    "heads are shared evenly": (
        {"K": _zeros(_B, 4, _S, _D), "V": _zeros(_B, 4, _S, _E)},
        {},
        "6 heads of `Q` cannot share 4 heads of `K` evenly",
    ),
    "head sizes agree": (
        {"K": _zeros(_B, _KV, _S, _E)},
        {},
        "`K` has shape (2, 3, 5, 7), expected (2, 3, 5, 8): batch and head size of `Q`",
    ),
    "keys and values are as many": (
        {"V": _zeros(_B, _KV, _L, _E)},
        {},
        "`V` has shape (2, 3, 4, 7), expected (2, 3, 5, 7): batch, heads and length of `K`",
    ),
    "the past comes in two": (
        {"past_key": _zeros(_B, _KV, _P, _D)},
        {},
        "`past_key` is given without `past_value`",
    ),
    "the past has the head size of the keys": (
        {"past_key": _zeros(_B, _KV, _P, _E), "past_value": _zeros(_B, _KV, _P, _E)},
        {},
        (
            "`past_key` has shape (2, 3, 9, 7), expected (2, 3, 9, 8): (batch, kv_num_heads, any, "
            "size) of `K`"
        ),
    ),
    "the past is as long for both": (
        {"past_key": _zeros(_B, _KV, _P, _D), "past_value": _zeros(_B, _KV, 3, _E)},
        {},
        "`past_key` has 9 rows, expected as many as `past_value`: 3",
    ),
    "two kinds of cache": (
        {
            "past_key": _zeros(_B, _KV, _P, _D),
            "past_value": _zeros(_B, _KV, _P, _E),
            "nonpad_kv_seqlen": np.array([5, 5]),
        },
        {},
        "`nonpad_kv_seqlen` is given together with `past_key`",
    ),
    "one count for each row": (
        {"nonpad_kv_seqlen": np.array([5])},
        {},
        "`nonpad_kv_seqlen` has shape (1,), expected (2,): one count for each batch row",
    ),
    "more valid keys than keys": (
        {"nonpad_kv_seqlen": np.array([5, 6])},
        {},
        "`nonpad_kv_seqlen`[1] is 6, expected 0 to 5: the rows of `K`",
    ),
    "less than no valid keys": (
        {"nonpad_kv_seqlen": np.array([-1, 5])},
        {},
        "`nonpad_kv_seqlen`[0] is -1, expected 0 to 5: the rows of `K`",
    ),
    "the mask broadcasts": (
        {"attn_mask": _zeros(_KV, _L, _S)},
        {},
        "`attn_mask` has shape (3, 4, 5), which does not broadcast to (2, 6, 4, 5) of `Q K^T`",
    ),
    "the mask is no longer than the keys": (
        {"attn_mask": _zeros(_L, 6)},
        {},
        "`attn_mask` has shape (4, 6), which does not broadcast to (2, 6, 4, 5) of `Q K^T`",
    ),
    "the mask has four dimensions at most": (
        {"attn_mask": _zeros(1, _B, _H, _L, _S)},
        {},
        (
            "`attn_mask` has shape (1, 2, 6, 4, 5), which does not broadcast to (2, 6, 4, 5) of "
            "`Q K^T`"
        ),
    ),
    "the mask covers the valid keys": (
        {"attn_mask": _zeros(_L, 3), "nonpad_kv_seqlen": np.array([2, 4])},
        {},
        (
            "`attn_mask` has 3 keys (shape (4, 3)), expected at least 4, the greatest of "
            "`nonpad_kv_seqlen`"
        ),
    ),
    "an unknown mode": (
        {},
        {"qk_matmul_output_mode": 4},
        "`qk_matmul_output_mode` is 4, expected 0, 1, 2 or 3",
    ),
    "an integer precision": (
        {},
        {"softmax_precision": 7},
        "`softmax_precision` is 7, expected 1 (float), 10 (float16), 11 (double) or 16 (bfloat16)",
    ),
    "a negative scale": (
        {},
        {"scale": -0.5},
        "`scale` is -0.5, expected 0 or more: its square root is applied",
    ),
    "a window below none": (
        {},
        {"left_window_size": -2},
        "`left_window_size` is -2, expected 0 or more, or -1 for no limit",
    ),
    "no head size to take a root of": (
        {"Q": _zeros(_B, _H, _L, 0), "K": _zeros(_B, _KV, _S, 0)},
        {},
        "the default `scale` is 1 / sqrt(head_size), but head_size is 0",
    ),
}


@each(("feeds", "attributes", "message"), _REFUSED)
def test_refused(feeds: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        attention_23(**_feeds(**feeds), **{**PLAIN, **attributes})
    assert caught.value.message == message


def test_version_23_refuses_a_shorter_mask() -> None:
    with pytest.raises(KernelError, match="does not broadcast"):
        attention_23(**_feeds(attn_mask=_zeros(_L, 3)), **PLAIN, context=Context(23, 1, print))


def test_head_counts_that_agree_with_four_dimensions_are_taken() -> None:
    attributes = {**PLAIN, "q_num_heads": _H, "kv_num_heads": _KV}
    assert attention_23(**_feeds(), **attributes)[0] is not None
