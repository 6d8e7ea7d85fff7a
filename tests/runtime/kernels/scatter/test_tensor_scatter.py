"""The TensorScatter kernel against a loop written from the prose of TensorScatter-24."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.scatter.tensor_scatter import tensor_scatter
from onnx_kvtool.runtime.sessions import Session, open_session
from tests.cache_models import one_update, tensor_scatter_oracle
from tests.grids import each, search
from tests.runtime.kernels.arrays import DTYPES, array, same
from tests.runtime.recorded import needs_24


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(2, 5))
    axis = draw(st.integers(1, rank - 1))
    capacity = draw(st.integers(0, 6))
    length = draw(st.integers(0, capacity))
    others = draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    past, new = list(others), list(others)
    past[axis], new[axis] = capacity, length
    mode = draw(st.sampled_from(["linear", "circular"]))
    start = (
        st.integers(0, capacity - length)
        if mode == "linear"
        else st.one_of(st.integers(0, 20), st.just(2**63 - 1))
    )
    starts = draw(st.none() | st.lists(start, min_size=past[0], max_size=past[0]))
    return {
        "past": tuple(past),
        "new": tuple(new),
        "axis": draw(st.sampled_from([axis, axis - rank])),
        "mode": mode,
        "starts": None if starts is None else np.array(starts, np.int64),
        "dtype": draw(st.sampled_from(DTYPES)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@given(cases())
def test_agrees_with_the_text_in_every_bit(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    past = array(rng, case["dtype"], case["past"])
    new = array(rng, case["dtype"], case["new"])
    before = past.copy(), new.copy()
    present = tensor_scatter(past, new, case["starts"], axis=case["axis"], mode=case["mode"])
    # The oracle adds Python integers, which do not overflow.
    expected = tensor_scatter_oracle(past, new, case["starts"], case["axis"], case["mode"])
    assert same(present, expected)
    assert same(past, before[0])
    assert same(new, before[1])
    assert not np.shares_memory(present, past)

    overwritten = tensor_scatter(
        past, new, case["starts"], axis=case["axis"], mode=case["mode"], in_place=True
    )
    assert overwritten is past
    assert same(overwritten, expected)


@functools.cache
def onnxruntime_session(rank: int, axis: int, mode: str, has_starts: bool) -> Session:
    past = [f"d{i}" for i in range(rank)]
    update = [*past]
    update[axis] = "L"
    built = one_update(
        past,
        update,
        batch="d0",
        axis=axis,
        mode=mode,
        write_indices="write_indices" if has_starts else None,
    )
    return open_session("onnxruntime", built.SerializeToString(), "")


@needs_24
@search(40)
@given(cases())
def test_agrees_with_onnxruntime(case: dict[str, Any]) -> None:
    starts = case["starts"]
    # onnxruntime refuses negative starts in both modes; huge ones overflow in it.
    assume(starts is None or ((starts >= 0) & (starts < 2**62)).all())
    rng = np.random.default_rng(case["seed"])
    past, new = (rng.normal(size=case[name]).astype(np.float32) for name in ("past", "new"))
    session = onnxruntime_session(past.ndim, case["axis"], case["mode"], starts is not None)
    inputs = {"past_cache": past, "update": new}
    if starts is not None:
        inputs["write_indices"] = starts
    present = tensor_scatter(past, new, starts, axis=case["axis"], mode=case["mode"])
    assert same(present, session.run(inputs)["present_cache"])


def test_operands_that_are_views_are_read_as_they_appear() -> None:
    past = np.broadcast_to(np.float32(7), (2, 5, 3))
    new = np.arange(12, dtype=np.float32).reshape(3, 2, 2).transpose(2, 1, 0)
    starts = np.array([9, 3, 9, 0], np.int64)[1::2]
    present = tensor_scatter(past, new, starts, axis=1, mode="linear")
    assert same(present, tensor_scatter_oracle(past, new, starts, 1, "linear"))


def test_in_place_through_a_transposed_view_writes_into_its_buffer() -> None:
    buffer = np.zeros((3, 5, 2), np.float32)
    past, new = buffer.transpose(2, 1, 0), np.ones((2, 1, 3), np.float32)
    present = tensor_scatter(past, new, np.array([4, 1]), axis=1, mode="linear", in_place=True)
    assert present is past
    assert buffer.sum() == 6 and buffer[:, 4, 0].all() and buffer[:, 1, 1].all()


def test_a_cache_that_is_read_only_is_not_overwritten() -> None:
    past = np.broadcast_to(np.float32(7), (2, 5, 3))
    new = np.zeros((2, 1, 3), np.float32)
    present = tensor_scatter(past, new, axis=1, mode="linear", in_place=True)
    assert (past == 7).all()
    assert not present[:, 0].any() and (present[:, 1:] == 7).all()


def test_a_cache_that_is_its_own_update_is_not_overwritten_while_it_is_read() -> None:
    past = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    before, starts = past.copy(), np.array([2, 3])
    present = tensor_scatter(past, past, starts, axis=1, mode="circular", in_place=True)
    assert same(present, tensor_scatter_oracle(before, before, starts, 1, "circular"))


def test_a_negative_start_is_an_error_in_circular_mode_too() -> None:
    past, new = np.zeros((2, 5, 3), np.float32), np.ones((2, 1, 3), np.float32)
    with pytest.raises(KernelError, match=r"write_indices\[1\] is -6, expected 0 or more"):
        tensor_scatter(past, new, np.array([7, -6]), axis=1, mode="circular")


def test_a_cache_that_is_too_short_has_a_remedy() -> None:
    with pytest.raises(KernelError) as caught:
        tensor_scatter(
            np.zeros((1, 5, 3)), np.ones((1, 2, 3)), np.array([4]), axis=1, mode="linear"
        )
    assert caught.value.help is not None and "`circular`" in caught.value.help


def test_nothing_is_written_in_place_when_a_start_is_refused() -> None:
    past = np.zeros((2, 5, 3), np.float32)
    new = np.ones((2, 1, 3), np.float32)
    with pytest.raises(KernelError):
        tensor_scatter(past, new, np.array([0, 5]), axis=1, mode="linear", in_place=True)
    assert not past.any()


B, S, D, L = 2, 5, 3, 4

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "update has another rank": (
        {"update": np.zeros((B, L), np.float32)},
        "`update` has rank 2, expected 3 as `past_cache`",
    ),
    "rank 1": (
        {"past_cache": np.zeros(S, np.float32), "update": np.zeros(L, np.float32)},
        "`past_cache` has rank 1, expected at least 2",
    ),
    "axis above the rank": ({"axis": 3}, "`axis` is 3, expected -3 to 2: `past_cache` has rank 3"),
    "axis below the rank": (
        {"axis": -4},
        "`axis` is -4, expected -3 to 2: `past_cache` has rank 3",
    ),
    "axis of the batch": ({"axis": 0}, "`axis` is 0, which is the batch dimension of rank 3"),
    "axis of the batch from behind": (
        {"axis": -3},
        "`axis` is -3, which is the batch dimension of rank 3",
    ),
    "the default axis of a cache of rank 2": (
        {
            "past_cache": np.zeros((B, S), np.float32),
            "update": np.zeros((B, L), np.float32),
            "axis": -2,
        },
        "`axis` is -2, which is the batch dimension of rank 2",
    ),
    "update has another batch": (
        {"update": np.zeros((3, L, D), np.float32)},
        (
            "`update` has size 3 in dimension 0, expected 2 as `past_cache`: "
            "shapes (3, 4, 3) and (2, 5, 3)"
        ),
    ),
    "update has other features": (
        {"update": np.zeros((B, L, 7), np.float32)},
        (
            "`update` has size 7 in dimension 2, expected 3 as `past_cache`: "
            "shapes (2, 4, 7) and (2, 5, 3)"
        ),
    ),
    "update longer than the cache": (
        {"update": np.zeros((B, 6, D), np.float32)},
        "`update` has sequence_length 6, expected at most max_sequence_length 5",
    ),
    "update longer than the cache, circular": (
        {"update": np.zeros((B, 6, D), np.float32), "mode": "circular"},
        "`update` has sequence_length 6, expected at most max_sequence_length 5",
    ),
    "starts for too many rows": (
        {"write_indices": np.zeros(3, np.int64)},
        "`write_indices` has shape (3,), expected (2,)",
    ),
    "starts of rank 2": (
        {"write_indices": np.zeros((B, 1), np.int64)},
        "`write_indices` has shape (2, 1), expected (2,)",
    ),
    "negative start": (
        {"write_indices": np.array([0, -1])},
        "write_indices[1] is -1, expected 0 or more",
    ),
    "negative start and nothing to write": (
        {"write_indices": np.array([0, -1]), "update": np.zeros((B, 0, D), np.float32)},
        "write_indices[1] is -1, expected 0 or more",
    ),
    "start too late": (
        {"write_indices": np.array([1, 2])},
        "write_indices[1] is 2, expected at most 1: 4 rows from there exceed max_sequence_length 5",
    ),
    "start that overflows": (
        {"write_indices": np.array([2**63 - 1, 0])},
        (
            "write_indices[0] is 9223372036854775807, expected at most 1: "
            "4 rows from there exceed max_sequence_length 5"
        ),
    ),
    "unknown mode": (
        {"mode": "default"},
        "`mode` is `default`, expected `linear` or `circular`",
    ),
}


@each(("changed", "message"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refuses_what_the_text_does_not_allow(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "past_cache": np.zeros((B, S, D), np.float32),
        "update": np.ones((B, L, D), np.float32),
        "write_indices": None,
        "axis": 1,
        "mode": "linear",
        **changed,
    }
    operands = [given.pop(name) for name in ("past_cache", "update", "write_indices")]
    with pytest.raises(KernelError) as caught:
        tensor_scatter(*operands, **given)
    assert caught.value.message == message
    assert isinstance(caught.value, KvtoolError)
