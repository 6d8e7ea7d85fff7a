"""Biases of attention by the distance of query and key, in their standard form.

onnxruntime has both operators on GPUs alone. What is expected is the function of T5, and the lines
of torch that the documentation of the other one has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import OPSETS, Array, demand_same, normal, refusal

REALS = st.sampled_from([np.float32, np.float16])
some = search(60)


def bucket(distance: int, count: int, farthest: int, is_both: bool) -> int:
    """Return where T5 puts the distance of a key from its query."""
    base = 0
    if is_both:
        count //= 2
        base, distance = (count if distance > 0 else 0), abs(distance)
    else:
        distance = max(-distance, 0)
    exact = count // 2
    if distance < exact:
        return base + distance
    # The whole numbers of the logarithm are met exactly.
    share = math.log2(distance / exact) / math.log2(farthest / exact) * (count - exact)
    return base + min(exact + math.floor(share + 1e-6), count - 1)


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    both=st.booleans(),
    count=st.sampled_from([4, 8, 32]),
    farthest=st.sampled_from([20, 128]),
    length=st.sampled_from([1, 5, 150]),
    keys=st.sampled_from([0, 3]),
)
def test_relative_position_bias(
    opset: int, dtype: Any, both: bool, count: int, farthest: int, length: int, keys: int
) -> None:
    heads, other = 3, length + keys
    table = normal(count, heads, dtype=dtype)
    expected = np.zeros((1, heads, length, other), dtype)
    for row, column in np.ndindex(length, other):
        expected[0, :, row, column] = table[bucket(column - row, count, farthest, both)]
    # The table lies in memory head by head.
    stored = np.ascontiguousarray(table.T).reshape(count, heads)
    inputs = {"table": stored, "q": np.array([length]), "k": np.array([other])}
    demand_same(
        "RelativePositionBias",
        inputs,
        at=opset,
        expected={"y": expected},
        tolerance=0,
        is_bidirectional=int(both),
        max_distance=farthest,
    )


CASES = {
    # The expected values are those of onnxruntime's own tests of the operator.
    "both ways": (1, [[1, 7], [3, 1], [2, 8], [4, 2]]),
    "one way": (0, [[1, 1], [3, 1], [2, 2], [4, 2]]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_values_of_onnxruntimes_own_tests(name: str) -> None:
    both, rows = CASES[name]
    table = np.array([1, 3, 5, 7, 2, 4, 6, 8], np.float32).reshape(4, 2)
    inputs = {"table": table, "q": np.array([2]), "k": np.array([2])}
    expected = {"y": np.array(rows, np.float32).reshape(1, 2, 2, 2)}
    given_ = {"is_bidirectional": both, "max_distance": 128}
    demand_same("RelativePositionBias", inputs, expected=expected, tolerance=0, **given_)


def gated(inputs: dict[str, Array], heads: int) -> Array:
    """Return what the lines of torch in the documentation compute."""
    x = {name: value.astype(np.float64) for name, value in inputs.items()}
    query = x["query_layer"] + x["query_bias"]
    batch, rows, width = query.shape
    query = query.reshape(batch, rows, heads, width // heads).transpose(0, 2, 1, 3)
    gates = (query @ x["weight"] + x["bias"]).reshape(batch, heads, rows, 2, -1).sum(-1)
    u, r = np.split(1 / (1 + np.exp(-gates)), 2, axis=-1)
    return np.asarray((u * (r * x["eco_a"] - 1) + 2) * x["rel_pos"])


@some
@given(opset=OPSETS, dtype=REALS, width=st.sampled_from([2, 8]))
def test_gated_relative_position_bias(opset: int, dtype: Any, width: int) -> None:
    heads, size = 3, 4
    inputs = {
        "query_layer": normal(2, 5, heads * size, dtype=dtype),
        "query_bias": normal(heads * size, dtype=dtype),
        "rel_pos": normal(1, heads, 5, 5, dtype=dtype),
        "weight": normal(size, width, dtype=dtype),
        "bias": normal(width, dtype=dtype),
        "eco_a": normal(1, heads, 1, 1, dtype=dtype),
    }
    demand_same(
        "GatedRelativePositionBias",
        inputs,
        at=opset,
        expected={"y": gated(inputs, heads).astype(dtype)},
        tolerance=2e-5 if dtype == np.float32 else 3e-2,
        num_heads=heads,
    )


def test_tokens_without_padding_are_refused() -> None:
    inputs = {
        "query_layer": normal(10, 12),
        "query_bias": normal(12),
        "rel_pos": normal(1, 3, 5, 5),
        "weight": normal(4, 8),
        "bias": normal(8),
        "eco_a": normal(1, 3, 1, 1),
        "token_offset": np.zeros((2, 5), np.int32),
    }
    said = refusal("GatedRelativePositionBias", inputs, num_heads=3)
    assert "`token_offset`" in said


def test_a_distance_below_the_buckets_is_refused() -> None:
    inputs = {"table": normal(32, 3), "q": np.array([2]), "k": np.array([2])}
    assert "`max_distance`" in refusal("RelativePositionBias", inputs, max_distance=9)
