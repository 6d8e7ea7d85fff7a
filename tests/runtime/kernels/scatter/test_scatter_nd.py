"""ScatterND against a loop written from its text, and what the text does not allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Context
from onnx_kvtool.runtime.kernels.scatter.scatter import scatter_nd_11
from tests.grids import each
from tests.runtime.kernels.arrays import recording, same
from tests.runtime.kernels.scatter import oracle


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 4))
    data = draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    depth = draw(st.integers(0, rank))
    outer = draw(st.lists(st.integers(0, 4), max_size=2))
    if 0 in data[:depth]:
        outer = [*outer, 0]
    reduction, dtype = draw(oracle.reductions())
    return {
        "data": tuple(data),
        "depth": depth,
        "outer": tuple(outer),
        "reduction": reduction,
        "dtype": dtype,
        "negative": draw(st.booleans()),
        "transposed": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@given(cases())
def test_agrees_with_the_text_in_every_bit(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    shape, depth, outer = case["data"], case["depth"], case["outer"]
    data = oracle.values(rng, case["reduction"], case["dtype"], shape)
    updates = oracle.values(rng, case["reduction"], case["dtype"], (*outer, *shape[depth:]))
    indices = np.empty((*outer, depth), np.int64)
    for component in range(depth):
        low = -shape[component] if case["negative"] else 0
        indices[..., component] = rng.integers(low, max(shape[component], 1), outer)
    expected, repeated = oracle.scatter_nd(data, indices, updates, case["reduction"])

    given = oracle.layout(data, case["transposed"])
    context, warnings = recording()
    options = {"reduction": case["reduction"], "context": context}
    output = scatter_nd_11(given, indices, updates, **options)
    assert same(output, expected)
    assert same(given, data)
    assert not np.shares_memory(output, given)
    assert bool(warnings) == (repeated and case["reduction"] == "none")

    overwritten = scatter_nd_11(given, indices, updates, in_place=True, **options)
    assert overwritten is given
    assert same(overwritten, expected)


@pytest.mark.long
@each("repeated", [1, 2, 15, 40])
@each("width", [1, 5, 63, 64, 200])
@each("reduction", ["none", "add", "max"])
def test_long_slices_are_reduced_in_order(reduction: str, width: int, repeated: int) -> None:
    rng = np.random.default_rng(width * repeated)
    data = rng.normal(size=(7, width)).astype(np.float32)
    places = rng.permutation(np.concatenate([[1] * repeated, [3] * (repeated // 2), [0, 5]]))
    updates = (rng.normal(size=(len(places), width)) * 1e4).astype(np.float32)
    indices = places.astype(np.int64)[:, None]
    expected, _ = oracle.scatter_nd(data, indices, updates, reduction)
    output = scatter_nd_11(data, indices, updates, reduction=reduction)
    assert same(output, expected)


# TensorRT's scatter layer, mode ND: six tuples into an array of shape (2, 3, 4, 5).
TENSORRT_DATA = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
TENSORRT_INDICES = np.array(
    [
        [[0, 2, 1, 1], [1, 0, 3, 2], [0, 1, 2, 3]],
        [[1, 2, 1, 1], [0, 0, 3, 2], [1, 1, 2, 3]],
    ]
)
TENSORRT_WRITTEN = {
    (0, 2, 1, 1): 0,
    (1, 0, 3, 2): 1,
    (0, 1, 2, 3): 2,
    (1, 2, 1, 1): 3,
    (0, 0, 3, 2): 4,
    (1, 1, 2, 3): 5,
}


def test_tensorrt_nd_mode_with_whole_tuples() -> None:
    updates = -np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = TENSORRT_DATA.copy()
    for place, number in TENSORRT_WRITTEN.items():
        expected[place] = -np.float32(number)
    # As printed: 46, 33, 17, 106, 93 and 77 give way.
    changed = np.flatnonzero(expected != TENSORRT_DATA)
    assert changed.tolist() == [17, 33, 46, 77, 93, 106]
    output = scatter_nd_11(TENSORRT_DATA, TENSORRT_INDICES, updates, reduction="none")
    assert same(output, expected)


def test_tensorrt_nd_mode_with_tuples_that_name_rows() -> None:
    updates = -np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    indices = TENSORRT_INDICES[..., :3]
    output = scatter_nd_11(TENSORRT_DATA, indices, updates, reduction="none")
    expected = TENSORRT_DATA.copy()
    for place, number in TENSORRT_WRITTEN.items():
        expected[place[:3]] = -np.arange(number * 5, number * 5 + 5, dtype=np.float32)
    assert same(output, expected)
    assert output[0, 2, 1].tolist() == [0, -1, -2, -3, -4]
    assert output[1, 1, 2].tolist() == [-25, -26, -27, -28, -29]


def test_duplicates_without_a_reduction_are_reported_and_the_last_one_wins() -> None:
    context, warnings = recording()
    indices = np.array([[[1, 2], [0, 0]], [[1, -1], [1, 2]]])
    updates = np.arange(28, dtype=np.float32).reshape(2, 2, 7)
    output = scatter_nd_11(np.zeros((2, 3, 7), np.float32), indices, updates, context=context)
    assert same(output[1, 2], updates[1, 1])
    assert warnings == [
        (
            "`indices`[0, 0] and `indices`[1, 0] both name `data`[1, 2]; "
            "`indices`[1, 0] and `indices`[1, 1] both name `data`[1, 2]: "
            "the specification leaves open which update wins, the last one was taken"
        )
    ]


def test_duplicates_with_a_reduction_are_no_matter() -> None:
    context, warnings = recording()
    indices = np.array([[1], [1], [-2]])
    updates = np.array([2, 5, 7], np.int32)
    data = np.array([3, 11, 13], np.int32)
    output = scatter_nd_11(data, indices, updates, reduction="mul", context=context)
    assert same(output, np.array([3, 770, 13], np.int32))
    assert warnings == []


def test_tuples_of_nothing_name_all_of_the_data() -> None:
    data = np.zeros((2, 3), np.float32)
    updates = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    output = scatter_nd_11(data, np.zeros((2, 0), np.int64), updates, reduction="add")
    assert same(output, updates[0] + updates[1])


D = np.zeros((2, 5, 7), np.float32)
I = np.zeros((3, 2), np.int64)  # noqa: E741  # one letter per operand
U = np.ones((3, 7), np.float32)

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an index that is too large": (
        {"indices": np.array([[0, 0], [1, 5], [0, 9]])},
        "`indices`[1, 1] is 5, expected -5 to 4: axis 1 of `data` with shape (2, 5, 7)",
    ),
    "an index that is too small": (
        {"indices": np.array([[0, 0], [-3, 0], [0, 0]])},
        "`indices`[1, 0] is -3, expected -2 to 1: axis 0 of `data` with shape (2, 5, 7)",
    ),
    "tuples longer than the rank of the data": (
        {"indices": np.zeros((3, 4), np.int64)},
        (
            "`indices` has tuples of 4, expected at most 3, the rank of `data`: "
            "`data` has shape (2, 5, 7) and `indices` (3, 4)"
        ),
    ),
    "updates of another rank, which TensorRT cannot lower": (
        {"updates": U[:, 0]},
        (
            "`updates` has shape (3,), expected (3, 7): "
            "`data` has shape (2, 5, 7) and `indices` (3, 2)"
        ),
    ),
    "updates of other dimensions, which TensorRT calls not compatible": (
        {"updates": U[:, :5]},
        (
            "`updates` has shape (3, 5), expected (3, 7): "
            "`data` has shape (2, 5, 7) and `indices` (3, 2)"
        ),
    ),
    "fewer updates than tuples": (
        {"updates": U[:2]},
        (
            "`updates` has shape (2, 7), expected (3, 7): "
            "`data` has shape (2, 5, 7) and `indices` (3, 2)"
        ),
    ),
    "a scalar": ({"data": D[0, 0, 0]}, "`data` has rank 0, expected at least 1"),
    "one index": ({"indices": I[0, 0]}, "`indices` has rank 0, expected at least 1"),
    "an unknown reduction": (
        {"reduction": "ADD"},
        "`reduction` is `ADD`, expected one of `none`, `add`, `mul`, `max`, `min`",
    ),
    "the smallest string": (
        {"data": D.astype(object), "updates": U.astype(object), "reduction": "min"},
        "`reduction` is `min`, which strings do not have",
    ),
}


@each(("changed", "message"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refuses_what_the_text_does_not_allow(changed: dict[str, Any], message: str) -> None:
    given = {"data": D.copy(), "indices": I, "updates": U, "reduction": "none", **changed}
    operands = [np.asarray(given.pop(name)) for name in ("data", "indices", "updates")]
    before = operands[0].copy()
    with pytest.raises(KernelError) as caught:
        scatter_nd_11(*operands, in_place=True, **given)
    assert caught.value.message == message
    assert same(operands[0], before)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_version_16_has_no_order(reduction: str) -> None:
    with pytest.raises(KernelError) as caught:
        scatter_nd_11(D, I, U, reduction=reduction, context=Context(16, 1, print))
    expected = f"`reduction` is `{reduction}`, expected one of `none`, `add`, `mul`"
    assert caught.value.message == expected
    output = scatter_nd_11(D, I, U, reduction="add", context=Context(16, 1, print))
    assert output.sum() == U.size
