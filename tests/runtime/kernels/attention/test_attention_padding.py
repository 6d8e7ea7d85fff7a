"""Attention without its padding is Attention, whatever stands in the padding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.kernels.attention.attention import attention_23
from onnx_kvtool.runtime.kernels.attention.bias_and_weights import read_operands, without_padding
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from tests.grids import each, search

B, KV, G, S, D, E = 2, 3, 2, 11, 4, 5

ATTRIBUTES: dict[str, Any] = {
    "is_causal": 1,
    "kv_num_heads": KV,
    "q_num_heads": KV * G,
    "qk_matmul_output_mode": 0,
    "scale": None,
    "softcap": 0.0,
    "softmax_precision": None,
}

POISON = [0.0, 1e30, np.inf, -np.inf, np.nan]


def operands(rank: int, length: int, dtype: Any, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = ((KV * G, length, D), (KV, S, D), (KV, S, E))
    arrays = [rng.standard_normal((B, *shape)).astype(dtype) for shape in shapes]
    if rank == 4:
        return arrays
    return [a.transpose(0, 2, 1, 3).reshape(B, a.shape[2], -1) for a in arrays]


def both(arrays: list[Array], counts: Array, mask: Array | None, **changes: Any) -> list[Array]:
    """Return the output as it is computed with all keys, and as it may be without the padding."""
    found = []
    for outputs in (4, 3):  # whoever shows the scores shows them all
        context = Context(24, outputs, lambda _: None)
        y, *_ = attention_23(
            *arrays, mask, nonpad_kv_seqlen=counts, **(ATTRIBUTES | changes), context=context
        )
        assert y is not None
        found.append(y)
    return found


@search(150)
@given(
    rank=st.sampled_from([3, 4]),
    length=st.integers(1, 3),
    counts=st.lists(st.integers(0, S), min_size=B, max_size=B),
    dtype=st.sampled_from([np.float32, np.float64, np.float16, ml_dtypes.bfloat16]),
    poisoned=st.sampled_from(["nothing", "query", "key", "value"]),
    poison=st.sampled_from(POISON),
    mask=st.sampled_from(["none", "seen", "numbers", "short"]),
    causal=st.sampled_from([0, 1]),
    softcap=st.sampled_from([0.0, 2.0]),
    seed=st.integers(0, 99),
)
def test_what_is_left_out_does_not_show(
    rank: int,
    length: int,
    counts: list[int],
    dtype: Any,
    poisoned: str,
    poison: float,
    mask: str,
    causal: int,
    softcap: float,
    seed: int,
) -> None:
    arrays = operands(rank, length, dtype, seed)
    rng = np.random.default_rng(seed)
    if poisoned != "nothing":
        target = arrays[["query", "key", "value"].index(poisoned)]
        place = tuple(int(rng.integers(size)) for size in target.shape)
        with np.errstate(all="ignore"):
            target[place] = np.asarray(poison).astype(dtype)
    given_mask = {
        "none": None,
        "seen": rng.random((B, 1, length, S)) < 0.8,
        "numbers": rng.standard_normal((length, S)).astype(dtype),
        "short": np.ones((length, max(2, *counts)), np.bool_),
    }[mask]
    one, other = both(arrays, np.array(counts), given_mask, is_causal=causal, softcap=softcap)
    limit = {8: 1e-12, 4: 2e-6, 2: 2e-2}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(
        other.astype(np.float64), one.astype(np.float64), rtol=limit, atol=limit
    )


def kept(arrays: list[Array], counts: list[int], mask: Array | None = None) -> int:
    """Return how many keys are computed with."""
    read = read_operands(*arrays, None, None, KV * G, KV)
    found, _ = without_padding(read, mask, np.array(counts), 0.5)
    assert found.key.shape[2] == found.value.shape[2]
    return int(found.key.shape[2])


@each("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@each("rank", [3, 4])
def test_as_many_keys_as_the_longest_row_has(rank: int, dtype: Any) -> None:
    arrays = operands(rank, 1, dtype)
    assert kept(arrays, [2, 5]) == 5
    assert kept(arrays, [0, 0]) == 0
    assert kept(arrays, [2, S]) == S
    assert kept(arrays, [2, 5], np.ones((1, S), np.bool_)) == 5


@each("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@each("rank", [3, 4])
@each("poison", [np.inf, -np.inf, np.nan])
@each("index", [1, 2])
def test_all_keys_where_one_is_no_number(index: int, poison: float, rank: int, dtype: Any) -> None:
    arrays = operands(rank, 1, dtype)
    axis = rank - 2
    place = [1] * rank
    place[axis] = 7
    arrays[index][tuple(place)] = poison
    assert kept(arrays, [2, 5]) == S
    assert kept(arrays, [2, 8]) == 8


def test_all_keys_where_a_score_may_overflow() -> None:
    arrays = operands(4, 1, np.float32)
    arrays[1][:, :, 7] = 1e18
    assert kept(arrays, [2, 5]) == 5
    arrays[0] *= np.float32(1e19)
    assert kept(arrays, [2, 5]) == S
    half = operands(4, 1, np.float16)
    half[1][:, :, 7] = 1e4
    assert kept(half, [2, 5]) == S


def test_all_keys_where_the_mask_has_numbers() -> None:
    assert kept(operands(4, 1, np.float32), [2, 5], np.zeros((1, S), np.float32)) == S
