"""What onnxruntime writes into networks of pictures, in its standard form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import OPSETS, Array, demand_same, normal, refusal
from tests.rewrite.contrib.test_quantized import codes, number, point
from tests.runtime.kernels.contrib.node import needs_onnxruntime

pytestmark = needs_onnxruntime

REALS = st.sampled_from([np.float32, np.float16])
some = search(60)


def grouped(x: Array, gamma: Array, beta: Array, groups: int, epsilon: float, act: int) -> Array:
    """Return the formula of the documentation, channels last: onnxruntime has it on GPUs alone."""
    parts = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[3] // groups)
    mean = parts.mean(axis=(1, 3), keepdims=True)
    spread = parts.var(axis=(1, 3), keepdims=True)
    y = ((parts - mean) / np.sqrt(spread + epsilon)).reshape(x.shape)
    y = y * gamma.astype(np.float64) + beta.astype(np.float64)
    return np.asarray((y / (1 + np.exp(-y)) if act else y).astype(x.dtype))


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    factors=REALS,
    last=st.booleans(),
    act=st.sampled_from([0, 1]),
    groups=st.sampled_from([1, 2, 6]),
    epsilon=st.sampled_from([1e-5, 0.1]),
)
def test_group_norm(
    opset: int, dtype: Any, factors: Any, last: bool, act: int, groups: int, epsilon: float
) -> None:
    x, gamma, beta = normal(2, 5, 7, 6, dtype=dtype), normal(6, dtype=factors), normal(6, seed=4)
    expected = grouped(x, gamma, beta.astype(factors), groups, epsilon, act)
    if not last:
        x, expected = (np.ascontiguousarray(each.transpose(0, 3, 1, 2)) for each in (x, expected))
    demand_same(
        "GroupNorm",
        {"X": x, "gamma": gamma, "beta": beta.astype(factors)},
        at=opset,
        expected={"y": expected},
        activation=act,
        groups=groups,
        epsilon=epsilon,
        channels_last=int(last),
    )


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    skip=st.sampled_from([(2, 5, 7, 6), (2, 1, 1, 6), (2, 6)]),
    bias=st.booleans(),
    total=st.booleans(),
    act=st.sampled_from([0, 1]),
)
def test_skip_group_norm(
    opset: int, dtype: Any, skip: Any, bias: bool, total: bool, act: int
) -> None:
    inputs = {
        "X": normal(2, 5, 7, 6, dtype=dtype),
        "gamma": normal(6),
        "beta": normal(6, seed=4),
        "skip": normal(*skip, dtype=dtype, seed=5),
        "bias": normal(6, dtype=dtype, seed=6) if bias else None,
    }
    left, right = inputs["X"], inputs["skip"]
    assert left is not None and right is not None
    added = left + (right if right.ndim == 4 else right[:, None, None, :])
    if (shift := inputs["bias"]) is not None:
        added = added + shift
    gamma, beta = inputs["gamma"], inputs["beta"]
    assert gamma is not None and beta is not None
    expected = {"y": grouped(added, gamma, beta, 2, 1e-5, act)} | ({"s": added} if total else {})
    outputs = ("y", "s") if total else ("y",)
    given_ = {"activation": act, "groups": 2}
    demand_same("SkipGroupNorm", inputs, outputs, at=opset, expected=expected, **given_)


def test_channels_in_front_of_a_skip_are_refused() -> None:
    x = normal(2, 6, 5, 7)
    inputs = {"X": x, "gamma": normal(6), "beta": normal(6), "skip": x}
    assert "`channels_last`" in refusal(
        "SkipGroupNorm", inputs, activation=0, groups=2, channels_last=0
    )


@some
@given(opset=OPSETS, dtype=REALS)
def test_bias_add(opset: int, dtype: Any) -> None:
    x, bias, skip = (
        normal(2, 5, 7, dtype=dtype), normal(7, dtype=dtype), normal(2, 5, 7, dtype=dtype, seed=4)
    )  # fmt: skip
    inputs = {"X": x, "bias": bias, "skip": skip}
    demand_same("BiasAdd", inputs, at=opset, expected={"y": x + bias + skip})


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.uint8, np.int8]),
    how=st.sampled_from(["plain", "pads", "strides", "dilations", "ceil", "same"]),
)
def test_nhwc_max_pool(opset: int, dtype: Any, how: str) -> None:
    # Below opset 12 MaxPool takes no codes, and the result goes through another type.
    attributes: dict[str, Any] = {
        "plain": {},
        "pads": {"pads": [1, 0, 1, 2]},
        "strides": {"strides": [2, 1]},
        "dilations": {"dilations": [2, 1]},
        "ceil": {"strides": [2, 2], "ceil_mode": 1},
        "same": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    }[how]
    inputs = {"x": codes(2, 5, 7, 3, dtype=dtype)}
    demand_same("NhwcMaxPool", inputs, at=opset, kernel_shape=[2, 3], **attributes)


@some
@given(
    opset=OPSETS,
    filters=st.sampled_from([np.uint8, np.int8]),
    last=st.booleans(),
    group=st.sampled_from([1, 2]),
    bias=st.booleans(),
    columns=st.booleans(),
    pads=st.sampled_from([None, [1, 0, 1, 2]]),
)
def test_q_linear_conv(
    opset: int, filters: Any, last: bool, group: int, bias: bool, columns: bool, pads: Any
) -> None:
    per = (6,) if columns else ()
    x = codes(2, 4, 5, 7)
    inputs = {
        "x": np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x,
        "x_scale": number(0.02),
        "x_zero_point": point(np.uint8),
        "w": codes(6, 4 // group, 3, 2, dtype=filters),
        "w_scale": np.broadcast_to(number(0.01), per).copy(),
        "w_zero_point": np.zeros(per, filters),
        "y_scale": number(0.3),
        "y_zero_point": point(np.uint8),
        "B": codes(6, dtype=np.int8).astype(np.int32) * 50 if bias else None,
    }
    attributes: dict[str, Any] = {"channels_last": int(last), "group": group}
    if pads:
        attributes["pads"] = pads
    constants = [name for name, value in inputs.items() if name != "x" and value is not None]
    demand_same("QLinearConv", inputs, at=opset, steps=1, constants=constants, **attributes)


@pytest.mark.parametrize("name", ["GroupNorm", "SkipGroupNorm"])
def test_an_activation_that_nobody_knows_is_refused(name: str) -> None:
    x = normal(2, 5, 7, 6)
    inputs = {"X": x, "gamma": normal(6), "beta": normal(6)}
    if name == "SkipGroupNorm":
        inputs["skip"] = x
    assert "`activation`" in refusal(name, inputs, activation=2, groups=2)
