"""What the operators of movement yield, where the cases of the onnx wheel do not look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.kernels.movement.choosing import (
    compress,
    constant_1,
    constant_of_shape,
    non_zero,
    one_hot,
    range_11,
    range_27,
    unique,
    where,
)
from onnx_kvtool.runtime.kernels.movement.reshaping import (
    expand,
    flatten_11,
    identity,
    reshape_5,
    shape_1,
    size,
    squeeze_1,
    tile,
    transpose,
    unsqueeze_1,
)
from onnx_kvtool.runtime.kernels.movement.slicing import concat, split_2, split_18, trilu
from tests.grids import each
from tests.runtime.kernels.arrays import DTYPES, array, recording, same

X = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
EMPTY = np.zeros((0, 3), np.float32)
STRINGS = np.array(["b", "", "a", "b"], object)
TWO, FOUR = recording(outputs=2)[0], recording(outputs=4)[0]
NOTHING = dict.fromkeys(
    [
        "value",
        "sparse_value",
        "value_float",
        "value_floats",
        "value_int",
        "value_ints",
        "value_string",
        "value_strings",
    ]
)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(value: Any) -> np.ndarray:
    return np.array(value, np.float32)


RESULTS: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "Reshape copies a size and finds another": (
        lambda: reshape_5(X, integers(0, -1)),
        [X.reshape(2, 15)],
    ),
    "Reshape of one element to a scalar": (
        lambda: reshape_5(X[:1, :1, :1], integers(), allowzero=0),
        [f32(0)],
    ),
    "Reshape of nothing to another nothing": (
        lambda: reshape_5(EMPTY, integers(7, 0), allowzero=1),
        [EMPTY.reshape(7, 0)],
    ),
    "Reshape of nothing that keeps its size of 0": (
        lambda: reshape_5(EMPTY, integers(0, 1, 3), allowzero=0),
        [EMPTY.reshape(0, 1, 3)],
    ),
    "Flatten of a scalar": (lambda: flatten_11(f32(7), axis=0), [f32([[7]])]),
    "Flatten behind the last axis": (lambda: flatten_11(X, axis=3), [X.reshape(30, 1)]),
    "Flatten counted from the back": (lambda: flatten_11(X, axis=-1), [X.reshape(6, 5)]),
    "Flatten before the first axis": (lambda: flatten_11(X, axis=-3), [X.reshape(1, 30)]),
    "Transpose without a permutation": (lambda: transpose(X, perm=None), [X.T]),
    "Transpose to the left": (
        lambda: transpose(X, perm=(1, 2, 0)),
        [np.moveaxis(X, 0, -1)],
    ),
    "Concat of one": (lambda: concat(X, axis=-1), [X]),
    "Concat with nothing": (lambda: concat(X, X[:, :0], X[:, :1], axis=1), [X[:, [0, 1, 2, 0]]]),
    "Expand in both directions": (
        lambda: expand(f32([[1], [2]]), integers(3, 1, 2)),
        [np.tile(f32([[1], [2]]), (3, 1, 2))],
    ),
    "Expand to fewer axes": (lambda: expand(X, integers(1)), [X]),
    "Expand to nothing": (lambda: expand(f32([[1]]), integers(0, 2)), [np.zeros((0, 2), "f")]),
    "Tile of a scalar": (lambda: tile(f32(7), integers()), [f32(7)]),
    "Tile by 0": (lambda: tile(X, integers(1, 0, 2)), [np.zeros((2, 0, 10), np.float32)]),
    "Squeeze of everything": (lambda: squeeze_1(X[:1, :, :1]), [X[0, :, 0]]),
    "Squeeze of no axes": (lambda: squeeze_1(X[:1], integers()), [X[:1]]),
    "Unsqueeze in any order": (
        lambda: unsqueeze_1(X, integers(-1, 0)),
        [X.reshape(1, 2, 3, 5, 1)],
    ),
    "Unsqueeze of one axis that is a scalar": (
        lambda: unsqueeze_1(X, np.array(-1)),
        [X[..., None]],
    ),
    "Split into a smaller last part": (
        lambda: split_18(X, axis=-1, num_outputs=2, context=TWO),
        [X[..., :3], X[..., 3:]],
    ),
    "Split into a last part of nothing": (
        lambda: split_18(X[:, :, :3], axis=2, num_outputs=4, context=FOUR),
        [X[:, :, :1], X[:, :, 1:2], X[:, :, 2:3], X[:, :, 3:3]],
    ),
    "Split with a part of nothing": (
        lambda: split_2(X, integers(0, 3), axis=1, context=TWO),
        [X[:, :0], X],
    ),
    "Where over three shapes": (
        lambda: where(np.array([[True], [False]]), f32([1, 2]), f32(7)),
        [f32([[1, 2], [7, 7]])],
    ),
    "Where of strings": (
        lambda: where(np.array(True), STRINGS[:1].reshape(()), STRINGS[2:3].reshape(())),
        [np.array("b", object)],
    ),
    "Range of integers to beyond the end": (
        lambda: range_11(*(np.array(n, np.int16) for n in (30000, 32767, 2000))),
        [np.array([30000, 32000], np.int16)],
    ),
    "Range whose next element the dtype cannot hold": (
        lambda: range_11(*(np.array(n, np.int16) for n in (30000, 32767, 30000))),
        [np.array([30000], np.int16)],
    ),
    "Range over all of the integers": (
        lambda: range_11(*(np.array(n, np.int64) for n in (-(2**63), 2**63 - 1, 2**62))),
        [integers(-(2**63), -(2**62), 0, 2**62)],
    ),
    "Range backward": (
        lambda: range_11(*(np.array(n, np.int64) for n in (5, -1, -2))),
        [integers(5, 3, 1)],
    ),
    "Range that ends before it starts": (
        lambda: range_11(f32(1), f32(0), f32(1)),
        [np.zeros(0, np.float32)],
    ),
    "Range that does not drift": (
        lambda: range_11(f32(0), f32(1), f32(0.1)),
        [np.arange(10, dtype=np.float32) * np.float32(0.1)],
    ),
    "Range of half precision rounded once": (
        lambda: range_27(*(np.array(n, ml_dtypes.bfloat16) for n in (0, 2, 0.3)), stash_type=1),
        [(np.arange(7) * np.float32(ml_dtypes.bfloat16(0.3))).astype(ml_dtypes.bfloat16)],
    ),
    "Shape clamps": (lambda: shape_1(X, start=-9, end=9), [integers(2, 3, 5)]),
    "Shape of nothing in between": (lambda: shape_1(X, start=2, end=-2), [integers()]),
    "Shape of a scalar": (lambda: shape_1(f32(0), start=0, end=None), [integers()]),
    "Size of a scalar": (lambda: size(f32(0)), [np.array(1)]),
    "ConstantOfShape without a value": (
        lambda: constant_of_shape(integers(2, 0), value=None),
        [np.zeros((2, 0), np.float32)],
    ),
    "ConstantOfShape of no shape": (
        lambda: constant_of_shape(integers(), value=np.array([7], ml_dtypes.int4)),
        [np.array(7, ml_dtypes.int4)],
    ),
    "Constant of a float": (lambda: constant_1(**NOTHING | {"value_float": 0.5}), [f32(0.5)]),
    "Constant of floats": (lambda: constant_1(**NOTHING | {"value_floats": ()}), [f32([])]),
    "Constant of an integer": (lambda: constant_1(**NOTHING | {"value_int": 7}), [np.array(7)]),
    "Constant of integers": (
        lambda: constant_1(**NOTHING | {"value_ints": (1, 2)}),
        [integers(1, 2)],
    ),
    "Constant of a string": (
        lambda: constant_1(**NOTHING | {"value_string": "abc"}),
        [np.array("abc", object)],
    ),
    "Constant of strings": (
        lambda: constant_1(**NOTHING | {"value_strings": ("ab", "c")}),
        [np.array(["ab", "c"], object)],
    ),
    "Trilu far above": (
        lambda: trilu(X, np.array(2**63 - 1), upper=1),
        [np.zeros_like(X)],
    ),
    "Trilu far below": (lambda: trilu(X, np.array(-(2**63)), upper=1), [X]),
    "Trilu of a lower triangle": (
        lambda: trilu(X, np.array([-1]), upper=0),
        [np.tril(X, -1)],
    ),
    "OneHot from the back": (
        lambda: one_hot(integers(-1, -4, 0, 3), integers(3), f32([2, 7]), axis=0),
        [f32([[2, 2, 7, 2], [2, 2, 2, 2], [7, 2, 2, 2]])],
    ),
    "OneHot before indices counted from the back": (
        lambda: one_hot(
            integers(-1, 1), np.array(2.9, np.float32), STRINGS[1:3], axis=-1, is_before_11=True
        ),
        [np.array([["", ""], ["", "a"]], object)],
    ),
    "OneHot of an index that int64 cannot hold": (
        lambda: one_hot(np.array([2**64 - 1], np.uint64), integers(2), f32([2, 7]), axis=-1),
        [f32([[2, 2]])],
    ),
    "NonZero of a scalar": (lambda: non_zero(f32(7)), [np.zeros((0, 1), np.int64)]),
    "NonZero of zero": (lambda: non_zero(f32(-0.0)), [np.zeros((0, 0), np.int64)]),
    "NonZero of what is no number": (
        lambda: non_zero(np.array([[0, np.nan]], ml_dtypes.bfloat16)),
        [np.array([[0], [1]])],
    ),
    "NonZero of strings": (lambda: non_zero(STRINGS), [np.array([[0, 2, 3]])]),
    "Compress by a short condition": (
        lambda: compress(X, np.array([False, True]), axis=-1),
        [X[..., [1]]],
    ),
    "Compress of all elements": (
        lambda: compress(X, np.array([False, True, True]), axis=None),
        [f32([1, 2])],
    ),
    "Unique strings in the order they come": (
        lambda: unique(STRINGS, axis=None, sorted=0),
        [
            np.array(["b", "", "a"], object),
            integers(0, 1, 2),
            integers(0, 1, 2, 0),
            integers(2, 1, 1),
        ],
    ),
    "Unique slices of strings": (
        lambda: unique(STRINGS[[0, 2, 0]][None], axis=1, sorted=1),
        [np.array([["a", "b"]], object), integers(1, 0), integers(1, 0, 1), integers(1, 2)],
    ),
    "Unique of nothing": (
        lambda: unique(EMPTY, axis=0, sorted=1),
        [EMPTY, integers(), integers(), integers()],
    ),
}


@each(("run", "expected"), [pytest.param(*case, id=name) for name, case in RESULTS.items()])
def test_yields(run: Callable[[], Any], expected: list[Any]) -> None:
    result = run()
    outputs = result if isinstance(result, tuple) else (result,)
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected, strict=True):
        assert isinstance(output, np.ndarray)
        assert same(output, wanted), (output, wanted)


MOVING: dict[str, Callable[[np.ndarray], Any]] = {
    "Reshape": lambda x: reshape_5(x, integers(5, -1), allowzero=0),
    "Flatten": lambda x: flatten_11(x, axis=2),
    "Transpose": lambda x: transpose(x, perm=(2, 0, 1)),
    "Concat": lambda x: concat(x, x, axis=1),
    "Expand": lambda x: expand(x, integers(3, 1, 1, 1)),
    "Tile": lambda x: tile(x, integers(1, 2, 1)),
    "Squeeze": lambda x: squeeze_1(x[:1], integers(0)),
    "Unsqueeze": lambda x: unsqueeze_1(x, integers(1)),
    "Where": lambda x: where(x == x, x, x),
    "ConstantOfShape": lambda x: constant_of_shape(integers(2), value=x[:1, :1, :1]),
    "Compress": lambda x: compress(x, np.array([True, False, True]), axis=1),
    "OneHot": lambda x: one_hot(integers(0, 2), integers(5), x[0, 0, :2], axis=0),
}


@each("dtype", DTYPES)
@each("operator", list(MOVING))
def test_what_only_moves_takes_every_dtype(operator: str, dtype: Any) -> None:
    source = array(np.random.default_rng(7), dtype, (2, 3, 5))
    places = np.arange(source.size, dtype=np.int32).reshape(source.shape)
    moved = MOVING[operator](places)
    output = MOVING[operator](source)
    assert same(output, source.reshape(-1)[moved])


def test_a_constant_cannot_be_overwritten() -> None:
    value = f32([1, 2])
    output = constant_1(value=value)
    assert not output.flags.writeable and value.flags.writeable


def test_identity_returns_what_it_gets() -> None:
    for value in (X, [X], None):
        assert identity(value) is value
