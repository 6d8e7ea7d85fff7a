"""Equal of strings, for opsets whose Equal knows none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.lowering.single import check, one_node, refusal

_WORDS = st.sampled_from(["", "a", "b", "ab", "A", "\u00e4", "a\u0308"])
_SHAPES = [((5,), (5,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (3,)), ((), ()), ((7, 1, 2), (1,))]


@search(25)
@given(data=st.data(), shapes=st.sampled_from(_SHAPES), target=st.sampled_from([11, 13, 18]))
def test_strings_are_compared(
    data: st.DataObject, shapes: tuple[tuple[int, ...], tuple[int, ...]], target: int
) -> None:
    words = [[data.draw(_WORDS) for _ in range(int(np.prod(shape)))] for shape in shapes]
    a, b = (np.array(w, object).reshape(s) for w, s in zip(words, shapes, strict=True))
    model = one_node("Equal", {"A": a, "B": b}, [np.bool_], opset=19)
    check(model, {"A": a, "B": b}, target, [np.asarray(a == b, np.bool_)])


@pytest.mark.long
@pytest.mark.parametrize("target", [11, 14, 18])
def test_sizes_need_not_be_declared_and_may_be_zero(target: int) -> None:
    a, b = np.array([["a", "b", "c"]], object), np.zeros((0, 3), object)
    dims = {"A": ["n", None], "B": [None, "m"]}
    for first, second in ((a, b), (b, b), (a, a)):
        inputs = {"A": first, "B": second}
        model = one_node("Equal", inputs, [np.bool_], opset=19, dims=dims)
        check(model, inputs, target, [np.asarray(first == second, np.bool_)])


def test_a_constant_string() -> None:
    inputs = {"A": np.array(["yes", "no"], object), "B": np.array("no", object)}
    model = one_node("Equal", inputs, [np.bool_], opset=19, constants=["B"])
    check(model, inputs, 13, [np.array([False, True])])


def test_below_unique_strings_are_refused() -> None:
    inputs = {"A": np.array(["yes"], object), "B": np.array(["no"], object)}
    assert refusal(one_node("Equal", inputs, [np.bool_], opset=19), 10).lowest_opset == 11
