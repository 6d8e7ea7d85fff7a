"""DeformConv-22 and DeformConv-19, for older opsets."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

pytestmark = pytest.mark.long

_RNG = np.random.default_rng(47)


def _pixel(picture: np.ndarray, at: np.ndarray) -> float:
    """Return a point of one channel, linear between the pixels, zero outside."""
    total = 0.0
    low = np.floor(at)
    for step in itertools.product((0, 1), repeat=len(at)):
        tap = low + step
        share = np.prod(1 - np.abs(at - tap))
        if all(0 <= t < size for t, size in zip(tap, picture.shape, strict=True)):
            total += share * picture[tuple(tap.astype(int))]
    return float(total)


def _by_hand(
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    b: np.ndarray | None,
    mask: np.ndarray | None,
    *,
    group: int = 1,
    offset_group: int = 1,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> np.ndarray:
    """Return what the text says, point by point."""
    rank, kernel = x.ndim - 2, w.shape[2:]
    s, d = strides or [1] * rank, dilations or [1] * rank
    p = pads or [0] * 2 * rank
    out, elements = offset.shape[2:], math.prod(kernel)
    moved = offset.reshape(x.shape[0], offset_group, elements, rank, *out)
    weights = np.ones((x.shape[0], offset_group, elements, *out))
    if mask is not None:
        weights = mask.reshape(weights.shape)
    y = np.zeros((x.shape[0], w.shape[0], *out))
    filters, channels = w.shape[0] // group, w.shape[1]
    for n, channel, place, (k, tap) in itertools.product(
        range(x.shape[0]),
        range(x.shape[1]),
        list(np.ndindex(*out)),
        list(enumerate(np.ndindex(*kernel))),
    ):
        part_ = channel // (x.shape[1] // offset_group)
        at = np.array([place[i] * s[i] - p[i] + tap[i] * d[i] for i in range(rank)], np.float64)
        at += moved[(n, part_, k, slice(None), *place)]
        value = _pixel(x[n, channel], at) * weights[(n, part_, k, *place)]
        number, c = divmod(channel, channels)
        those = slice(number * filters, (number + 1) * filters)
        y[(n, those, *place)] += w[(those, c, *tap)] * value
    if b is not None:
        y += b.reshape(1, -1, *[1] * rank)
    return y.astype(x.dtype)


_CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "plain": ({}, [4, 5]),
    "groups": ({"group": 2}, [4, 5]),
    "groups of offsets": ({"offset_group": 2}, [4, 5]),
    "both": ({"group": 2, "offset_group": 4}, [4, 5]),
    "strides, gaps and pads": (
        {"strides": [2, 1], "dilations": [1, 3], "pads": [1, 0, 1, 2]},
        [3, 5],
    ),
}


def _inputs(attributes: Any, out: list[int]) -> dict[str, np.ndarray | None]:
    parts = attributes.get("offset_group", 1)
    channels = 4 // attributes.get("group", 1)
    size = [2, parts * 6 * 2, *out]
    return {
        "X": _RNG.normal(size=(2, 4, 5, 7)).astype(np.float32),
        "W": _RNG.normal(size=(6, channels, 2, 3)).astype(np.float32),
        "offset": _RNG.uniform(-2, 2, size).astype(np.float32),
        "B": _RNG.normal(size=6).astype(np.float32),
        "mask": _RNG.uniform(0, 1, [2, parts * 6, *out]).astype(np.float32),
    }


@part(24)
@pytest.mark.parametrize("target", [9, 11, 18])
@pytest.mark.parametrize("more", ["B", "mask", "both", ""])
@pytest.mark.parametrize("named", [False, True], ids=["known", "named"])
@pytest.mark.parametrize(("attributes", "out"), list(_CASES.values()), ids=list(_CASES))
def test_filters(attributes: Any, out: list[int], named: bool, more: str, target: int) -> None:
    inputs = _inputs(attributes, out)
    if more == "B":
        inputs["mask"] = None
    elif more == "mask":
        inputs["B"] = None
    elif not more:
        inputs["B"] = inputs["mask"] = None
    dims = None
    if named:
        dims = {"X": ["N", 4, "H", "W"], "offset": ["N", "T", "h", "w"]}
    model = one_node("DeformConv", inputs, [np.float32], opset=22, dims=dims, **attributes)
    expected = _by_hand(*inputs.values(), **attributes)  # type: ignore[arg-type]
    check(model, inputs, target, [expected], rtol=2e-5)


@pytest.mark.exhaustive
def test_as_onnx_reference_has_it() -> None:
    attributes = {"offset_group": 2, "pads": [1, 1, 1, 1]}
    inputs = _inputs(attributes, [6, 7])
    model = one_node("DeformConv", inputs, [np.float32], opset=22, **attributes)
    check(model, inputs, 13, rtol=2e-5)


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    inputs: dict[str, np.ndarray | None] = {
        "X": _RNG.normal(size=(1, 2, *[4, 5, 3][:rank])),
        "W": _RNG.normal(size=(3, 2, *[2, 2, 2][:rank])),
        "offset": _RNG.uniform(-1, 1, (1, 2**rank * rank, *[3, 4, 2][:rank])),
        "B": None,
        "mask": None,
    }
    model = one_node("DeformConv", inputs, [np.float64], opset=22)
    check(model, inputs, 13, [_by_hand(*inputs.values())], rtol=1e-9)  # type: ignore[arg-type]


def test_points_far_outside_and_such_as_are_no_numbers_are_zero() -> None:
    inputs = _inputs({}, [4, 5])
    offset = np.zeros_like(inputs["offset"])  # type: ignore[arg-type]
    offset[0], offset[1, ::2], offset[1, 1::2] = 1e30, np.nan, np.inf
    inputs |= {"offset": offset, "B": None, "mask": None}
    model = one_node("DeformConv", inputs, [np.float32], opset=22)
    check(model, inputs, 13, [np.zeros((2, 6, 4, 5), np.float32)])


@pytest.mark.parametrize(
    "dims",
    [{"X": ["N", "C", 5, 7]}, {"W": [6, 4, "k", 3]}, {"X": None}],
    ids=["channels", "filters", "a rank"],
)
def test_what_is_not_known_is_refused(dims: Any) -> None:
    model = one_node("DeformConv", _inputs({}, [4, 5]), [np.float32], opset=22, dims=dims)
    found = refusal(model, 18)
    assert (found.code, found.lowest_opset) == ("unknown-dimension", 19)


def test_a_release_without_a_kernel_is_given_other_operators() -> None:
    model = one_node("DeformConv", _inputs({}, [4, 5]), [np.float32], opset=22)
    lowered, _ = lower(ir.from_proto(model), target="openvino", verify=False)
    assert "DeformConv" not in [node.op_type for node in lowered.graph]
    assert lowered.opset_imports[""] == 22
