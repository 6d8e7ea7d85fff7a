"""Pools that round up or skip pixels, for opsets that know neither, or begin windows in padding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_kvtool.runtime import onnxruntime
from tests.grids import part, search
from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(23)
_IMAGE = _RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
_POOLS = ("AveragePool", "LpPool", "MaxPool")


def _by_hand(
    op: str,
    x: np.ndarray,
    kernel_shape: list[int],
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    p: int = 2,
) -> np.ndarray:
    """Return what the text of opset 22 says, window by window."""
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads, counts = pads or [0] * 2 * rank, []
    for i in range(rank):
        room = x.shape[2 + i] + pads[i] + pads[rank + i] - (kernel_shape[i] - 1) * dilations[i] - 1
        count = (math.ceil if ceil_mode else math.floor)(room / strides[i]) + 1
        if ceil_mode and (count - 1) * strides[i] >= x.shape[2 + i] + pads[i]:
            count -= 1
        counts.append(count)
    y = np.zeros((*x.shape[:2], *counts), np.float64)
    for place in np.ndindex(*counts):
        taps, padding = [], 0
        for tap in itertools.product(*map(range, kernel_shape)):
            at = [place[i] * strides[i] + tap[i] * dilations[i] - pads[i] for i in range(rank)]
            if all(0 <= a < x.shape[2 + i] for i, a in enumerate(at)):
                taps.append(x[(slice(None), slice(None), *at)].astype(np.float64))
            elif all(-pads[i] <= a < x.shape[2 + i] + pads[rank + i] for i, a in enumerate(at)):
                padding += 1
        index = (slice(None), slice(None), *place)
        if op == "MaxPool":
            y[index] = np.max(taps, axis=0)
        elif op == "LpPool":
            y[index] = np.sum(np.abs(taps) ** p, axis=0) ** (1 / p)
        else:
            y[index] = np.sum(taps, axis=0) / (len(taps) + padding * count_include_pad)
    return y.astype(x.dtype)


_CASES: dict[str, dict[str, Any]] = {
    "gaps": {"dilations": [2, 3]},
    "gaps in one axis, with steps": {"dilations": [1, 3], "strides": [2, 2]},
    "gaps and padding": {"dilations": [2, 2], "pads": [1, 1, 0, 1]},
    "gaps, padding and rounding up": {
        "dilations": [2, 2],
        "pads": [1, 0, 0, 1],
        "strides": [3, 3],
        "ceil_mode": 1,
    },
    "rounding up": {"strides": [2, 3], "ceil_mode": 1},
    "rounding up with padding": {
        "kernel_shape": [3, 3],
        "strides": [2, 2],
        "pads": [1, 1, 0, 1],
        "ceil_mode": 1,
    },
}


@part(3)
@pytest.mark.parametrize("target", [9, 11, 17])
@pytest.mark.parametrize("op", _POOLS)
@pytest.mark.parametrize("attributes", list(_CASES.values()), ids=list(_CASES))
def test_windows(op: str, attributes: Any, target: int) -> None:
    attributes = {"kernel_shape": [2, 2], **attributes}
    model = one_node(op, {"X": _IMAGE}, [np.float32], opset=22, **attributes)
    expected = _by_hand(op, _IMAGE, **attributes)
    check(model, {"X": _IMAGE}, target, [expected], rtol=1e-5)


@pytest.mark.parametrize("attributes", list(_CASES.values()), ids=list(_CASES))
def test_padding_that_counts(attributes: Any) -> None:
    attributes = {"kernel_shape": [2, 2], **attributes, "count_include_pad": 1}
    model = one_node("AveragePool", {"X": _IMAGE}, [np.float32], opset=22, **attributes)
    expected = _by_hand("AveragePool", _IMAGE, **attributes)
    check(model, {"X": _IMAGE}, 13, [expected], rtol=1e-5)


@pytest.mark.parametrize("op", ["AveragePool", "LpPool"])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
def test_gaps_in_pictures_of_any_size(op: str, auto_pad: str) -> None:
    attributes = {"kernel_shape": [2, 3], "dilations": [2, 2], "auto_pad": auto_pad}
    if auto_pad == "NOTSET":
        attributes["pads"] = [1, 1, 1, 0]
    inputs, dims = {"X": _IMAGE}, {"X": ["N", 3, "H", "W"]}
    model = one_node(op, inputs, [np.float32], opset=22, dims=dims, **attributes)
    pads = {
        "NOTSET": [1, 1, 1, 0],
        "SAME_UPPER": [1, 2, 1, 2],
        "SAME_LOWER": [1, 2, 1, 2],
        "VALID": None,
    }[auto_pad]
    expected = _by_hand(op, _IMAGE, [2, 3], dilations=[2, 2], pads=pads)
    check(model, inputs, 11, [expected], rtol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3], "strides": [2, 2]},
        {"kernel_shape": [1, 1], "strides": [4, 4], "pads": [0, 0, 0, 0]},
        {"kernel_shape": [2, 2], "strides": [4, 4], "pads": [0, 0, 1, 1]},
    ],
    ids=["windows that begin inside", "a window behind", "a window that begins in the padding"],
)
def test_pools_that_round_up_as_onnxruntime_has_them(op: str, attributes: Any) -> None:
    inputs = {"X": _IMAGE}
    model = one_node(op, inputs, [np.float32], opset=22, ceil_mode=1, **attributes)
    expected = onnxruntime.Session(model.SerializeToString(), "").run(inputs)["out0"]
    np.testing.assert_allclose(expected, _by_hand(op, _IMAGE, ceil_mode=1, **attributes), rtol=1e-5)
    check(model, inputs, 12, [expected], rtol=1e-5)


def test_the_indices_of_max_pool_stay() -> None:
    inputs = {"X": _IMAGE}
    attributes = {"kernel_shape": [3, 3], "strides": [2, 4], "ceil_mode": 1}
    model = one_node("MaxPool", inputs, [np.float32, np.int64], opset=22, **attributes)
    found = onnxruntime.Session(model.SerializeToString(), "").run(inputs)
    check(model, inputs, 9, [found["out0"], found["out1"]])


@pytest.mark.long
@pytest.mark.parametrize("op", ["AveragePool", "LpPool"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(op: str, dtype: type) -> None:
    inputs = {"X": _IMAGE.astype(dtype)}
    model = one_node(op, inputs, [dtype], opset=22, kernel_shape=[2, 2], dilations=[2, 2])
    expected = _by_hand(op, inputs["X"], [2, 2], dilations=[2, 2])
    check(model, inputs, 13, [expected], rtol=2e-3 if dtype == np.float16 else 1e-7)


def test_what_is_not_a_number_stays_in_its_windows() -> None:
    image = _IMAGE.copy()
    image[0, 1, 2, 3], image[1, 0, 0, 0] = np.nan, np.inf
    attributes = {"kernel_shape": [2, 2], "dilations": [2, 2]}
    model = one_node("AveragePool", {"X": image}, [np.float32], opset=22, **attributes)
    expected = _by_hand("AveragePool", image, [2, 2], dilations=[2, 2])
    check(model, {"X": image}, 11, [expected], rtol=1e-5)


@search(40)
@given(
    op=st.sampled_from(_POOLS),
    size=st.integers(3, 9),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    rounds_up=st.booleans(),
    target=st.sampled_from([9, 11, 17]),
)
def test_any_window(
    op: str,
    size: int,
    kernel: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    rounds_up: bool,
    target: int,
) -> None:
    assume(max(pads) < kernel)
    assume(size + sum(pads) >= (kernel - 1) * dilation + 1)
    count = math.ceil((size + sum(pads) - (kernel - 1) * dilation - 1) / stride) + 1
    assume(op != "LpPool" or (count - 1) * stride < size + pads[0])  # the text leaves it open
    x = _RNG.normal(size=(1, 2, size)).astype(np.float32)
    attributes = {
        "kernel_shape": [kernel],
        "strides": [stride],
        "dilations": [dilation],
        "pads": list(pads),
        "ceil_mode": int(rounds_up),
    }
    with np.errstate(all="ignore"):
        expected = _by_hand(op, x, **attributes)  # type: ignore[arg-type]
    assume(np.isfinite(expected).all())
    model = one_node(op, {"X": x}, [np.float32], opset=22, **attributes)
    check(model, {"X": x}, target, [expected], rtol=1e-5)


_GAPS = {"kernel_shape": [2, 2], "dilations": [2, 2]}
_SAME = {**_GAPS, "strides": [2, 2], "auto_pad": "SAME_UPPER"}
_UP = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
_UNKNOWN = {"X": [2, 3, "H", "W"]}


@pytest.mark.parametrize(
    ("op", "opset", "attributes", "dims", "target", "code", "lowest"),
    [
        ("MaxPool", 22, _UP, _UNKNOWN, 21, "changed-meaning", 22),
        ("AveragePool", 22, _GAPS, {"X": ["N", "C", 5, 7]}, 18, "unknown-dimension", 19),
        ("MaxPool", 12, _GAPS, _UNKNOWN, 9, "unknown-dimension", 10),
        ("AveragePool", 22, _SAME, _UNKNOWN, 18, "unknown-dimension", 19),
        (
            "MaxPool",
            12,
            {"kernel_shape": [2, 2], "strides": [4, 4], "pads": [0, 0, 1, 1], "ceil_mode": 1},
            None,
            9,
            "changed-meaning",
            10,
        ),
    ],
    ids=[
        "rounding up unknown sizes",
        "gaps between an unknown number of channels",
        "gaps in unknown sizes",
        "gaps, with padding that unknown sizes decide on",
        "a window that older opsets begin in the padding",
    ],
)
def test_refused(
    op: str, opset: int, attributes: Any, dims: Any, target: int, code: str, lowest: int
) -> None:
    model = one_node(op, {"X": _IMAGE}, [np.float32], opset=opset, dims=dims, **attributes)
    found = refusal(model, target)
    assert (found.code, found.lowest_opset) == (code, lowest)
