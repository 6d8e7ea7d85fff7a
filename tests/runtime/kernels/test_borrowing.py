"""Operators that onnx.reference runs, and those that it gets wrong and we run ourselves."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.errors import RunFailed
from tests.grids import each
from tests.runtime.kernels.arrays import array, same

f32 = np.float32


def model_of(graph: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


def ours(graph: str, opset: int, feeds: dict[str, Any]) -> list[Any]:
    return [*Evaluator(ir.from_proto(model_of(graph, opset))).run(feeds).values.values()]


def is_same(found: list[Any], expected: list[Any]) -> bool:
    """Return whether values are the same: arrays, and lists of arrays."""
    return len(found) == len(expected) and all(
        isinstance(one, list) == isinstance(other, list)
        and (
            is_same(one, other)
            if isinstance(other, list)
            else np.array_equal(one, other) and np.asarray(one).dtype == other.dtype
        )
        for one, other in zip(found, expected, strict=True)
    )


GOTTEN_WRONG: dict[str, tuple[str, int, dict[str, Any], list[Any]]] = {
    "AffineGrid: double comes back as float": (
        (
            "g (double[1, 2, 3] x, int64[4] s) => (double[1, 1, 2, 2] y)"
            "{ y = AffineGrid <align_corners = 1> (x, s) }"
        ),
        20,
        {"x": np.array([[[3.0, 0, 0], [0, 1, 0]]]), "s": np.array([1, 1, 1, 2])},
        [np.array([-3.0, -1, 3, -1]).reshape(1, 1, 2, 2)],
    ),
    "AveragePool: a window that reaches out does not see the last": (
        (
            "g (float[1, 1, 2] x) => (float[1, 1, 1] y)"
            "{ y = AveragePool <kernel_shape = [4], strides = [3], ceil_mode = 1> (x) }"
        ),
        22,
        {"x": f32([[[3, 5]]])},
        [f32([[[4]]])],
    ),
    "GlobalLpPool: there is no such operator": (
        "g (float[1, 1, 2] x) => (float[1, 1, 1] y) { y = GlobalLpPool (x) }",
        22,
        {"x": f32([[[3, 4]]])},
        [f32([[[5]]])],
    ),
    "GlobalMaxPool: channels of a line are mixed": (
        "g (float[1, 2, 2] x) => (float[1, 2, 1] y) { y = GlobalMaxPool (x) }",
        22,
        {"x": f32([[[3, 5], [1, 2]]])},
        [f32([[[5], [2]]])],
    ),
    "LpPool: a window that reaches out counts more than it sees": (
        (
            "g (float[1, 1, 3] x) => (float[1, 1, 2] y)"
            "{ y = LpPool <kernel_shape = [2], strides = [2], p = 1, ceil_mode = 1> (x) }"
        ),
        22,
        {"x": f32([[[1, 2, 5]]])},
        [f32([[[3, 5]]])],
    ),
    "MaxPool: positions count along the last axis whatever is asked for": (
        (
            "g (float[1, 1, 2, 3] x) => (float[1, 1, 1, 2] y, int64[1, 1, 1, 2] i)"
            "{ y, i = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x) }"
        ),
        22,
        {"x": f32(np.arange(6)).reshape(1, 1, 2, 3)},
        [f32([4, 5]).reshape(1, 1, 1, 2), np.array([3, 5]).reshape(1, 1, 1, 2)],
    ),
    "Upsample: nothing linear": (
        'g (float[2] x, float[1] s) => (float[4] y) { y = Upsample <mode = "linear"> (x, s) }',
        9,
        {"x": f32([1, 2]), "s": f32([2])},
        [f32([1, 1.5, 2, 2])],
    ),
    "LRN: the channels beyond the size of the batch are left out": (
        (
            "g (float[1, 2, 1, 1] x) => (float[1, 2, 1, 1] y) "
            "{ y = LRN <size = 1, alpha = 1.0, beta = 1.0> (x) }"
        ),
        13,
        {"x": f32([1, 3]).reshape(1, 2, 1, 1)},
        [f32([1 / 2, 3 / 10]).reshape(1, 2, 1, 1)],
    ),
    "LpNormalization: signs count in the norm of order 1": (
        "g (float[3] x) => (float[3] y) { y = LpNormalization <p = 1> (x) }",
        13,
        {"x": f32([1, -2, 1])},
        [f32([0.25, -0.5, 0.25])],
    ),
    "MeanVarianceNormalization: the function has constants of float32 only": (
        (
            "g (float16[1, 2] x) => (float16[1, 2] y)"
            "{ y = MeanVarianceNormalization <axes = [1]> (x) }"
        ),
        13,
        {"x": np.float16([[2, 300]])},
        [np.float16([[-1, 1]])],
    ),
    "Optional: a tensor comes back as a sequence": (
        "g (float[1] x) => (optional(float[1]) y) { y = Optional (x) }",
        18,
        {"x": f32([3])},
        [f32([3])],
    ),
    "SequenceInsert: what goes behind the last goes before the first": (
        (
            "g (float[1] x, float[1] z, int64 p) => (seq(float[1]) y) "
            "{ s = SequenceConstruct (x, x) y = SequenceInsert (s, z, p) }"
        ),
        13,
        {"x": f32([3]), "z": f32([5]), "p": np.array(2)},
        [[f32([3]), f32([3]), f32([5])]],
    ),
    "Unique: elements in the order in which they come are sorted": (
        "g (float[3] x) => (float[n] y) { y = Unique <sorted = 0> (x) }",
        13,
        {"x": f32([5, 3, 5])},
        [f32([5, 3])],
    ),
    "Unique: rows in the order in which they come are taken of a matrix": (
        "g (float[2, 2] x) => (float[n] y, int64[m] i) { y, i = Unique <sorted = 0> (x) }",
        13,
        {"x": f32([[3, 1], [2, 3]])},
        [f32([3, 1, 2]), np.array([0, 1, 2])],
    ),
}
"""What is legal; onnx.reference computes something else, or fails."""


@each("name", [*GOTTEN_WRONG])
def test_a_kernel_of_ours_is_needed(name: str) -> None:
    graph, opset, feeds, expected = GOTTEN_WRONG[name]
    assert is_same(ours(graph, opset, feeds), expected)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = ReferenceEvaluator(model_of(graph, opset)).run(None, feeds)
    except Exception:  # noqa: BLE001 - whatever its code runs into
        return
    assert not is_same(list(theirs), expected), "onnx.reference can run it: our kernel can go"


X = np.arange(15, dtype=f32).reshape(3, 5)
PIXELS = np.arange(8, dtype=f32).reshape(1, 8, 1, 1)
SEQUENCE = "s = SequenceConstruct (x, z)"
TWO = {"x": X[:2], "z": X[1:]}
BORROWED: dict[str, tuple[str, int, dict[str, Any], Any]] = {
    "DepthToSpace, before it had a mode": (
        "g (float[1, 8, 1, 1] x) => (float[1, 2, 2, 2] y) { y = DepthToSpace <blocksize = 2> (x) }",
        10,
        {"x": PIXELS},
        f32([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]]),
    ),
    "DepthToSpace with the channels of the result first": (
        (
            "g (float[1, 8, 1, 1] x) => (float[1, 2, 2, 2] y) "
            '{ y = DepthToSpace <blocksize = 2, mode = "CRD"> (x) }'
        ),
        13,
        {"x": PIXELS},
        PIXELS.reshape(1, 2, 2, 2),
    ),
    "SpaceToDepth": (
        "g (float[1, 2, 2, 2] x) => (float[1, 8, 1, 1] y) { y = SpaceToDepth <blocksize = 2> (x) }",
        13,
        {"x": f32([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]])},
        PIXELS,
    ),
    "EyeLike above the diagonal": (
        "g (float[2, 3] x) => (float[2, 3] y) { y = EyeLike <k = 1> (x) }",
        9,
        {"x": np.zeros((2, 3), f32)},
        f32([[0, 1, 0], [0, 0, 1]]),
    ),
    "EyeLike far below, in another type": (
        (
            "g (float[2, 3] x) => (double[2, 3] y)"
            "{ y = EyeLike <k = -4611686018427387904, dtype = 11> (x) }"
        ),
        22,
        {"x": np.ones((2, 3), f32)},
        np.zeros((2, 3)),
    ),
    "ReverseSequence of nothing and of everything": (
        (
            "g (float[3, 5] x, int64[3] n) => (float[3, 5] y) "
            "{ y = ReverseSequence <batch_axis = 0, time_axis = 1> (x, n) }"
        ),
        10,
        {"x": X, "n": np.array([0, 5, 1])},
        np.stack([X[0], X[1, ::-1], X[2]]),
    ),
    "SequenceAt, from the back": (
        (
            f"g (float[2, 5] x, float[2, 5] z, int64 p) => (float[2, 5] y) "
            f"{{ {SEQUENCE} y = SequenceAt (s, p) }}"
        ),
        11,
        {**TWO, "p": np.array(-2)},
        X[:2],
    ),
    "SequenceConstruct": (
        f"g (float[2, 5] x, float[2, 5] z) => (seq(float[2, 5]) s) {{ {SEQUENCE} }}",
        11,
        TWO,
        [X[:2], X[1:]],
    ),
    "SequenceEmpty": ("g () => (seq(float[2]) y) { y = SequenceEmpty () }", 11, {}, []),
    "SequenceErase of the last": (
        (
            f"g (float[2, 5] x, float[2, 5] z) => (seq(float[2, 5]) y) "
            f"{{ {SEQUENCE} y = SequenceErase (s) }}"
        ),
        11,
        TWO,
        [X[:2]],
    ),
    "SequenceErase from the back": (
        (
            f"g (float[2, 5] x, float[2, 5] z, int64 p) => (seq(float[2, 5]) y) "
            f"{{ {SEQUENCE} y = SequenceErase (s, p) }}"
        ),
        11,
        {**TWO, "p": np.array(-2)},
        [X[1:]],
    ),
    "SequenceLength": (
        f"g (float[2, 5] x, float[2, 5] z) => (int64 y) {{ {SEQUENCE} y = SequenceLength (s) }}",
        11,
        TWO,
        np.array(2),
    ),
    "SplitToSequence without the axis": (
        (
            "g (float[3, 5] x) => (seq(float[5]) y)"
            "{ y = SplitToSequence <axis = 0, keepdims = 0> (x) }"
        ),
        11,
        {"x": X},
        [*X],
    ),
    "SplitToSequence with the axis kept": (
        "g (float[3, 5] x) => (seq(float[1, 5]) y) { y = SplitToSequence (x) }",
        11,
        {"x": X},
        [X[0:1], X[1:2], X[2:3]],
    ),
    "SplitToSequence in parts of two, the last smaller": (
        (
            "g (float[3, 5] x, int64 n) => (seq(float[3, m]) y) "
            "{ y = SplitToSequence <axis = -1, keepdims = 0> (x, n) }"
        ),
        11,
        {"x": X, "n": np.array(2)},
        [X[:, :2], X[:, 2:4], X[:, 4:]],
    ),
    "SplitToSequence by sizes, one of them empty": (
        (
            "g (float[3, 5] x, int64[3] n) => (seq(float[3, m]) y)"
            "{ y = SplitToSequence <axis = 1> (x, n) }"
        ),
        11,
        {"x": X, "n": np.array([4, 0, 1])},
        [X[:, :4], X[:, 4:4], X[:, 4:]],
    ),
    "ConcatFromSequence along an axis": (
        (
            f"g (float[2, 5] x, float[2, 5] z) => (float[2, 10] y) "
            f"{{ {SEQUENCE} y = ConcatFromSequence <axis = 1> (s) }}"
        ),
        11,
        TWO,
        np.concatenate([X[:2], X[1:]], axis=1),
    ),
    "ConcatFromSequence along a new axis before the last": (
        (
            f"g (float[2, 5] x, float[2, 5] z) => (float[2, 2, 5] y) "
            f"{{ {SEQUENCE} y = ConcatFromSequence <axis = -2, new_axis = 1> (s) }}"
        ),
        11,
        TWO,
        np.stack([X[:2], X[1:]], axis=-2),
    ),
    "OptionalGetElement of a tensor": (
        "g (float[3, 5] x) => (float[3, 5] y) { o = Optional (x) y = OptionalGetElement (o) }",
        15,
        {"x": X},
        X,
    ),
    "OptionalHasElement of nothing": (
        (
            "g () => (bool y) "
            "{ o = Optional <type: type_proto = float[5]> () y = OptionalHasElement (o) }"
        ),
        15,
        {},
        np.array(False),
    ),
    "OptionalHasElement of an empty sequence": (
        "g () => (bool y) { s = SequenceEmpty () y = OptionalHasElement (s) }",
        18,
        {},
        np.array(True),
    ),
    "OptionalHasElement without an input": (
        "g () => (bool y) { y = OptionalHasElement () }",
        18,
        {},
        np.array(False),
    ),
}


@each("name", list(BORROWED))
def test_what_onnx_reference_runs(name: str) -> None:
    graph, opset, feeds, expected = BORROWED[name]
    model = Evaluator(ir.from_proto(model_of(graph, opset)))
    (found,) = model.run(feeds).values.values()
    assert model.borrowed[-1].op == name.split(maxsplit=1)[0].rstrip(",")
    assert is_same([found], [expected])


@each(
    ("dtype", "written"),
    [
        (np.bool_, "bool"),
        (np.float16, "float16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.uint8, "uint8"),
        (np.complex128, "complex128"),
        (object, "string"),
    ],
)
def test_what_onnx_reference_moves_keeps_its_bits(dtype: Any, written: str) -> None:
    given = array(np.random.default_rng(7), dtype, (1, 2, 4, 6))
    there = f"g ({written}[1, 2, 4, 6] x) => ({written}[1, 8, 2, 3] y)"
    (blocks,) = ours(there + " { y = SpaceToDepth <blocksize = 2> (x) }", 13, {"x": given})
    back = f"g ({written}[1, 8, 2, 3] x) => ({written}[1, 2, 4, 6] y)"
    (again,) = ours(back + " { y = DepthToSpace <blocksize = 2> (x) }", 13, {"x": blocks})
    assert same(again, given)


@each(
    "graph",
    [
        pytest.param(
            "g (float[1, 1, 3, 5] x) => (float[a, b, c, d] y) "
            "{ [n] y = SpaceToDepth <blocksize = 2> (x) }",
            id="a plane that does not divide",
        ),
        pytest.param(
            "g (float[1, 1, 3, 5] x) => (float[a, b, c, d] y) "
            "{ [n] y = DepthToSpace <blocksize = 2> (x) }",
            id="channels that do not divide",
        ),
        pytest.param(
            "g (float[1, 1, 3, 5] x) => (float[a, b, c, d] y) "
            "{ s = SequenceEmpty () [n] y = ConcatFromSequence <axis = 0> (s) }",
            id="nothing that is joined",
        ),
        pytest.param(
            "g (float[1, 1, 3, 5] x) => (float[a, b, c, d] y) "
            "{ s = SequenceEmpty () [n] y = SequenceErase (s) }",
            id="nothing of which something is erased",
        ),
        pytest.param(
            "g (float[1, 1, 3, 5] x) => (float[a, b, c, d] y) "
            "{ s = Optional <type: type_proto = float[5]> () [n] y = OptionalGetElement (s) }",
            id="nothing that is to be something",
        ),
        pytest.param(
            "g (float[1, 1, 3, 5] x) => (float[a, b] y) { [n] y = EyeLike (x) }",
            id="a matrix like what is none",
        ),
    ],
)
def test_a_failure_of_onnx_reference_names_the_node(graph: str) -> None:
    with pytest.raises(RunFailed, match=r"node `n` \(\w+\): onnx\.reference fails: \w+Error: "):
        ours(graph, 15, {"x": np.ones((1, 1, 3, 5), f32)})


REVERSED = (
    "g (float[3, 5] x, int64[n] n) => (float[3, 5] y) "
    "{{ [n] y = ReverseSequence <batch_axis = {}, time_axis = {}> (x, n) }}"
)
SPLIT = (
    "g (float[3, 5] x, int64{} n) => (seq(float[a, b]) y) "
    "{{ [n] y = SplitToSequence <axis = {}> (x, n) }}"
)
ILLEGAL: dict[str, tuple[str, dict[str, Any], str]] = {
    "ReverseSequence of more than there is": (
        REVERSED.format(0, 1),
        {"x": X, "n": np.array([0, 6, 1])},
        "`sequence_lens[1]` is 6, expected 0 to 5, the size of axis 1 of `input`",
    ),
    "ReverseSequence of less than nothing": (
        REVERSED.format(0, 1),
        {"x": X, "n": np.array([0, 5, -1])},
        "`sequence_lens[2]` is -1, expected 0 to 5, the size of axis 1 of `input`",
    ),
    "ReverseSequence of fewer sequences than there are": (
        REVERSED.format(0, 1),
        {"x": X, "n": np.array([2, 2])},
        "`sequence_lens` has 2 elements, expected 3, the size of axis 0 of `input`",
    ),
    "ReverseSequence along one axis": (
        REVERSED.format(1, 1),
        {"x": X, "n": np.array([2, 2, 2, 2, 2])},
        "`batch_axis` is 1 and `time_axis` 1, expected 0 and 1, or 1 and 0",
    ),
    "ReverseSequence along an axis from the back": (
        REVERSED.format(0, -1),
        {"x": X, "n": np.array([2, 2, 2])},
        "`batch_axis` is 0 and `time_axis` -1, expected 0 and 1, or 1 and 0",
    ),
    "ReverseSequence of a vector": (
        REVERSED.format(0, 1).replace("float[3, 5]", "float[3]"),
        {"x": X[:, 0].copy(), "n": np.array([1, 1, 1])},
        "`input` has shape (3,), expected two dimensions or more",
    ),
    "SplitToSequence by sizes that leave something": (
        SPLIT.format("[m]", 1),
        {"x": X, "n": np.array([2, 2])},
        "`split` [2, 2] adds up to 4, expected 5, the size of axis 1 of `input`",
    ),
    "SplitToSequence by sizes that ask for more than there is": (
        SPLIT.format("[m]", -2),
        {"x": X, "n": np.array([2, 2])},
        "`split` [2, 2] adds up to 4, expected 3, the size of axis 0 of `input`",
    ),
    "SplitToSequence by a size below 0": (
        SPLIT.format("[m]", 1),
        {"x": X, "n": np.array([6, -1])},
        "`split[1]` is -1, expected 0 or more",
    ),
    "SplitToSequence in parts of less than nothing": (
        SPLIT.format("", 1),
        {"x": X, "n": np.array(-2)},
        "`split` is -2, expected 1 or more",
    ),
    "SplitToSequence in parts of nothing": (
        SPLIT.format("", 1),
        {"x": X, "n": np.array(0)},
        "`split` is 0, expected 1 or more",
    ),
    "SplitToSequence along an axis that is not there": (
        SPLIT.format("", 2),
        {"x": X, "n": np.array(1)},
        "`axis` is 2, expected -2 to 1: `input` has rank 2",
    ),
    "SplitToSequence by a matrix": (
        SPLIT.format("[1, m]", 1),
        {"x": X, "n": np.array([[2, 3]])},
        "`split` has shape (1, 2), expected one dimension",
    ),
    "DepthToSpace in an order of its own": (
        (
            "g (float[1, 8, 1, 1] x) => (float[1, 2, 2, 2] y) "
            '{ [n] y = DepthToSpace <blocksize = 2, mode = "RCD"> (x) }'
        ),
        {"x": PIXELS},
        "`mode` is `RCD`, expected `DCR` or `CRD`",
    ),
}
"""What is not legal, or computed wrongly, and of which onnx.reference says little or nothing."""


@each("name", [*ILLEGAL])
def test_what_onnx_reference_should_not_take_is_refused(name: str) -> None:
    graph, feeds, message = ILLEGAL[name]
    with pytest.raises(RunFailed) as caught:
        ours(graph, 18, feeds)
    assert caught.value.message.startswith(f"g, node `n` ({name.split(maxsplit=1)[0]}): {message}")
