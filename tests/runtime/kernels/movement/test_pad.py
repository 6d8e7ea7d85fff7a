"""Pad against a loop written from its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.movement.slicing import pad_2, pad_11
from tests.grids import each
from tests.runtime.kernels.arrays import DTYPES, array, same


def row(mode: str, size: int, wanted: int) -> int:
    """Return which of `size` elements stands at a place counted from the first one."""
    while not 0 <= wanted < size:
        if mode == "edge" or size == 1:
            return 0 if wanted < 0 else size - 1
        if mode == "wrap":
            wanted += size if wanted < 0 else -size
        else:  # mirrored on the first or the last element
            wanted = -wanted if wanted < 0 else 2 * (size - 1) - wanted
    return wanted


def oracle(data: np.ndarray, pads: list[tuple[int, int]], mode: str, fill: Any) -> np.ndarray:
    ends = zip(pads, data.shape, strict=True)
    kept = data[(*(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in ends), ...)]
    added = [(max(b, 0), max(a, 0)) for b, a in pads]
    shape = [b + n + a for (b, a), n in zip(added, kept.shape, strict=True)]
    result = np.empty(shape, data.dtype)
    for place in np.ndindex(*shape):
        source = [n - b for n, (b, _) in zip(place, added, strict=True)]
        if mode == "constant":
            inside = all(0 <= n < size for n, size in zip(source, kept.shape, strict=True))
            result[place] = kept[tuple(source)] if inside else fill
        else:
            source = [row(mode, size, n) for n, size in zip(source, kept.shape, strict=True)]
            result[place] = kept[tuple(source)]
    return result


@given(st.data())
def test_agrees_with_the_text(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank)))
    mode = data.draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    pads = []
    for size in shape:
        before = data.draw(st.integers(-size, 7))
        after = data.draw(st.integers(-size - min(before, 0), 7))
        left = size + min(before, 0) + min(after, 0)
        pads.append((before, after) if left or mode == "constant" else (0, 0))
    axes = list(data.draw(st.permutations(range(rank))))
    named = [data.draw(st.sampled_from([axis, axis - rank])) for axis in axes]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dtype = data.draw(st.sampled_from(DTYPES))
    source, fill = array(rng, dtype, shape), array(rng, dtype, ())

    flat = np.array([pads[a][0] for a in axes] + [pads[a][1] for a in axes], np.int64)
    output = pad_11(source, flat, fill, np.array(named, np.int64), mode=mode)
    assert same(output, oracle(source, pads, mode, fill[()]))


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = np.arange(5, dtype=np.float32)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("reflect", [1, 2, 3, 4, 3]), ("edge", [1, 2, 3, 4, 4]), ("wrap", [1, 2, 3, 4, 1])],
)
def test_what_is_removed_is_not_repeated(mode: str, expected: list[int]) -> None:
    output = pad_11(X, integers(-1, 1), mode=mode)  # as onnxruntime 1.31.1
    assert output.tolist() == expected


@each(("dtype", "fill"), [(np.float32, 0), (np.bool_, False), (object, ""), (np.int8, 0)])
def test_without_a_value_zero_is_added(dtype: Any, fill: Any) -> None:
    data = np.array(["a", "b"], object) if dtype is object else np.ones(2, dtype)
    output = pad_11(data, integers(1, 0), mode="constant")
    assert same(output, np.array([fill, *data], dtype))


def test_all_of_an_axis_can_be_removed_and_more_added() -> None:
    output = pad_11(X, integers(-7, 3), np.array(9, np.float32), mode="constant")
    assert output.tolist() == [9]  # as onnxruntime 1.31.1


def test_a_value_that_is_an_attribute_is_rounded_to_the_dtype() -> None:
    output = pad_2(X.astype(np.float16), pads=(0, 1), mode="constant", value=0.1)
    assert output.dtype == np.float16 and output[5] == np.float16(0.1)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "wrap before version 19": (
        lambda: pad_11(X, integers(1, 1), mode="wrap", is_before_19=True),
        "`mode` is `wrap`, expected one of `constant`, `reflect`, `edge`",
    ),
    "pads for another rank": (
        lambda: pad_11(X, integers(1, 1, 1, 1), mode="edge"),
        "`pads` has 4 elements, expected 2 for 1 axis of `data` with shape (5,)",
    ),
    "two values": (
        lambda: pad_11(X, integers(1, 1), X[:2], mode="constant"),
        "`constant_value` has shape (2,), expected one element",
    ),
    "more removed than there is": (
        lambda: pad_11(X, integers(-3, -3), mode="constant"),
        "`pads` of -3 and -3 remove more than there is from axis 0 of `data` with shape (5,)",
    ),
    "more removed than there is before something is repeated": (
        lambda: pad_11(X, integers(-6, 3), mode="edge"),
        "`pads` of -6 and 3 remove more than there is from axis 0 of `data` with shape (5,)",
    ),
    "nothing to repeat": (
        lambda: pad_11(X[:0], integers(0, 1), mode="wrap"),
        (
            "`pads` adds to axis 0 of `data` with shape (0,), where mode `wrap` has no element to "
            "repeat"
        ),
    ),
    "an axis named twice": (
        lambda: pad_11(X, integers(1, 1, 1, 1), None, integers(0, -1), mode="edge"),
        "`axes` [0, -1] names axis 0 twice, at positions 0 and 1",
    ),
}


@each(("run", "message"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refuses_what_the_text_does_not_allow(run: Callable[[], Any], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        run()
    assert caught.value.message == message
