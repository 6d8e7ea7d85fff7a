"""MultiHeadAttention and Attention of onnxruntime, against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

B, H, L, S, P, D, E, W, BUFFER = 2, 3, 5, 7, 4, 8, 6, 10, 12

Array = np.ndarray[Any, Any]
Arrays = dict[str, "Array | None"]

NAMES = (
    *("query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key"),
    *("past_value", "past_sequence_length", "cache_indirection"),
)
INSIDE = (
    "input",
    "weights",
    "bias",
    "mask_index",
    "past",
    "attention_bias",
    "past_sequence_length",
)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def lengths(*values: int) -> Array:
    return np.array(values, np.int32)


def before(rows: int) -> Array:
    """Return a mask whose second batch row has three valid keys."""
    return (np.arange(rows) < np.array([[rows], [3]])).astype(np.int32)


SELF = {"query": normal(B, L, H * D), "key": normal(B, L, H * D, seed=1)} | {
    "value": normal(B, L, H * D, seed=2)
}
CROSS = {"query": normal(B, L, H * D), "key": normal(B, S, H * D, seed=1)} | {
    "value": normal(B, S, H * D, seed=2)
}
NARROW = CROSS | {"value": normal(B, S, H * E, seed=2)}
SPLIT = CROSS | {"key": normal(B, H, S, D), "value": normal(B, H, S, D, seed=2)}
PAST = SELF | {"past_key": normal(B, H, P, D), "past_value": normal(B, H, P, D, seed=2)}
SHARED = SELF | {
    "past_key": normal(B, H, BUFFER, D),
    "past_value": normal(B, H, BUFFER, D, seed=2),
    "past_sequence_length": lengths(3),
}
BIAS = {"bias": normal(3 * H * D)}
SEEN = np.random.default_rng(7).integers(0, 2, (B, L, S)).astype(np.int32) | np.eye(
    L, S, dtype=np.int32
)

ONE, ALL = ("y",), ("y", "present_key", "present_value")

CALLS = [
    pytest.param(CROSS, ONE, {}, id="keys of another length"),
    pytest.param(NARROW, ONE, {}, id="values of another width"),
    pytest.param(NARROW | {"bias": normal(2 * H * D + H * E)}, ONE, {}, id="and a bias"),
    pytest.param(CROSS | BIAS, ONE, {}, id="a bias"),
    pytest.param(CROSS, ALL, {}, id="a present without a past"),
    pytest.param(SPLIT, ONE, {}, id="keys of another attention"),
    pytest.param(SPLIT | BIAS, ONE, {}, id="keys of another attention and a bias"),
    pytest.param(CROSS | {"key_padding_mask": lengths(7, 3)}, ONE, {}, id="valid lengths"),
    pytest.param(CROSS | {"key_padding_mask": before(S)}, ONE, {}, id="a mask of two dimensions"),
    pytest.param(CROSS | {"key_padding_mask": SEEN}, ONE, {}, id="a mask of three dimensions"),
    pytest.param(CROSS | {"key_padding_mask": SEEN * 3 - 1}, ONE, {}, id="a mask of numbers"),
    pytest.param(
        CROSS | {"key_padding_mask": before(S)}, ONE, {"mask_filter_value": -2.0}, id="a low filter"
    ),
    pytest.param(CROSS | {"attention_bias": normal(B, H, L, S)}, ONE, {}, id="an attention bias"),
    pytest.param(CROSS | {"attention_bias": normal(1, 1, L, S)}, ONE, {}, id="a bias for all"),
    pytest.param(
        CROSS | {"attention_bias": normal(B, 1, L, S), "key_padding_mask": before(S)},
        ONE,
        {},
        id="a bias and a mask",
    ),
    pytest.param(CROSS, ONE, {"scale": 0.3}, id="a scale"),
    pytest.param(CROSS, ONE, {"scale": 0.0}, id="a scale of 0"),
    pytest.param(SELF, ONE, {"unidirectional": 1}, id="no later keys"),
    pytest.param(
        SELF | {"key_padding_mask": before(L)},
        ONE,
        {"unidirectional": 1},
        id="no later keys and padding",
    ),
    pytest.param(PAST, ALL, {}, id="a past"),
    pytest.param(PAST | BIAS, ALL, {}, id="a past and a bias"),
    pytest.param(PAST, ALL, {"unidirectional": 1}, id="a past and no later keys"),
    pytest.param(
        PAST | {"key_padding_mask": before(P + L)}, ALL, {}, id="a past and a mask for all keys"
    ),
    pytest.param(PAST | {"key_padding_mask": lengths(9, 7)}, ALL, {}, id="a past and lengths"),
    pytest.param(
        PAST | {"attention_bias": normal(1, H, L, P + L)}, ALL, {}, id="a past and a bias of scores"
    ),
    pytest.param(SHARED, ALL, {}, id="a buffer"),
    pytest.param(SHARED | {"past_sequence_length": lengths(0)}, ALL, {}, id="an empty buffer"),
    pytest.param(SHARED | {"past_sequence_length": lengths(7)}, ALL, {}, id="a full buffer"),
]


def demand_close(found: dict[str, Array], expected: dict[str, Array], limit: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_allclose(found[name], value, rtol=limit, atol=limit, err_msg=name)


def typed(inputs: Arrays, names: tuple[str, ...], dtype: Any) -> Arrays:
    found: Arrays = {}
    for name in names:
        value = inputs.get(name)
        is_real = value is not None and value.dtype == np.float32
        found[name] = value.astype(dtype) if is_real and value is not None else value
    return found


@pytest.mark.long
@needs_onnxruntime
@each(("dtype", "limit"), [(np.float32, 3e-6), (np.float16, 1e-2)])
@each(("inputs", "outputs", "attributes"), CALLS)
def test_multi_head_attention(
    inputs: Arrays, outputs: tuple[str, ...], attributes: dict[str, Any], dtype: Any, limit: float
) -> None:
    given = typed(inputs, NAMES, dtype)
    found, expected = (
        run("MultiHeadAttention", given, outputs, num_heads=H, **attributes)
        for run in (ours, theirs)
    )
    demand_close(found, expected, limit)


PROJECTED: Arrays = {"input": normal(B, L, W), "weights": normal(W, 3 * H * D) / 3} | BIAS
SIZES = {"qkv_hidden_sizes": [H * D, H * D, H * E]}
TWO = ("y", "present")
LEFT = lengths(5, 4, 0, 2)

PROJECTIONS = [
    pytest.param(PROJECTED, ONE, {}, id="plain"),
    pytest.param(
        PROJECTED
        | {"weights": normal(W, 2 * H * D + H * E) / 3, "bias": normal(2 * H * D + H * E)},
        ONE,
        SIZES,
        id="values of another width",
    ),
    pytest.param(PROJECTED, TWO, {}, id="a present without a past"),
    pytest.param(PROJECTED, ONE, {"unidirectional": 1}, id="no later keys"),
    pytest.param(PROJECTED, ONE, {"scale": 0.3}, id="a scale"),
    pytest.param(PROJECTED | {"mask_index": lengths(5, 3)}, ONE, {}, id="valid lengths"),
    pytest.param(PROJECTED | {"mask_index": LEFT}, ONE, {}, id="ends and starts"),
    pytest.param(PROJECTED | {"mask_index": before(L)}, ONE, {}, id="a mask of two dimensions"),
    pytest.param(PROJECTED | {"mask_index": SEEN[..., :L]}, ONE, {}, id="of three dimensions"),
    pytest.param(
        PROJECTED | {"attention_bias": normal(B, H, L, L), "mask_index": before(L)},
        ONE,
        {},
        id="a bias and a mask",
    ),
    pytest.param(PROJECTED | {"past": normal(2, B, H, P, D)}, TWO, {}, id="a past"),
    pytest.param(PROJECTED | {"past": normal(2, B, H, 0, D)}, TWO, {}, id="an empty past"),
    pytest.param(
        PROJECTED | {"past": normal(2, B, H, P, D), "mask_index": before(P + L)},
        TWO,
        {"unidirectional": 1},
        id="a past, a mask and no later keys",
    ),
]


@needs_onnxruntime
@pytest.mark.parametrize(("inputs", "outputs", "attributes"), PROJECTIONS)
def test_attention(inputs: Arrays, outputs: tuple[str, ...], attributes: dict[str, Any]) -> None:
    given = {name: inputs.get(name) for name in INSIDE}
    found, expected = (
        run("Attention", given, outputs, num_heads=H, **attributes) for run in (ours, theirs)
    )
    demand_close(found, expected, 5e-6)


def test_a_projection_without_a_bias_is_one_with_a_bias_of_zero() -> None:
    """The kernel of onnxruntime 1.31.1 crashes."""
    zero = {**PROJECTED, "bias": np.zeros(3 * H * D, np.float32)}
    found, expected = (
        ours("Attention", inputs, TWO, num_heads=H) for inputs in (PROJECTED | {"bias": None}, zero)
    )
    for name in TWO:
        assert np.array_equal(found[name], expected[name])
