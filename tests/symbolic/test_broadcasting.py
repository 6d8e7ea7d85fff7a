"""Two sizes that are broadcast: what is said of them holds in every run that does not fail."""

from __future__ import annotations

import functools
import itertools

import pytest

from onnx_kvtool.symbolic.broadcasting import stretched
from onnx_kvtool.symbolic.dimensions import read_size, words
from onnx_kvtool.symbolic.expressions import Dimension, Expr, integer
from onnx_kvtool.symbolic.simplification import Facts, substitute
from tests.grids import each

SIZES = """
    s; t; 1; 7; s + 1; s + t; s * t; 2 * s; Min(4, s); Min(1, s); Max(1, s); Max(s, t); Min(s, t);
    Max(2, s); s // 2; (s + 1) // 2; s // 4 + 1; Max(s, 3) - 2; Min(s, t) + 1; Max(s - 2, 0); s % 3;
    s + 2 * t; s * s; Min(4, s + t); t + 1; Max(s // 2, 1); Max(1, s + t); Min(4, Max(s, 1));
    s // t; Max(s - t, 1)
"""


@functools.cache
def value(size: Expr, s: int, t: int) -> int | None:
    bound = {Dimension("s"): integer(s), Dimension("t"): integer(t)}
    return substitute(size, {}, Facts(), bound).number


@pytest.mark.long
def test_a_size_that_is_chosen_is_the_result_for_all_sizes() -> None:
    decided = 0
    for a, b in itertools.combinations(map(read_size, SIZES.split(";")), 2):
        found = stretched(a, b)
        if found is None:
            continue
        decided += 1
        for s, t in itertools.product(range(9), repeat=2):
            one, other, result = value(a, s, t), value(b, s, t), value(found, s, t)
            if one is None or other is None or min(one, other) < 0:
                continue
            if one == other or 1 in (one, other):
                assert result == (other if one == 1 else one), (words(a), words(b), s, t)
    assert decided > 100


@each(
    ("a", "b", "result"),
    [
        ("s", "Min(64, s)", "s"),
        ("Min(64, s)", "s", "s"),
        ("s", "Max(1, s)", "s"),
        ("s + 3", "Min(64, s + 3)", "s + 3"),
        ("s // 20 - 1", "Max(s // 20 - 1, 0)", "s // 20 - 1"),
        ("2 * s", "Min(8, 2 * s)", "2 * s"),
        ("s + t", "Min(8, s + t)", "s + t"),
        ("s", "t", None),
        ("s", "s + t", None),
        ("Max(s, t)", "t", None),
    ],
)
def test_what_is_decided(a: str, b: str, result: str | None) -> None:
    found = stretched(read_size(a), read_size(b))
    assert found == (None if result is None else read_size(result))
