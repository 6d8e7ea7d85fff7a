"""ScatterND and ScatterElements that reduce, for opsets that lack it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.commands.lower import lower
from tests.grids import part, search
from tests.rewrite.lowering.single import check, one_node, refusal

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


def _scattered(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str
) -> np.ndarray:
    """Return what the text of ScatterND says, one update after the other."""
    result = data.copy()
    rest = updates.shape[indices.ndim - 1 :]
    rows = indices.reshape(-1, indices.shape[-1])
    for place, update in zip(rows, updates.reshape(-1, *rest), strict=True):
        result[tuple(place)] = _REDUCTIONS[reduction](result[tuple(place)], update)
    return result


def _along(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str
) -> np.ndarray:
    """Return what the text of ScatterElements says, one update after the other."""
    result = data.copy()
    for at in np.ndindex(*indices.shape):
        place = list(at)
        place[axis] = indices[at]
        result[tuple(place)] = _REDUCTIONS[reduction](result[tuple(place)], updates[at])
    return result


_RNG = np.random.default_rng(53)
_DATA = _RNG.normal(size=(3, 2, 5)).astype(np.float32)
_ROWS = {
    "rows": np.array([[1], [-2], [1], [0], [1]]),
    "lines": np.array([[[1, 0], [2, -1]], [[-2, 0], [1, 0]]]),
    "elements": np.array([[0, 0, 1], [0, 1, -4], [0, 0, 1], [-3, -2, -4]]),
    "nothing": np.zeros((0, 2), np.int64),
}


@pytest.mark.long
@part(6)
@pytest.mark.parametrize("target", [9, 11, 13, 15])
@pytest.mark.parametrize("known", ["constant", "sizes", "names"])
@pytest.mark.parametrize("reduction", list(_REDUCTIONS))
@pytest.mark.parametrize("indices", list(_ROWS.values()), ids=list(_ROWS))
def test_scatter_nd_at_repeated_places(
    indices: np.ndarray, reduction: str, known: str, target: int
) -> None:
    if known == "names" and target == 9:
        target = 11  # the length of an index is unknown in the Loop, which opset 10 asks for
    depth = indices.shape[-1]
    shape = (*indices.shape[:-1], *_DATA.shape[depth:])
    inputs = {
        "data": _DATA,
        "indices": indices,
        "updates": _RNG.normal(size=shape).astype(np.float32),
    }
    dims = {
        "data": ["A", "B", "C"],
        "indices": [*(f"n{i}" for i in range(indices.ndim - 1)), depth],
        "updates": [f"u{i}" for i in range(len(shape))],
    }
    model = one_node(
        "ScatterND",
        inputs,
        [np.float32],
        opset=18,
        constants=["indices"] if known == "constant" else [],
        dims=dims if known == "names" else None,
        reduction=reduction,
    )
    expected = _scattered(_DATA, indices, inputs["updates"], reduction)
    check(model, inputs, target, [expected])


@pytest.mark.long
@part(6)
@pytest.mark.parametrize("target", [9, 11, 13, 15])
@pytest.mark.parametrize("known", ["sizes", "names"])
@pytest.mark.parametrize("reduction", list(_REDUCTIONS))
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements_at_repeated_places(
    axis: int, reduction: str, known: str, target: int
) -> None:
    if known == "names" and target == 9:
        target = 11
    indices = _RNG.integers(-2, 2, (2, 2, 4))
    inputs = {
        "data": _DATA,
        "indices": indices,
        "updates": _RNG.normal(size=(2, 2, 4)).astype(np.float32),
    }
    model = one_node(
        "ScatterElements",
        inputs,
        [np.float32],
        opset=18,
        dims={"data": "ABC", "indices": "XYZ", "updates": "XYZ"} if known == "names" else None,
        axis=axis,
        reduction=reduction,
    )
    expected = _along(_DATA, indices, inputs["updates"], axis, reduction)
    check(model, inputs, target, [expected])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.float16])
@pytest.mark.parametrize("reduction", ["add", "min"])
def test_other_types_at_repeated_places(reduction: str, dtype: type) -> None:
    data = _RNG.integers(-9, 9, (3, 5)).astype(dtype)
    indices = np.array([[1], [0], [1], [1]])
    updates = _RNG.integers(-9, 9, (4, 5)).astype(dtype)
    inputs = {"data": data, "indices": indices, "updates": updates}
    model = one_node("ScatterND", inputs, [dtype], opset=18, reduction=reduction)
    check(model, inputs, 11, [_scattered(data, indices, updates, reduction)])


@search(25)
@given(
    rows=st.lists(st.integers(-4, 3), min_size=1, max_size=12),
    reduction=st.sampled_from(list(_REDUCTIONS)),
    target=st.sampled_from([10, 11, 15]),
)
def test_any_order_of_places(rows: list[int], reduction: str, target: int) -> None:
    """Sums are rounded as if one update came after the other."""
    data = _RNG.normal(size=4).astype(np.float32)
    updates = (_RNG.normal(size=len(rows)) * 10.0 ** _RNG.integers(-4, 4, len(rows))).astype(
        np.float32
    )
    indices = np.array(rows)[:, None]
    inputs = {"data": data, "indices": indices, "updates": updates}
    model = one_node("ScatterND", inputs, [np.float32], opset=18, reduction=reduction)
    check(model, inputs, target, [_scattered(data, indices, updates, reduction)])


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
def test_one_index_needs_no_loop(op: str) -> None:
    indices = np.array([[1, 0]]) if op == "ScatterND" else np.array([[1, 0, 1]])
    inputs = {
        "data": np.zeros((2, 3), np.float32),
        "indices": indices,
        "updates": np.ones(1 if op == "ScatterND" else (1, 3), np.float32),
    }
    model = one_node(op, inputs, [np.float32], opset=18, reduction="add")
    lowered, _ = lower(ir.from_proto(model), opset=13, verify=False)
    assert "Loop" not in [node.op_type for node in lowered.graph]
    check(model, inputs, 13)


@pytest.mark.parametrize(
    ("dims", "code"),
    [({"data": None}, "unknown-rank"), ({"indices": ["n", "q"]}, "unknown-dimension")],
    ids=["an unknown rank", "an unknown length of an index"],
)
def test_what_is_not_known_is_refused(dims: Any, code: str) -> None:
    inputs = {
        "data": np.zeros((2, 3), np.float32),
        "indices": np.array([[1, 0], [0, 0]]),
        "updates": np.ones(2, np.float32),
    }
    model = one_node("ScatterND", inputs, [np.float32], opset=18, dims=dims, reduction="add")
    found = refusal(model, 13)
    assert (found.code, found.lowest_opset) == (code, 16)
