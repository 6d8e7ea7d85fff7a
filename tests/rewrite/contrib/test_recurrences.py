"""Operators of hybrid decoders that keep a state, in their standard form, against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import RunFailed
from tests.grids import search
from tests.rewrite.contrib.single import Array, Dims, demand_same, normal, refusal, standard
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

pytestmark = needs_onnxruntime

OPSETS = st.sampled_from([24, 21, 18, 13, 11, 9])
REALS = st.sampled_from([np.float32, np.float16])
some = search(60)


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    has_beta=st.booleans(),
    far=st.sampled_from([1, 30]),
    is_column=st.booleans(),
)
def test_linear_attention_gate(
    opset: int, dtype: Any, has_beta: bool, far: int, is_column: bool
) -> None:
    inputs = {
        "a": (normal(2, 5, 3) * far).astype(dtype),
        "dt_bias": normal(3, 1) if is_column else normal(3),
        "decay_scale": -np.abs(normal(3, seed=5)),
        "b": (normal(2, 5, 3, seed=7) * far).astype(dtype) if has_beta else None,
    }
    outputs = ("decay", "beta") if has_beta else ("decay",)
    demand_same("LinearAttentionGate", inputs, outputs, at=opset)


@pytest.mark.long
def test_a_gate_of_bfloat16() -> None:
    """numpy can give onnxruntime none: what its kernel computes in float32 is rounded here."""
    wide = {
        "a": normal(2, 5, 3, dtype=ml_dtypes.bfloat16).astype(np.float32),
        "dt_bias": normal(3),
        "decay_scale": -np.abs(normal(3, seed=5)),
        "b": normal(2, 5, 3, dtype=ml_dtypes.bfloat16, seed=7).astype(np.float32),
    }
    found = theirs("LinearAttentionGate", wide, ("decay", "beta"))
    expected = {name: value.astype(ml_dtypes.bfloat16) for name, value in found.items()}
    inputs = wide | {name: wide[name].astype(ml_dtypes.bfloat16) for name in "ab"}
    for opset in (24, 16):
        demand_same("LinearAttentionGate", inputs, ("decay", "beta"), at=opset, expected=expected)


def test_a_rate_without_its_input_is_refused() -> None:
    inputs = {"a": normal(2, 5, 3), "dt_bias": normal(3), "decay_scale": normal(3)}
    assert "its input `b`" in refusal("LinearAttentionGate", inputs, ("decay", "beta"))


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    activation=st.sampled_from(["none", "silu", "swish"]),
    taps=st.sampled_from([1, 2, 4]),
    dilation=st.sampled_from([1, 3]),
    length=st.sampled_from([1, 2, 5]),
    layout=st.sampled_from(["first", "last", "two axes"]),
    has=st.tuples(st.booleans(), st.booleans()),
    is_symbolic=st.booleans(),
)
def test_causal_conv_with_state(
    opset: int,
    dtype: Any,
    activation: str,
    taps: int,
    dilation: int,
    length: int,
    layout: str,
    has: tuple[bool, bool],
    is_symbolic: bool,
) -> None:
    channels, rows, inner = 6, (taps - 1) * dilation, (2, 3) if layout == "two axes" else (6,)
    has_bias, has_past = has
    is_first = layout == "first"

    def states(count: int, seed: int) -> Array:
        shape = (2, channels, count) if is_first else (2, count, *inner)
        return normal(*shape, dtype=dtype, seed=seed)

    inputs = {
        "x": states(length, 3),
        "weight": normal(channels, 1, taps, dtype=dtype),
        "bias": normal(channels, dtype=dtype) if has_bias else None,
        "past": states(rows, 5) if has_past else None,
    }
    place = 2 if is_first else 1
    dims: dict[str, Dims] = {}
    if is_symbolic:
        dims["x"] = ["batch", *inputs["x"].shape[1:]]
        dims["x"][place] = "length"
    model = demand_same(
        "CausalConvWithState",
        inputs,
        ("y", "present"),
        at=opset,
        dims=dims,
        activation=activation,
        channels_last=int(not is_first),
        dilation=dilation,
    )
    assert not is_symbolic or not [n for n in model.graph if n.op_type == "Shape"]


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    name: {name: value, "channels_last": 1}
    for name, value in {
        "state_window": 2,
        "state_update_capacity": 2,
        "state_channels_last": 0,
        "state_length": 5,
        "input_channel_offset": 1,
        "input_channels": 3,
    }.items()
} | {"ndim": {"ndim": 2}, "dilation": {"dilation": 0}, "activation": {"activation": "relu"}}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_of_gpus_is_refused_by_the_name_of_its_attribute(name: str) -> None:
    inputs = {"x": normal(2, 5, 6), "weight": normal(6, 1, 4)}
    if name in ("ndim", "dilation", "activation"):
        inputs["x"] = normal(2, 6, 5)
    said = refusal("CausalConvWithState", inputs, ("y", "present"), **CONVOLUTIONS[name])
    assert f"`{name}`" in said
    with pytest.raises(RunFailed) as caught:
        ours("CausalConvWithState", inputs, ("y", "present"), **CONVOLUTIONS[name])
    assert f"`{name}`" in caught.value.message


def attending(
    rule: str,
    *,
    length: int = 5,
    heads: tuple[int, int, int] = (6, 3, 3),
    is_wide: bool = False,
    is_shared: bool = False,
    has_past: bool = True,
    dtype: Any = np.float32,
    state: Any = None,
) -> dict[str, Array | None]:
    """Return inputs of LinearAttention with heads of queries, of keys and of values."""
    batch, size, width = 2, 4, 7
    asking, keyed, states = heads
    decay = -np.abs(normal(batch, length, states * size if is_wide else states))
    beta = np.abs(normal(batch, length, 1 if is_shared else states, seed=5)) / 3
    return {
        "query": normal(batch, length, asking * size, dtype=dtype),
        "key": (normal(batch, length, keyed * size, seed=7) / 2).astype(dtype),
        "value": normal(batch, length, states * width, dtype=dtype),
        "past": normal(batch, states, size, width, dtype=state or dtype) if has_past else None,
        "decay": decay.astype(dtype) if "gated" in rule else None,
        "beta": beta.astype(dtype) if "delta" in rule else None,
    }


@some
@given(
    opset=OPSETS,
    dtypes=st.sampled_from(
        [(np.float32, np.float32), (np.float16, np.float16), (np.float16, np.float32)]
    ),
    rule=st.sampled_from(["linear", "gated", "delta", "gated_delta"]),
    heads=st.sampled_from([(6, 3, 3), (3, 3, 3), (3, 6, 6), (3, 3, 6), (3, 2, 6), (6, 1, 3)]),
    is_wide=st.booleans(),
    is_shared=st.booleans(),
    has_past=st.booleans(),
    scale=st.sampled_from([0.0, 0.3, 1.0]),
    length=st.sampled_from([1, 5]),
    is_symbolic=st.booleans(),
)
def test_linear_attention(
    opset: int,
    dtypes: Any,
    rule: str,
    heads: tuple[int, int, int],
    is_wide: bool,
    is_shared: bool,
    has_past: bool,
    scale: float,
    length: int,
    is_symbolic: bool,
) -> None:
    inputs = attending(
        rule,
        length=length,
        heads=heads,
        is_wide=is_wide,
        is_shared=is_shared,
        has_past=has_past,
        dtype=dtypes[0],
        state=dtypes[1],
    )
    symbolic: dict[str, Dims] = {
        name: ["batch", "length", value.shape[2]]
        if value.ndim == 3
        else ["batch", *value.shape[1:]]
        for name, value in inputs.items()
        if value is not None
    }
    model = demand_same(
        "LinearAttention",
        inputs,
        ("y", "present"),
        at=opset,
        dims=symbolic if is_symbolic else None,
        update_rule=rule,
        q_num_heads=heads[0],
        kv_num_heads=heads[2],
        scale=scale,
        chunk_size=2,
    )
    scans = [node for node in model.graph if node.op_type == "Scan"]
    assert len(scans) == (is_symbolic or length > 1)


@pytest.mark.long
def test_a_state_of_bfloat16() -> None:
    inputs = attending("gated_delta", dtype=ml_dtypes.bfloat16)
    for opset in (24, 16):
        demand_same(
            "LinearAttention", inputs, ("y", "present"), at=opset, q_num_heads=6, kv_num_heads=3
        )


ATTENDING: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a window of states": ({}, {"state_window": 2}, "`state_window`"),
    "another rule": ({}, {"update_rule": "fast"}, "`update_rule`"),
    "no decay": ({"decay": None}, {}, "`decay`"),
    "no rate": ({"beta": None}, {}, "`beta`"),
    "heads that do not fit": ({}, {"q_num_heads": 4}, "`q_num_heads` 4"),
    "more heads of keys than of values": ({"key": normal(2, 5, 24)}, {}, "`kv_num_heads` 3"),
}


@pytest.mark.parametrize("name", ATTENDING)
def test_linear_attention_is_refused(name: str) -> None:
    changes, attributes, words = ATTENDING[name]
    inputs = attending("gated_delta") | changes
    given_ = {"q_num_heads": 6, "kv_num_heads": 3} | attributes
    assert words in refusal("LinearAttention", inputs, ("y", "present"), **given_)
    with pytest.raises(RunFailed):
        ours("LinearAttention", inputs, ("y", "present"), **given_)


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    activation=st.sampled_from(["none", "silu"]),
    taps=st.sampled_from([1, 2, 4]),
    dilation=st.sampled_from([1, 3]),
    bounds=st.sampled_from([(0, 2, 7), (0, 1, 2, 3), (0, 5), (0, 0, 7), (0, 7, 7)]),
    has_bias=st.booleans(),
    slots=st.sampled_from([0, 3]),
    is_symbolic=st.booleans(),
)
def test_varlen_causal_conv_with_state(
    opset: int,
    dtype: Any,
    activation: str,
    taps: int,
    dilation: int,
    bounds: tuple[int, ...],
    has_bias: bool,
    slots: int,
    is_symbolic: bool,
) -> None:
    count, channels = len(bounds) - 1, 6
    inputs = {
        "x": normal(bounds[-1], channels, dtype=dtype),
        "weight": normal(channels, 1, taps, dtype=dtype),
        "bounds": np.array(bounds, np.int32),
        "bias": normal(channels, dtype=dtype) if has_bias else None,
        "state": normal(count, channels, (taps - 1) * dilation, dtype=dtype),
        "captured": np.arange(-1, 9, 4)[:count].astype(np.int32) if slots else None,
    }
    dims: dict[str, Dims] = {"x": ["tokens", channels], "bounds": ["bounds"]}
    if slots:
        dims["captured"] = ["batch"]
    demand_same(
        "VarlenCausalConvWithState",
        inputs,
        ("y", "final", "update") if slots else ("y", "final"),
        at=opset,
        dims=dims if is_symbolic else None,
        activation=activation,
        dilation=dilation,
        state_update_capacity=slots,
    )


def test_weights_of_each_token_are_refused() -> None:
    inputs = {
        "x": normal(7, 6),
        "weight": normal(6, 1, 2),
        "bounds": np.array([0, 2, 7], np.int32),
        "bias": None,
        "state": normal(2, 6, 1),
        "captured": None,
        "delta": normal(7, 2, 6),
        "mask": normal(7, 1),
    }
    said = refusal("VarlenCausalConvWithState", inputs, ("y", "final"))
    assert "`kernel_delta`" in said


def delta_net(
    rule: str,
    lying: str = "bounds",
    *,
    is_wide: bool = False,
    gate: str = "none",
    bias: str = "heads",
    is_packed: bool = False,
    has_state: bool = True,
    dtype: Any = np.float32,
    gates: Any = None,
    heads: tuple[int, int] = (3, 6),
    length: int = 4,
) -> dict[str, Array | None]:
    """Return inputs of GatedDeltaNet, tokens on one axis or on two."""
    asking, states, size, width = *heads, 4, 5
    bounds = {"bounds": (0, 2, 7), "empty": (0, 0, 7)}.get(lying)
    batch = 2
    lead = (bounds[-1],) if bounds else (batch * length,) if lying == "flat" else (batch, length)
    query = normal(*lead, asking, size, dtype=dtype)
    key = (normal(*lead, asking, size, seed=5) / 2).astype(dtype)
    value = normal(*lead, states, width, dtype=dtype)
    decay = -np.abs(normal(*lead, states, *([size] if is_wide else [])))
    bias_shape = {"heads": (states,), "elements": (states, size), "flat": (states * size,)}
    is_gated = gate != "none"
    inputs: dict[str, Array | None] = {
        "query": query,
        "key": key,
        "value": value,
        "bounds": None if bounds is None else np.array(bounds, np.int32),
        "decay": decay.astype(gates or dtype) if "gated" in rule else None,
        "beta": np.abs(normal(*lead, states) / 3).astype(gates or dtype)
        if "delta" in rule
        else None,
        "state": normal(batch, states, width, size) if has_state else None,
        "a_log": normal(states) if is_gated else None,
        "dt_bias": normal(*bias_shape[bias]) if is_gated else None,
    }
    if is_packed:
        rows = [part.reshape(*lead, -1) for part in (query, key, value)]
        inputs |= {"query": np.concatenate(rows, axis=-1), "key": None, "value": None}
    return inputs


@some
@given(
    opset=OPSETS,
    dtypes=st.sampled_from(
        [(np.float32, np.float32), (np.float16, np.float16), (np.float16, np.float32)]
    ),
    rule=st.sampled_from(["linear", "gated", "delta", "gated_delta"]),
    lying=st.sampled_from(["bounds", "empty", "flat", "apart"]),
    gate=st.sampled_from(["none", "softplus", "qwen", "sigmoid", "kda"]),
    wide=st.sampled_from([None, "heads", "elements", "flat"]),
    beta=st.sampled_from(["none", "sigmoid"]),
    is_unit=st.booleans(),
    is_packed=st.booleans(),
    has_state=st.booleans(),
    scale=st.sampled_from([0.0, 0.3]),
    length=st.sampled_from([1, 4]),
    heads=st.sampled_from([(3, 6), (3, 3)]),
    is_symbolic=st.booleans(),
)
def test_gated_delta_net(
    opset: int,
    dtypes: Any,
    rule: str,
    lying: str,
    gate: str,
    wide: str | None,
    beta: str,
    is_unit: bool,
    is_packed: bool,
    has_state: bool,
    scale: float,
    length: int,
    heads: tuple[int, int],
    is_symbolic: bool,
) -> None:
    has_state = has_state or is_packed or lying == "flat"
    inputs = delta_net(
        rule,
        lying,
        is_wide=wide is not None,
        gate=gate,
        bias=wide if wide and "gated" in rule else "heads",
        is_packed=is_packed,
        has_state=has_state,
        dtype=dtypes[0],
        gates=dtypes[1],
        heads=heads,
        length=length,
    )
    dims: dict[str, Dims] = {}
    for name, array in inputs.items():
        if array is None or name in ("a_log", "dt_bias"):
            continue
        lead = {"state": ["batch"], "bounds": ["bounds"]}.get(
            name, ["batch", "length"] if lying == "apart" else ["tokens"]
        )
        dims[name] = [*lead, *array.shape[len(lead) :]]
    demand_same(
        "GatedDeltaNet",
        inputs,
        ("y", "final"),
        at=opset,
        dims=dims if is_symbolic else None,
        update_rule=rule,
        gate_activation=gate,
        gate_lower_bound=-3.0,
        beta_activation=beta,
        qk_l2_norm=int(is_unit),
        scale=scale,
    )


DELTA_NETS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another rule": ({}, {"update_rule": "fast"}, "`update_rule`"),
    "another gate": ({}, {"gate_activation": "relu"}, "`gate_activation`"),
    "another activation of the rate": ({}, {"beta_activation": "relu"}, "`beta_activation`"),
    "a gate without its numbers": ({}, {"gate_activation": "softplus"}, "`a_log`"),
    "no decay": ({"decay": None}, {}, "`decay`"),
    "nothing that says where sequences lie": (
        {"bounds": None, "state": None}, {}, "`cu_seqlens` or `initial_state`"
    ),
    "heads that do not divide each other": (
        {"query": normal(7, 4, 4), "key": normal(7, 4, 4)}, {}, "4 heads of queries"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DELTA_NETS)
def test_a_delta_net_is_refused(name: str) -> None:
    changes, attributes, words = DELTA_NETS[name]
    inputs = delta_net("gated_delta") | changes
    assert words in refusal("GatedDeltaNet", inputs, ("y", "final"), **attributes)
    with pytest.raises(RunFailed):
        ours("GatedDeltaNet", inputs, ("y", "final"), **attributes)


def test_captured_transitions_are_refused_where_somebody_reads_them() -> None:
    inputs = delta_net("gated_delta")
    inputs |= {"a_log": None, "dt_bias": None, "count": np.array([1, 2], np.int32)}
    said = refusal("GatedDeltaNet", inputs, ("y", "final", "update"), state_update_capacity=3)
    assert "`state_update_capacity` is `3`" in said
    _, outcome = standard("GatedDeltaNet", inputs, ("y", "final"), state_update_capacity=3)
    assert not outcome.refused
