"""Gather, GatherElements and GatherND against loops written from their texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.indices import gather, gather_elements, gather_nd
from tests.grids import each
from tests.runtime.kernels.arrays import DTYPES, array, same

DTYPE = st.sampled_from(DTYPES)
SEED = st.integers(0, 2**32 - 1)


def draw_indices(
    draw: st.DrawFn, rng: np.random.Generator, size: int, shape: tuple[int, ...]
) -> np.ndarray:
    low = draw(st.sampled_from([0, -size]))
    return rng.integers(low, max(size, 1), shape).astype(
        draw(st.sampled_from([np.int32, np.int64]))
    )


@given(st.data())
def test_gather_agrees_with_the_text(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank)))
    axis = data.draw(st.integers(0, rank - 1))
    outer = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
    if shape[axis] == 0:
        outer = (*outer, 0)
    rng = np.random.default_rng(data.draw(SEED))
    source = array(rng, data.draw(DTYPE), shape)
    indices = draw_indices(data.draw, rng, shape[axis], outer)

    expected = np.empty((*shape[:axis], *outer, *shape[axis + 1 :]), source.dtype)
    for place in np.ndindex(expected.shape):
        index = int(indices[place[axis : axis + len(outer)]]) % shape[axis]
        expected[place] = source[(*place[:axis], index, *place[axis + len(outer) :])]
    output = gather(source, indices, axis=data.draw(st.sampled_from([axis, axis - rank])))
    assert same(output, expected)


@given(st.data())
def test_gather_elements_agrees_with_the_text(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank)))
    axis = data.draw(st.integers(0, rank - 1))
    taken = [data.draw(st.integers(0, size)) for size in shape]
    taken[axis] = data.draw(st.integers(0, 5)) if shape[axis] else 0
    rng = np.random.default_rng(data.draw(SEED))
    source = array(rng, data.draw(DTYPE), shape)
    indices = draw_indices(data.draw, rng, shape[axis], tuple(taken))

    expected = np.empty(taken, source.dtype)
    for place in np.ndindex(indices.shape):
        index = int(indices[place]) % shape[axis]
        expected[place] = source[(*place[:axis], index, *place[axis + 1 :])]
    given = source.T.copy().T if data.draw(st.booleans()) else source
    output = gather_elements(given, indices, axis=data.draw(st.sampled_from([axis, axis - rank])))
    assert same(output, expected)


@given(st.data())
def test_gather_nd_agrees_with_the_text(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank)))
    batch_dims = data.draw(st.integers(0, rank - 1))
    depth = data.draw(st.integers(1, rank - batch_dims))
    middle = tuple(data.draw(st.lists(st.integers(0, 4), max_size=2)))
    if 0 in shape[batch_dims : batch_dims + depth] and 0 not in shape[:batch_dims]:
        middle = (*middle, 0)
    outer = (*shape[:batch_dims], *middle)
    rng = np.random.default_rng(data.draw(SEED))
    source = array(rng, data.draw(DTYPE), shape)
    indices = np.empty((*outer, depth), np.int64)
    for component in range(depth):
        size = shape[batch_dims + component]
        indices[..., component] = draw_indices(data.draw, rng, size, outer)

    inner = shape[batch_dims + depth :]
    expected = np.empty((*outer, *inner), source.dtype)
    for place in np.ndindex(outer):
        sizes = shape[batch_dims : batch_dims + depth]
        head = tuple(int(i) % n for i, n in zip(indices[place], sizes, strict=True))
        for tail in np.ndindex(inner):
            expected[(*place, *tail)] = source[(*place[:batch_dims], *head, *tail)]
    output = gather_nd(source, indices, batch_dims=batch_dims)
    assert same(output, expected)


D = np.arange(70, dtype=np.float32).reshape(2, 5, 7)

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "Gather beyond the end": (
        lambda: gather(D, np.array([[0, 4], [5, 0]]), axis=1),
        "`indices`[1, 0] is 5, expected -5 to 4: axis 1 of `data` with shape (2, 5, 7)",
    ),
    "Gather with one index before the start": (
        lambda: gather(D, np.array(-8, np.int32), axis=-1),
        "`indices` is -8, expected -7 to 6: axis 2 of `data` with shape (2, 5, 7)",
    ),
    "Gather from a scalar": (
        lambda: gather(D[0, 0, 0], np.array(0), axis=0),
        "`axis` is 0, expected none: `data` has rank 0",
    ),
    "Gather along an axis that is not there": (
        lambda: gather(D, np.array(0), axis=3),
        "`axis` is 3, expected -3 to 2: `data` has rank 3",
    ),
    "GatherElements beyond the end": (
        lambda: gather_elements(D, np.full((2, 1, 7), 5), axis=1),
        "`indices`[0, 0, 0] is 5, expected -5 to 4: axis 1 of `data` with shape (2, 5, 7)",
    ),
    "GatherElements by indices of another rank": (
        lambda: gather_elements(D, np.array([0]), axis=1),
        "`indices` has rank 1, expected 3 as `data`: shapes (1,) and (2, 5, 7)",
    ),
    "GatherElements by indices beyond another axis": (
        lambda: gather_elements(D, np.zeros((2, 3, 8), np.int64), axis=1),
        (
            "`indices` has size 8 in dimension 2, expected at most 7 as `data`: "
            "shapes (2, 3, 8) and (2, 5, 7), axis 1"
        ),
    ),
    "GatherElements from a scalar": (
        lambda: gather_elements(D[0, 0, 0], np.array(0), axis=0),
        "`data` has rank 0, expected at least 1",
    ),
    "GatherND beyond the end": (
        lambda: gather_nd(D, np.array([[0, 0], [2, 0]])),
        "`indices`[1, 0] is 2, expected -2 to 1: axis 0 of `data` with shape (2, 5, 7)",
    ),
    "GatherND beyond the end behind a batch": (
        lambda: gather_nd(D, np.array([[0, 0], [2, -8]]), batch_dims=1),
        "`indices`[1, 1] is -8, expected -7 to 6: axis 2 of `data` with shape (2, 5, 7)",
    ),
    "GatherND by tuples that are too long": (
        lambda: gather_nd(D, np.zeros((2, 3), np.int64), batch_dims=1),
        (
            "`indices` has tuples of 3, expected 1 to 2: "
            "`data` has shape (2, 5, 7) and `indices` (2, 3)"
        ),
    ),
    "GatherND by tuples of nothing": (
        lambda: gather_nd(D, np.zeros((3, 0), np.int64)),
        (
            "`indices` has tuples of 0, expected 1 to 3: "
            "`data` has shape (2, 5, 7) and `indices` (3, 0)"
        ),
    ),
    "GatherND over another batch": (
        lambda: gather_nd(D, np.zeros((3, 2), np.int64), batch_dims=1),
        (
            "`indices` has leading dimensions (3,), expected (2,) as `data` with `batch_dims` 1: "
            "`data` has shape (2, 5, 7) and `indices` (3, 2)"
        ),
    ),
    "GatherND with more batch dimensions than there are": (
        lambda: gather_nd(D, np.zeros((2, 1), np.int64), batch_dims=2),
        "`batch_dims` is 2, expected 0 to 1: `data` has shape (2, 5, 7) and `indices` (2, 1)",
    ),
    "GatherND by a scalar": (
        lambda: gather_nd(D, np.array(0)),
        "`indices` has rank 0, expected at least 1",
    ),
}


@each(("run", "message"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refuses_what_the_text_does_not_allow(run: Callable[[], Any], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        run()
    assert caught.value.message == message
