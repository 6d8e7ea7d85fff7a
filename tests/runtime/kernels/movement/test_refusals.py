"""What the texts of the operators of movement do not allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.movement.choosing import (
    compress,
    constant_1,
    constant_of_shape,
    one_hot,
    range_11,
    range_27,
    unique,
    where,
)
from onnx_kvtool.runtime.kernels.movement.reshaping import (
    expand,
    flatten_1,
    flatten_11,
    reshape_5,
    squeeze_1,
    tile,
    transpose,
    unsqueeze_1,
)
from onnx_kvtool.runtime.kernels.movement.slicing import concat, split_2, split_18, trilu
from tests.grids import each
from tests.runtime.kernels.arrays import recording

X = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
TWO, FOUR = recording(outputs=2)[0], recording(outputs=4)[0]


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(value: Any) -> np.ndarray:
    return np.array(value, np.float32)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "Reshape to another number of elements": (
        lambda: reshape_5(X, integers(7, 5), allowzero=0),
        "`shape` [7, 5] makes 35 elements, expected 30 as `data` with shape (2, 3, 5)",
    ),
    "Reshape to a size that does not divide": (
        lambda: reshape_5(X, integers(7, -1), allowzero=0),
        (
            "`shape` [7, -1] leaves no size for -1: `data` with shape (2, 3, 5) has 30 elements, "
            "the other sizes make 7"
        ),
    ),
    "Reshape of nothing to a size that could be any": (
        lambda: reshape_5(X[:0], integers(0, -1), allowzero=0),
        (
            "`shape` [0, -1] leaves no size for -1: `data` with shape (0, 3, 5) has 0 elements, "
            "the other sizes make 0"
        ),
    ),
    "Reshape with two sizes to find": (
        lambda: reshape_5(X, integers(-1, -1), allowzero=0),
        "`shape` [-1, -1] contains -1 more than once",
    ),
    "Reshape to a negative size": (
        lambda: reshape_5(X, integers(3, -2), allowzero=0),
        "`shape`[1] is -2, expected -1 or more",
    ),
    "Reshape that copies a size that is not there": (
        lambda: reshape_5(X, integers(2, 3, 5, 0), allowzero=0),
        "`shape`[3] is 0, the size of `data` in dimension 3, but `data` has shape (2, 3, 5)",
    ),
    "Reshape to a size of 0 and one to find": (
        lambda: reshape_5(X, integers(0, -1), allowzero=1),
        "`shape` [0, -1] contains both 0 and -1, which `allowzero` forbids",
    ),
    "Flatten beyond the rank": (
        lambda: flatten_11(X, axis=4),
        "`axis` is 4, expected -3 to 3: `input` has rank 3",
    ),
    "Flatten from the back in an old version": (
        lambda: flatten_1(X, axis=-1),
        "`axis` is -1, expected 0 or more before version 11",
    ),
    "Transpose with a negative axis": (
        lambda: transpose(X, perm=(0, -1, 1)),
        "`perm` is [0, -1, 1], expected a permutation of 0 to 2: `data` has shape (2, 3, 5)",
    ),
    "Transpose of fewer axes": (
        lambda: transpose(X, perm=(1, 0)),
        "`perm` is [1, 0], expected a permutation of 0 to 2: `data` has shape (2, 3, 5)",
    ),
    "Concat of another dimension": (
        lambda: concat(X, X[:, :2], axis=2),
        "`inputs[1]` has shape (2, 2, 5), expected that of `inputs[0]`, (2, 3, 5), but for axis 2",
    ),
    "Concat of another rank": (
        lambda: concat(X, X[0], axis=0),
        "`inputs[1]` has shape (3, 5), expected that of `inputs[0]`, (2, 3, 5), but for axis 0",
    ),
    "Concat of scalars": (
        lambda: concat(f32(1), f32(2), axis=0),
        "`axis` is 0, expected none: `inputs[0]` has rank 0",
    ),
    "Expand of a size that is not 1": (
        lambda: expand(X, integers(2, 1, 1)[1:] * 2),
        "`input` with shape (2, 3, 5) cannot be expanded to `shape` [2, 2]",
    ),
    "Expand to -1": (lambda: expand(X, integers(-1)), "`shape` [-1] contains a negative size"),
    "Tile of fewer axes": (
        lambda: tile(X, integers(2)),
        "`repeats` has 1 element, expected 3: `input` has shape (2, 3, 5)",
    ),
    "Tile a negative number of times": (
        lambda: tile(X, integers(1, 1, -1)),
        "`repeats` [1, 1, -1] contains a negative number",
    ),
    "Squeeze of a size that is not 1": (
        lambda: squeeze_1(X, integers(-2)),
        "axis 1 of `data` has size 3, expected 1 as `axes` names it: shape (2, 3, 5)",
    ),
    "Unsqueeze of axes of rank 2": (
        lambda: unsqueeze_1(X, integers(0, 1)[None]),
        "`axes` has shape (1, 2), expected one dimension",
    ),
    "Squeeze of an axis named twice": (
        lambda: squeeze_1(X[:1], integers(0, -3)),
        "`axes` [0, -3] names axis 0 twice, at positions 0 and 1",
    ),
    "Unsqueeze of an axis named twice": (
        lambda: unsqueeze_1(X, integers(0, -5)),
        "`axes` [0, -5] names axis 0 twice, at positions 0 and 1",
    ),
    "Unsqueeze beyond the result": (
        lambda: unsqueeze_1(X, axes=(4,)),
        "`axes[0]` is 4, expected -4 to 3: `expanded` has rank 4",
    ),
    "Split into parts that are not equal": (
        lambda: split_2(X, split=None, axis=1, context=TWO),
        (
            "axis 1 of `input` has size 3, expected a multiple of 2, the number of outputs: "
            "shape (2, 3, 5)"
        ),
    ),
    "Split into parts that do not sum up": (
        lambda: split_2(X, integers(1, 1), axis=1, context=TWO),
        (
            "`split` [1, 1] sums up to 2, expected 3, the size of axis 1 of `input` with shape "
            "(2, 3, 5)"
        ),
    ),
    "Split into more parts than outputs": (
        lambda: split_2(X, integers(1, 1, 1), axis=1, context=TWO),
        "`split` has 3 elements, expected 2, the number of outputs",
    ),
    "Split into a negative part": (
        lambda: split_2(X, integers(4, -1), axis=1, context=TWO),
        "`split` [4, -1] contains a negative size",
    ),
    "Split into parts of which the last would be negative": (
        lambda: split_18(X, axis=2, num_outputs=4, context=FOUR),
        "`num_outputs` is 4: axis 2 of size 5 is used up by fewer parts of 2",
    ),
    "Split into a number of parts that are not the outputs": (
        lambda: split_18(X, axis=2, num_outputs=3, context=FOUR),
        "`num_outputs` is 3, expected 4, the number of outputs",
    ),
    "Split that says nothing": (
        lambda: split_18(X, axis=2, num_outputs=None, context=TWO),
        "neither of `split` and `num_outputs` are given, expected one",
    ),
    "Split that says it twice": (
        lambda: split_18(X, integers(1, 4), axis=2, num_outputs=2, context=TWO),
        "both of `split` and `num_outputs` are given, expected one",
    ),
    "Where of shapes that do not fit": (
        lambda: where(np.ones((2, 3), np.bool_), X, f32([1])),
        (
            "`condition`, `X` and `Y` with shapes (2, 3), (2, 3, 5) and (1,) cannot be broadcast "
            "to one"
        ),
    ),
    "Range by 0": (lambda: range_11(f32(0), f32(1), f32(0)), "`delta` is 0"),
    "Range to infinity": (
        lambda: range_11(f32(0), f32(np.inf), f32(1)),
        "`limit` is inf, expected a finite number",
    ),
    "Range over more than there is": (
        lambda: range_11(f32(-3e38), f32(3e38), f32(1)),
        "`limit` - `start` overflows",
    ),
    "Range from a row": (
        lambda: range_11(f32([0, 1]), f32(1), f32(1)),
        "`start` has shape (2,), expected a scalar",
    ),
    "Range computed in another dtype": (
        lambda: range_27(f32(0), f32(1), f32(1), stash_type=11),
        "`stash_type` is 11, expected 1",
    ),
    "ConstantOfShape of a negative size": (
        lambda: constant_of_shape(integers(2, -1), value=None),
        "`input` [2, -1] contains a negative size",
    ),
    "ConstantOfShape of two values": (
        lambda: constant_of_shape(integers(2), value=f32([1, 2])),
        "`value` has shape (2,), expected one element",
    ),
    "Constant of nothing": (
        lambda: constant_1(value=None, sparse_value=None),
        (
            "none of the attributes are given, expected exactly one of `value`, `sparse_value`, "
            "`value_float`, `value_floats`, `value_int`, `value_ints`, `value_string`, "
            "`value_strings`"
        ),
    ),
    "Constant of two values": (
        lambda: constant_1(value=X, sparse_value=X),
        (
            "`value` and `sparse_value` of the attributes are given, expected exactly one of "
            "`value`, `sparse_value`, `value_float`, `value_floats`, `value_int`, `value_ints`, "
            "`value_string`, `value_strings`"
        ),
    ),
    "Trilu of a row": (
        lambda: trilu(X[0, 0], upper=1),
        "`input` has shape (5,), expected at least two dimensions",
    ),
    "Trilu of strings": (
        lambda: trilu(X.astype(object), upper=1),
        "`input` contains strings, which have no zero",
    ),
    "Trilu of two diagonals": (
        lambda: trilu(X, integers(0, 1), upper=1),
        "`k` is int64 of shape (2,), expected one int64",
    ),
    "OneHot of a negative depth": (
        lambda: one_hot(integers(0), integers(-1), f32([0, 1]), axis=-1),
        "`depth` is -1, expected 0 or more",
    ),
    "OneHot of two depths": (
        lambda: one_hot(integers(0), integers(1, 2), f32([0, 1]), axis=-1),
        "`depth` has shape (2,), expected one element",
    ),
    "OneHot of one value": (
        lambda: one_hot(integers(0), integers(1), f32([0]), axis=-1),
        "`values` has shape (1,), expected (2,)",
    ),
    "OneHot on an axis that is not there": (
        lambda: one_hot(integers(0), integers(1), f32([0, 1]), axis=2),
        "`axis` is 2, expected -2 to 1: `output` has rank 2",
    ),
    "Compress by a long condition": (
        lambda: compress(X, np.ones(4, np.bool_), axis=1),
        "`condition` has 4 elements, expected at most 3: `input` has shape (2, 3, 5)",
    ),
    "Compress by a matrix": (
        lambda: compress(X, np.ones((1, 2), np.bool_), axis=1),
        "`condition` has shape (1, 2), expected rank 1",
    ),
    "Unique in some order": (
        lambda: unique(X, axis=None, sorted=2),
        "`sorted` is 2, expected 0 or 1",
    ),
}


@each(("run", "message"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refuses(run: Callable[[], Any], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        run()
    assert caught.value.message == message
