"""Arrays as text: like numpy's, with what changed marked."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.report.eval_text import array_lines, excerpt, ranges
from tests.grids import each


def text(array: np.ndarray, marks: np.ndarray | None = None) -> str:
    return "\n".join(line.text for line in array_lines(array, marks))


MARKED = np.array([[[1, 10], [-2, 3]]])

CASES = [
    pytest.param(np.array(5), None, "5", id="a scalar"),
    pytest.param(np.array(5), np.array(True), "*5", id="a scalar that changed"),
    pytest.param(np.array([1, 22]), None, "[ 1 22]", id="a row"),
    pytest.param(np.array([]), None, "[]", id="nothing"),
    pytest.param(np.zeros((0, 3)), None, "[]", id="no rows"),
    pytest.param(np.zeros((2, 0)), None, "[[]\n []]", id="empty rows"),
    pytest.param(
        MARKED, MARKED > 2, "[[[  1 *10]\n  [ -2  *3]]]", id="marks stand before the elements"
    ),
    pytest.param(
        np.array([0.1, 1 / 3, 1e-9, np.nan, -np.inf]),
        None,
        "[     0.1 0.333333    1e-09      nan     -inf]",
        id="floats",
    ),
    pytest.param(np.array([0.1], np.float32), None, "[0.1]", id="digits of the type itself"),
    pytest.param(np.array([1.5], ml_dtypes.bfloat16), None, "[1.5]", id="a type numpy lacks"),
    pytest.param(np.array([-8], ml_dtypes.int4), None, "[-8]", id="four bits"),
    pytest.param(np.array([True, False]), None, "[ true false]", id="flags"),
    pytest.param(np.array(["a\n", "\x1b"], object), None, '[   "a\\n" "\\u001b"]', id="text"),
    pytest.param(np.array([1 + 2j]), None, "[1+2j]", id="complex numbers"),
]


@each(("array", "marks", "expected"), CASES)
def test_text(array, marks, expected) -> None:
    assert text(array, marks) == "\n".join(f"  {line}" for line in expected.splitlines())


def test_a_large_array_shows_its_ends_and_what_changed() -> None:
    array = np.arange(3000).reshape(1, 300, 10)
    marks = np.zeros(array.shape, np.bool_)
    marks[0, 150, 5] = True
    assert text(array, marks).splitlines() == [
        "  [[[    0     1     2 ...     5 ...     7     8     9]",
        "    [   10    11    12 ...    15 ...    17    18    19]",
        "    [   20    21    22 ...    25 ...    27    28    29]",
        "    ...",
        "    [ 1500  1501  1502 ... *1505 ...  1507  1508  1509]",
        "    ...",
        "    [ 2970  2971  2972 ...  2975 ...  2977  2978  2979]",
        "    [ 2980  2981  2982 ...  2985 ...  2987  2988  2989]",
        "    [ 2990  2991  2992 ...  2995 ...  2997  2998  2999]]]",
    ]


def test_the_spans_are_the_marked_elements() -> None:
    (line,) = array_lines(np.array([1, 20, 3]), np.array([False, True, True]))
    assert [line.text[begin:end] for begin, end in line.spans] == ["*20", "*3"]


@each(
    ("size", "expected"),
    [(0, ""), (1, "0"), (6, "0 1 2 3 4 5"), (7, "0 1 2 ... 4 5 6"), (999, "0 1 2 ... 996 997 998")],
)
def test_excerpt(size, expected) -> None:
    assert excerpt(np.arange(size)) == expected


@each(
    ("indices", "expected"), [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 2, 3, 4, 9], "0, 2-4, 9")]
)
def test_ranges(indices, expected) -> None:
    assert ranges(np.array(indices, np.int64)) == expected
