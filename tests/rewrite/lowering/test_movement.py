"""Operators that move data: GatherND, Pad, Split, the scatters, and the detours of their types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)
_BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize("batch", [1, 2])
def test_gather_nd_with_batch_dimensions(batch: int, symbolic: bool) -> None:
    indices = np.array([[[4, 6], [0, 1], [2, 2]], [[1, 0], [3, 5], [4, 4]]])  # (2, 3, 2)
    data = _X[:, 0] if batch == 1 else _X
    indices = indices if batch == 1 else indices[..., :1]
    inputs = {"data": data, "indices": indices}
    dims: Any = {"data": [f"d{i}" for i in range(data.ndim)]} if symbolic else None
    model = one_node("GatherND", inputs, [np.float32], opset=13, dims=dims, batch_dims=batch)
    check(model, inputs, 11)


def test_gather_nd_of_unknown_rank_is_refused() -> None:
    inputs = {"data": _X, "indices": np.zeros((2, 1), np.int64)}
    model = one_node(
        "GatherND", inputs, [np.float32], opset=13, dims={"indices": None}, batch_dims=1
    )
    found = refusal(model, 11)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 12)


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize("target", [11, 13, 17])
@pytest.mark.parametrize("mode", ["constant", "reflect", "wrap"])
@pytest.mark.parametrize("axes", [[1], [3, 2], [-1, 0]], ids=str)
def test_pads_of_some_axes(axes: list[int], mode: str, target: int, constant: bool) -> None:
    pads = np.array([1, 0, 0, 1] if len(axes) == 2 else [1, 2])
    inputs = {"data": _X, "pads": pads, "value": None, "axes": np.array(axes)}
    constants = ["axes", "pads"] if constant else []
    model = one_node("Pad", inputs, [np.float32], opset=19, constants=constants, mode=mode)
    whole = [(0, 0)] * 4
    for i, axis in enumerate(axes):
        whole[axis] = (int(pads[i]), int(pads[i + len(axes)]))
    check(model, inputs, target, [np.pad(_X, whole, mode=mode)])


def test_negative_pads_crop_also_where_they_wrap() -> None:
    inputs = {"data": _X, "pads": np.array([0, -1, 2, 0, 0, 1, -2, 9])}
    expected = np.take(_X, [1, 2, 0], 1)
    expected = np.take(expected, [3, 4, 0, 1, 2], 2)
    expected = np.take(expected, [*range(7), *range(7), 0, 1], 3)
    model = one_node("Pad", inputs, [np.float32], opset=19, mode="wrap")
    check(model, inputs, 18, [expected])


def test_pads_of_some_axes_of_an_unknown_rank_are_refused() -> None:
    inputs = {"data": _X, "pads": np.array([1, 1]), "value": None, "axes": np.array([1])}
    model = one_node("Pad", inputs, [np.float32], opset=18, dims={"data": None})
    found = refusal(model, 17)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 18)


@pytest.mark.parametrize("target", [11, 12])
@pytest.mark.parametrize("sizes", [[2, 3], [5, 0], [0, 5]], ids=str)
def test_split_into_sizes_known_at_run_time_only(sizes: list[int], target: int) -> None:
    inputs = {"input": _X, "split": np.array(sizes)}
    model = one_node("Split", inputs, [np.float32] * 2, opset=18, axis=2)
    check(model, inputs, target)


@pytest.mark.parametrize("target", [11, 13])
def test_split_of_a_size_known_at_run_time_only_into_uneven_parts(target: int) -> None:
    inputs = {"input": _X}
    model = one_node(
        "Split",
        inputs,
        [np.float32] * 3,
        opset=18,
        dims={"input": ["a", "b", "c", "d"]},
        axis=3,
        num_outputs=3,
    )
    parts = [_X[..., :3], _X[..., 3:6], _X[..., 6:]]
    check(model, inputs, target, parts)


_REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("target", [11, 13, 15])
@pytest.mark.parametrize("reduction", list(_REDUCTIONS))
def test_scatter_nd_reduces_at_distinct_places(reduction: str, target: int) -> None:
    data = np.array([[3, -1, 5], [2, 7, 1]], np.float32)
    indices = np.array([[1, 0], [0, -1], [-2, 1]])
    updates = np.array([4, 4, 4], np.float32)
    inputs = {"data": data, "indices": indices, "updates": updates}
    expected = data.copy()
    for place, update in zip(indices, updates, strict=True):
        expected[tuple(place)] = _REDUCTIONS[reduction](expected[tuple(place)], update)
    model = one_node(
        "ScatterND", inputs, [np.float32], opset=18, constants=["indices"], reduction=reduction
    )
    check(model, inputs, target, [expected])


@pytest.mark.parametrize("reduction", list(_REDUCTIONS))
def test_scatter_elements_reduces_at_distinct_places(reduction: str) -> None:
    data = np.array([[3, -1, 5], [2, 7, 1]], np.float32)
    indices = np.array([[0, 2], [1, 0]])
    updates = np.array([[4, 4], [1, 1]], np.float32)
    inputs = {"data": data, "indices": indices, "updates": updates}
    expected = data.copy()
    for row, column in np.ndindex(2, 2):
        place = (row, indices[row, column])
        expected[place] = _REDUCTIONS[reduction](expected[place], updates[row, column])
    model = one_node(
        "ScatterElements",
        inputs,
        [np.float32],
        opset=18,
        constants=["indices"],
        axis=1,
        reduction=reduction,
    )
    check(model, inputs, 15, [expected])


_REPEATED = {
    "the same tuple": ([[1, 0], [1, 0]], True),
    "the same tuple counted from the end": ([[1, 0], [-1, -3]], True),
    "indices known at run time only": ([[1, 0], [0, 0]], False),
}


@pytest.mark.parametrize(("indices", "constant"), list(_REPEATED.values()), ids=list(_REPEATED))
def test_a_place_that_may_be_named_twice_is_refused(
    indices: list[list[int]], constant: bool
) -> None:
    inputs = {
        "data": np.zeros((2, 3), np.float32),
        "indices": np.array(indices),
        "updates": np.ones(2, np.float32),
    }
    constants = ["indices"] if constant else []
    model = one_node(
        "ScatterND", inputs, [np.float32], opset=18, constants=constants, reduction="add"
    )
    found = refusal(model, 13)
    assert (found.code, found.lowest_opset) == ("repeated-index", 16)


_PATTERNS = np.arange(2**16, dtype=np.uint16).view(_BF16)
_NUMBERS = _PATTERNS[~np.isnan(_PATTERNS.astype(np.float32))]


@pytest.mark.parametrize("target", [13, 18])
def test_every_bfloat16_number_passes_through_float32(target: int) -> None:
    inputs = {
        "input": _NUMBERS.reshape(2, -1),
        "sequence_lens": np.array([_NUMBERS.size // 2, 3]),
    }
    expected = inputs["input"].copy()
    expected[0] = expected[0, ::-1]
    expected[1, :3] = expected[1, 2::-1]
    model = one_node("ReverseSequence", inputs, [_BF16], opset=28, batch_axis=0, time_axis=1)
    model.ir_version = 13
    check(model, inputs, target, [expected])


def test_an_element_type_that_cast_lacks_too_is_refused() -> None:
    inputs = {"input": np.ones((2, 3), _BF16), "condition": np.array([True, False])}
    model = one_node("Compress", inputs, [_BF16], opset=28, axis=0)
    model.ir_version = 13
    found = refusal(model, 12)
    assert (found.code, found.lowest_opset) == ("element-type", 13)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_bytes(dtype: type) -> None:
    x = np.random.default_rng(29).integers(0, 100, (1, 2, 5, 7)).astype(dtype)
    inputs = {"X": x}
    model = one_node("MaxPool", inputs, [dtype], opset=12, kernel_shape=[2, 2])
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3))
    check(model, inputs, 11, [windows.max(axis=(-2, -1))])


def test_is_inf_of_float16() -> None:
    x = np.array([np.inf, -np.inf, 65504, np.nan, 0], np.float16)
    model = one_node("IsInf", {"X": x}, [np.bool_], opset=20, detect_negative=0)
    check(model, {"X": x}, 19, [np.array([True, False, False, False, False])])
