"""LinearAttention and CausalConvWithState: one long run equals many short ones, and the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.states import (
    causal_conv_with_state_27,
    linear_attention_27,
)

_B, _H, _KV, _T, _D, _E = 2, 6, 3, 5, 4, 7


def _normal(*dims: int) -> np.ndarray:
    rng = np.random.default_rng(sum(dims))
    return rng.standard_normal(dims).astype(np.float32)


def _feeds(rule: str, *, wide_decay: bool = True, shared_beta: bool = False) -> dict[str, Any]:
    feeds = {
        "query": _normal(_B, _T, _H * _D),
        "key": _normal(_B, _T, _KV * _D) / 2,
        "value": _normal(_B, _T, _KV * _E),
        "past_state": _normal(_B, _KV, _D, _E),
    }
    if "gated" in rule:
        feeds["decay"] = -np.abs(_normal(_B, _T, _KV * _D if wide_decay else _KV))
    if "delta" in rule:
        feeds["beta"] = np.abs(_normal(_B, _T, 1 if shared_beta else _KV)) / 3
    return feeds


def _attributes(rule: str) -> dict[str, Any]:
    heads = {"q_num_heads": _H, "kv_num_heads": _KV}
    return {"update_rule": rule, "chunk_size": 64, "scale": 0.0, **heads}


def _formula(feeds: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Follow the four lines of the text, head by head and token by token."""
    output = np.zeros((_B, _T, _H, _E))
    states = feeds["past_state"].astype(np.float64)
    for b, h in np.ndindex(_B, _KV):
        state = states[b, h]
        for t in range(_T):
            k = feeds["key"][b, t].reshape(_KV, _D)[h].astype(np.float64)
            v = feeds["value"][b, t].reshape(_KV, _E)[h].astype(np.float64)
            if "decay" in feeds:
                state = np.exp(feeds["decay"][b, t].reshape(_KV, -1)[h])[:, None] * state
            if "beta" in feeds:
                beta = feeds["beta"][b, t]
                v = beta[h if beta.size > 1 else 0] * (v - state.T @ k)
            state = state + np.outer(k, v)
            for g in range(_H // _KV):
                head = h * (_H // _KV) + g
                q = feeds["query"][b, t].reshape(_H, _D)[head]
                output[b, t, head] = state.T @ q / np.sqrt(_D)
        states[b, h] = state
    return output.reshape(_B, _T, _H * _E), states


@pytest.mark.parametrize("shared_beta", [False, True], ids=["beta per head", "one beta"])
@pytest.mark.parametrize("wide_decay", [False, True], ids=["decay per head", "decay per element"])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_follows_its_formula(
    rule: str, wide_decay: bool, shared_beta: bool
) -> None:
    feeds = _feeds(rule, wide_decay=wide_decay, shared_beta=shared_beta)
    before = feeds["past_state"].copy()
    output, state = linear_attention_27(**feeds, **_attributes(rule))
    expected = _formula({name: value.copy() for name, value in feeds.items()})
    np.testing.assert_allclose(output, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, expected[1], rtol=1e-4, atol=1e-5)
    assert np.array_equal(feeds["past_state"], before)


def test_token_by_token_equals_all_at_once() -> None:
    feeds = _feeds("gated_delta")
    output, state = linear_attention_27(**feeds, **_attributes("gated_delta"))
    carried, parts = feeds.pop("past_state"), []
    for token in range(_T):
        step = {name: value[:, token : token + 1] for name, value in feeds.items()}
        part, carried = linear_attention_27(
            **step, past_state=carried, **_attributes("gated_delta")
        )
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), output, rtol=1e-6)
    np.testing.assert_allclose(carried, state, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "attributes", "message"),
    [
        ({}, {"update_rule": "fast"}, "`update_rule` is `fast`, expected one of linear, gated"),
        ({"decay": None}, {}, "`decay` is missing, but the rule `gated_delta` needs it"),
        ({}, {"update_rule": "delta"}, "`decay` is given, but the rule `delta` has no use for it"),
        ({"past_state": _normal(_B, _KV, _E, _D)}, {}, "`past_state` has shape (2, 3, 7, 4)"),
        ({"beta": _normal(_B, _T, 2)}, {}, "`beta` has shape (2, 5, 2), expected (2, 5, 3) or"),
        ({}, {"q_num_heads": 4}, "`q_num_heads` is 4, expected a multiple of 3"),
    ],
    ids=["rule", "gate missing", "gate unused", "state", "beta", "heads"],
)
def test_linear_attention_refuses(
    changes: dict[str, Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(KernelError) as caught:
        linear_attention_27(
            **{**_feeds("gated_delta"), **changes}, **{**_attributes("gated_delta"), **attributes}
        )
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_a_causal_convolution_sums_the_last_positions(activation: str) -> None:
    x, weight, bias = _normal(2, 3, 5), _normal(3, 1, 4), _normal(3)
    past = _normal(2, 3, 3)
    output, state = causal_conv_with_state_27(x, weight, bias, past, activation=activation)
    joined = np.concatenate([past, x], axis=2).astype(np.float64)
    expected = np.array(
        [
            [[joined[b, c, t : t + 4] @ weight[c, 0] + bias[c] for t in range(5)] for c in range(3)]
            for b in range(2)
        ]
    )
    if activation == "silu":
        expected = expected / (1 + np.exp(-expected))
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(state, x[:, :, 2:])


def test_a_short_input_carries_part_of_the_past_on() -> None:
    x, weight = _normal(2, 3, 1), _normal(3, 1, 4)
    past = _normal(2, 3, 3)
    _, state = causal_conv_with_state_27(x, weight, None, past, activation="none")
    assert np.array_equal(state, np.concatenate([past[:, :, 1:], x], axis=2))
    _, state = causal_conv_with_state_27(x, weight, activation="none")
    assert np.array_equal(state, np.concatenate([np.zeros((2, 3, 2), np.float32), x], axis=2))


@pytest.mark.parametrize(
    ("inputs", "activation", "message"),
    [
        ((_normal(2, 3, 5), _normal(3, 1, 4)), "relu", "`activation` is `relu`, expected `none`"),
        ((_normal(2, 3, 5), _normal(2, 1, 4)), "none", "`weight` has shape (2, 1, 4), expected"),
        ((_normal(2, 3, 5), _normal(3, 1, 0)), "none", "`input` and `weight` have shapes"),
        (
            (_normal(2, 3, 5), _normal(3, 1, 4), None, _normal(2, 3, 4)),
            "none",
            "`past_state` has shape (2, 3, 4), expected (2, 3, 3)",
        ),
    ],
    ids=["activation", "channels", "no taps", "state"],
)
def test_a_causal_convolution_refuses(
    inputs: tuple[Any, ...], activation: str, message: str
) -> None:
    with pytest.raises(KernelError) as caught:
        causal_conv_with_state_27(*inputs, activation=activation)
    assert caught.value.message.startswith(message)
