"""Slice against a loop written from its text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.movement.slicing import slice_1
from tests.grids import each
from tests.runtime.kernels.arrays import DTYPES, array, same

BOUNDS = st.integers(-7, 7) | st.sampled_from([2**63 - 1, -(2**63), 2**31 - 1, -(2**31)])
STEPS = st.integers(-4, 4).filter(bool) | st.sampled_from([2**63 - 1, -(2**63)])


def chosen(start: int, end: int, step: int, size: int) -> list[int]:
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    found = []
    while start < end if step > 0 else start > end:
        found.append(start)
        start += step
    return found


def oracle(
    data: np.ndarray, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> np.ndarray:
    """Step along each axis between the bounds that the text clamps."""
    rows = [list(range(size)) for size in data.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        rows[axis % data.ndim] = chosen(start, end, step, data.shape[axis])
    result = np.empty([len(found) for found in rows], data.dtype)
    for place in np.ndindex(result.shape):
        result[place] = data[tuple(rows[axis][n] for axis, n in enumerate(place))]
    return result


@given(st.data())
def test_agrees_with_the_text(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 4))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    source = array(rng, data.draw(st.sampled_from(DTYPES)), shape)
    axes = data.draw(st.permutations(range(rank)))[: data.draw(st.integers(0, rank))]
    axes = [data.draw(st.sampled_from([axis, axis - rank])) for axis in axes]
    given = {
        name: data.draw(st.lists(numbers, min_size=len(axes), max_size=len(axes)))
        for name, numbers in (("starts", BOUNDS), ("ends", BOUNDS), ("steps", STEPS))
    }
    starts, ends, steps = given["starts"], given["ends"], given["steps"]
    output = slice_1(
        source,
        *(np.array(v, np.int64) for v in (starts, ends, axes, steps)),
    )
    assert same(output, oracle(source, starts, ends, axes, steps))
    ones = [1] * len(axes)
    output = slice_1(source, starts=tuple(starts), ends=tuple(ends), axes=tuple(axes))
    assert same(output, oracle(source, starts, ends, axes, ones))


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = np.arange(35, dtype=np.float32).reshape(5, 7)


def test_without_axes_the_first_ones_are_meant() -> None:
    output = slice_1(X, integers(1), integers(3))
    assert same(output, X[1:3])


def test_a_start_before_the_first_element_is_the_first_element_when_slicing_backward() -> None:
    # onnxruntime 1.31.1 agrees; onnx.reference 1.23.2 yields nothing.
    output = slice_1(X, integers(-100), integers(-100), integers(0), integers(-1))
    assert same(output, X[:1])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a step of nothing": ({"steps": integers(1, 0)}, "`steps` [1, 0] contains 0"),
    "an axis named twice": (
        {"axes": integers(1, -1)},
        "`axes` [1, -1] names axis 1 twice, at positions 0 and 1",
    ),
    "an axis that is not there": (
        {"axes": integers(0, 2)},
        "`axes[1]` is 2, expected -2 to 1: `data` has rank 2",
    ),
    "fewer ends than starts": (
        {"ends": integers(1)},
        "`ends` has 1 element, expected 2 as `starts`",
    ),
    "starts of rank 2": (
        {"starts": integers(1, 2)[None]},
        "`starts` has shape (1, 2), expected one dimension",
    ),
    "more starts than axes": (
        {"starts": integers(1, 2, 3), "ends": integers(1, 2, 3), "axes": None, "steps": None},
        "`starts` has 3 elements, expected at most 2: `data` has shape (5, 7)",
    ),
}


@each(("changed", "message"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refuses_what_the_text_does_not_allow(changed: dict[str, Any], message: str) -> None:
    given = {
        "starts": integers(0, 1),
        "ends": integers(2, 3),
        "axes": integers(0, 1),
        "steps": integers(1, 1),
        **changed,
    }
    with pytest.raises(KernelError) as caught:
        slice_1(X, **given)
    assert caught.value.message == message
