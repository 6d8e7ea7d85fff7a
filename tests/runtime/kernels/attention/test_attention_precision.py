"""Where Attention rounds in 16-bit types, against the schema's function body step by step."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.kernels.attention.attention import attention_23
from tests.grids import each
from tests.naive_attention import naive_attention
from tests.runtime.kernels.attention.test_attention_results import PLAIN

_NUMBERS = {np.float32: 1, np.float16: 10, np.float64: 11, ml_dtypes.bfloat16: 16}


def _normal(seed: int, *dims: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims)


def _body(q: Any, k: Any, v: Any, bias: Any, cap: float, precision: Any) -> tuple[Any, ...]:
    """Return Y and the scores of all modes; every node of the function body rounds to its type,
    and the softmax does at each of its steps, its sum once."""
    t = q.dtype.type
    root = np.float32(1) / np.sqrt(np.float32(q.shape[-1]))
    root = np.sqrt(root).astype(t)

    def product(a: Any, b: Any) -> Any:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(t)

    raw = product(q * root, np.swapaxes(k * root, -1, -2))
    capped = (np.tanh((raw / t(cap)).astype(np.float64)).astype(t) * t(cap)).astype(t)
    biased = (capped + bias).astype(t)
    x = biased.astype(precision)
    x = (x.astype(np.float64) - x.max(axis=-1, keepdims=True)).astype(precision)
    x = np.exp(x.astype(np.float64)).astype(precision).astype(np.float64)
    total = x.sum(axis=-1, keepdims=True).astype(precision)
    weights = (x / total.astype(np.float64)).astype(precision).astype(t)
    return product(weights, v), raw, capped, biased, weights


@each("precision", list(_NUMBERS))
@each("dtype", [np.float16, ml_dtypes.bfloat16])
def test_all_outputs_are_rounded_where_the_body_has_a_value(dtype: Any, precision: Any) -> None:
    """Float32 sums may fall on the other side of a tie: one unit in few elements is allowed."""
    q, k, v = (_normal(n, 2, 3, 5, 8).astype(dtype) for n in range(3))
    bias = _normal(4, 5, 5).astype(dtype)
    expected = _body(q, k, v, bias, 3.0, precision)
    for mode in range(4):
        attributes = {
            **PLAIN,
            "softcap": 3.0,
            "softmax_precision": _NUMBERS[precision],
            "qk_matmul_output_mode": mode,
        }
        y, _, _, scores = attention_23(q, k, v, bias, **attributes)
        for got, want in ((y, expected[0]), (scores, expected[1 + mode])):
            assert got is not None and got.dtype == dtype
            a, b = got.astype(np.float64), want.astype(np.float64)
            unit = 2.0 ** np.floor(np.log2(np.abs(b))) * float(ml_dtypes.finfo(dtype).eps)
            assert (np.abs(a - b) <= unit).all()
            assert (a != b).mean() < 0.02


def test_the_default_precision_of_the_softmax_is_that_of_the_query() -> None:
    q, k, v = (_normal(n, 2, 3, 5, 8).astype(np.float16) for n in range(3))
    one = attention_23(q, k, v, **PLAIN)[0]
    same = attention_23(q, k, v, **{**PLAIN, "softmax_precision": 10})[0]
    assert one is not None and same is not None
    assert np.array_equal(one, same)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float16, 5e-3), (ml_dtypes.bfloat16, 4e-2)], ids=["f16", "bf16"]
)
def test_sixteen_bits_stay_near_the_text(dtype: Any, tolerance: float) -> None:
    """The tolerance is a few units in the last place of values around one."""
    feeds = {
        "Q": _normal(0, 2, 6, 4, 64).astype(dtype),
        "K": _normal(1, 2, 3, 50, 64).astype(dtype),
        "V": _normal(2, 2, 3, 50, 64).astype(dtype),
        "nonpad_kv_seqlen": np.array([50, 7]),
    }
    y, *_ = attention_23(**feeds, **{**PLAIN, "is_causal": 1})
    assert y is not None and y.dtype == dtype
    expected = naive_attention(feeds, causal=True).y
    np.testing.assert_allclose(y.astype(np.float64), expected, atol=tolerance)
