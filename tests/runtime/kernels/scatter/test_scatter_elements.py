"""ScatterElements against a loop written from its text, and what the text does not allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Context
from onnx_kvtool.runtime.kernels.scatter.scatter import (
    scatter_elements_11,
)
from tests.grids import each
from tests.runtime.kernels.arrays import DTYPES, recording, same
from tests.runtime.kernels.scatter import oracle


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 4))
    axis = draw(st.integers(0, rank - 1))
    data = draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    shape = [draw(st.integers(0, n)) for n in data]
    shape[axis] = draw(st.integers(0, 5)) if data[axis] else 0
    reduction, dtype = draw(oracle.reductions())
    return {
        "data": tuple(data),
        "indices": tuple(shape),
        "axis": axis,
        "from_back": draw(st.booleans()),
        "reduction": reduction,
        "dtype": dtype,
        "index_dtype": draw(st.sampled_from([np.int32, np.int64])),
        "negative": draw(st.booleans()),
        "transposed": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@given(cases())
def test_agrees_with_the_text_in_every_bit(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    data = oracle.values(rng, case["reduction"], case["dtype"], case["data"])
    updates = oracle.values(rng, case["reduction"], case["dtype"], case["indices"])
    axis, size = case["axis"], case["data"][case["axis"]]
    low = -size if case["negative"] else 0
    indices = rng.integers(low, max(size, 1), case["indices"]).astype(case["index_dtype"])
    expected, repeated = oracle.scatter_elements(data, indices, updates, axis, case["reduction"])

    given = oracle.layout(data, case["transposed"])
    context, warnings = recording()
    options = {
        "axis": axis - data.ndim if case["from_back"] else axis,
        "reduction": case["reduction"],
        "context": context,
    }
    output = scatter_elements_11(given, indices, updates, **options)
    assert same(output, expected)
    assert same(given, data)
    assert not np.shares_memory(output, given)
    assert bool(warnings) == (repeated and case["reduction"] == "none")

    overwritten = scatter_elements_11(given, indices, updates, in_place=True, **options)
    assert overwritten is given
    assert same(overwritten, expected)


# TensorRT's scatter layer, mode ELEMENT with axis 2: `update` is the negative of `data`.
TENSORRT_DATA = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
TENSORRT_INDICES = np.array(
    [[[[0, 1, 2, 3, 0], [1, 2, 3, 0, 1], [2, 3, 0, 1, 2], [3, 0, 1, 2, 3]]] * 3]
)
TENSORRT_OUTPUT = [
    [
        [-0.0, -16, -12, -8, -4],
        [-5, -1, -17, -13, -9],
        [-10, -6, -2, -18, -14],
        [-15, -11, -7, -3, -19],
    ],
    [
        [-20, -36, -32, -28, -24],
        [-25, -21, -37, -33, -29],
        [-30, -26, -22, -38, -34],
        [-35, -31, -27, -23, -39],
    ],
    [
        [-40, -56, -52, -48, -44],
        [-45, -41, -57, -53, -49],
        [-50, -46, -42, -58, -54],
        [-55, -51, -47, -43, -59],
    ],
]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tensorrt_element_mode(dtype: Any) -> None:
    output = scatter_elements_11(
        TENSORRT_DATA, TENSORRT_INDICES.astype(dtype), -TENSORRT_DATA, axis=2, reduction="none"
    )
    assert same(output, np.array([TENSORRT_OUTPUT], np.float32))


def test_tensorrt_element_mode_with_every_update_of_a_column_on_one_row() -> None:
    context, warnings = recording()
    indices = np.zeros((1, 3, 4, 5), np.int32)
    output = scatter_elements_11(
        TENSORRT_DATA, indices, -TENSORRT_DATA, axis=2, reduction="none", context=context
    )
    # TensorRT promises one of the updates; here it is the last one.
    assert same(output[:, :, 0], -TENSORRT_DATA[:, :, 3])
    assert same(output[:, :, 1:], TENSORRT_DATA[:, :, 1:])
    assert warnings == [
        (
            "`indices`[0, 0, 0, 0] and `indices`[0, 0, 1, 0] both name `data`[0, 0, 0, 0]; "
            "`indices`[0, 0, 0, 1] and `indices`[0, 0, 1, 1] both name `data`[0, 0, 0, 1]; "
            "`indices`[0, 0, 0, 2] and `indices`[0, 0, 1, 2] both name `data`[0, 0, 0, 2] "
            "(and 42 more): the specification leaves open which update wins, the last one was taken"
        )
    ]


def test_few_duplicates_among_many_places_are_found() -> None:
    context, warnings = recording()
    indices = np.array([3, 999, -1, 3])
    updates = np.array([1, 2, 5, 7], np.float32)
    output = scatter_elements_11(
        np.zeros(1000, np.float32), indices, updates, axis=0, context=context
    )
    assert output[3] == 7 and output[999] == 5
    assert warnings == [
        (
            "`indices`[1] and `indices`[2] both name `data`[999]; "
            "`indices`[0] and `indices`[3] both name `data`[3]: "
            "the specification leaves open which update wins, the last one was taken"
        )
    ]


def test_half_precision_rounds_after_each_update() -> None:
    data = np.array([2048], np.float16)  # 2048 + 1 rounds to 2048
    updates = np.ones(4, np.float16)
    output = scatter_elements_11(data, np.zeros(4, np.int64), updates, axis=0, reduction="add")
    assert output[0] == 2048


def test_sums_are_taken_in_the_order_of_the_updates() -> None:
    data = np.zeros(1, np.float32)
    updates = np.array([1e8, 1, -1e8, 1], np.float32)
    output = scatter_elements_11(data, np.zeros(4, np.int64), updates, axis=0, reduction="add")
    assert output[0] == 1


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_not_a_number_wins(reduction: str) -> None:
    data, updates = np.array([np.nan, 3], np.float32), np.array([5, np.nan, 7], np.float32)
    output = scatter_elements_11(data, np.array([0, 1, 1]), updates, axis=0, reduction=reduction)
    assert np.isnan(output).all()


@each(
    ("reduction", "expected"),
    [("add", [0, 1, 1, 1]), ("max", [0, 1, 1, 1]), ("mul", [0, 0, 0, 1]), ("min", [0, 0, 0, 1])],
)
def test_reductions_of_bool_are_or_and_and(reduction: str, expected: list[int]) -> None:
    data, updates = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    output = scatter_elements_11(data, np.arange(4), updates, axis=0, reduction=reduction)
    assert same(output, np.array(expected, np.bool_))


@each("dtype", DTYPES)
def test_no_data_takes_no_updates(dtype: Any) -> None:
    empty = np.zeros((3, 0), dtype)
    output = scatter_elements_11(empty, np.zeros((2, 0), np.int64), empty[:2], axis=1)
    assert same(output, empty)


def test_updates_that_are_the_data_are_read_before_they_are_overwritten() -> None:
    data = np.arange(5, dtype=np.float32)
    output = scatter_elements_11(data, np.array([1, 2, 3, 4, 0]), data, axis=0, in_place=True)
    assert same(output, np.array([4, 0, 1, 2, 3], np.float32))


D = np.zeros((2, 5, 7), np.float32)
I = np.zeros((2, 3, 7), np.int64)  # noqa: E741  # one letter per operand
U = np.ones((2, 3, 7), np.float32)


def with_index(value: int) -> np.ndarray:
    indices = I.copy()
    indices[1, 2, 3] = value
    return indices


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an index that is too large": (
        {"indices": with_index(5)},
        "`indices`[1, 2, 3] is 5, expected -5 to 4: axis 1 of `data` with shape (2, 5, 7)",
    ),
    "an index that is too small": (
        {"indices": with_index(-6)},
        "`indices`[1, 2, 3] is -6, expected -5 to 4: axis 1 of `data` with shape (2, 5, 7)",
    ),
    "the smallest index there is": (
        {"indices": with_index(-(2**63))},
        (
            "`indices`[1, 2, 3] is -9223372036854775808, expected -5 to 4: "
            "axis 1 of `data` with shape (2, 5, 7)"
        ),
    ),
    "an index of 32 bits that is too small": (
        {"indices": with_index(-6).astype(np.int32)},
        "`indices`[1, 2, 3] is -6, expected -5 to 4: axis 1 of `data` with shape (2, 5, 7)",
    ),
    "an index into nothing": (
        {"data": np.zeros((2, 0, 7), np.float32)},
        "`indices`[0, 0, 0] is 0, expected none: axis 1 of `data` with shape (2, 0, 7)",
    ),
    "indices of another rank": (
        {"indices": I[0]},
        "`indices` has rank 2, expected 3 as `data`: shapes (3, 7) and (2, 5, 7)",
    ),
    "updates of another shape": (
        {"updates": U[:, :2]},
        "`updates` has shape (2, 2, 7), expected (2, 3, 7) as `indices`",
    ),
    "indices beyond another axis": (
        {"indices": np.zeros((3, 3, 7), np.int64), "updates": np.ones((3, 3, 7), np.float32)},
        (
            "`indices` has size 3 in dimension 0, expected at most 2 as `data`: "
            "shapes (3, 3, 7) and (2, 5, 7), axis 1"
        ),
    ),
    "an axis that is too large": (
        {"axis": 3},
        "`axis` is 3, expected -3 to 2: `data` has rank 3",
    ),
    "an axis that is too small": (
        {"axis": -4},
        "`axis` is -4, expected -3 to 2: `data` has rank 3",
    ),
    "a scalar": (
        {"data": D[0, 0, 0], "indices": I[0, 0, 0], "updates": U[0, 0, 0]},
        "`data` has rank 0, expected at least 1",
    ),
    "an unknown reduction": (
        {"reduction": "sum"},
        "`reduction` is `sum`, expected one of `none`, `add`, `mul`, `max`, `min`",
    ),
    "a sum of strings": (
        {"data": D.astype(object), "updates": U.astype(object), "reduction": "add"},
        "`reduction` is `add`, which strings do not have",
    ),
    "the largest complex number": (
        {"data": D.astype(np.complex64), "updates": U.astype(np.complex64), "reduction": "max"},
        "`reduction` is `max`, which complex64 does not have",
    ),
}


@each(("changed", "message"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refuses_what_the_text_does_not_allow(changed: dict[str, Any], message: str) -> None:
    given = {
        "data": D.copy(),
        "indices": I,
        "updates": U,
        "axis": 1,
        "reduction": "none",
        **changed,
    }
    before = np.array(given["data"])
    operands = [given.pop(name) for name in ("data", "indices", "updates")]
    with pytest.raises(KernelError) as caught:
        scatter_elements_11(*operands, in_place=True, **given)
    assert caught.value.message == message
    assert same(np.asarray(operands[0]), before)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_version_16_has_no_order(reduction: str) -> None:
    with pytest.raises(KernelError) as caught:
        scatter_elements_11(D, I, U, axis=1, reduction=reduction, context=Context(16, 1, print))
    expected = f"`reduction` is `{reduction}`, expected one of `none`, `add`, `mul`"
    assert caught.value.message == expected
    output = scatter_elements_11(D, I, U, axis=1, reduction="add", context=Context(16, 1, print))
    assert output.sum() == U.size
