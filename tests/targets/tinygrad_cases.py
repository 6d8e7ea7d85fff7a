"""Small models with each limit of tinygrad, and what kvtool writes instead.

`tests/targets/test_tinygrad.py` lowers them, `tests/compat/test_tinygrad.py` runs them in tinygrad,
as they are and as they are lowered.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.runtime.onnxruntime import Session

__all__ = ["CASES", "HEAD", "expected_of", "feeds_of"]

HEAD = '<ir_version: 8, opset_import: ["": {}]>'

Arrays = dict[str, np.ndarray]

CASES: list[tuple[str, str, int, str, list[str] | None]] = [
    (
        "scatter-nd-in-place",
        "data that is read behind it",
        18,
        (
            "g (float[2, 5] x, float[2] u) => (float[2, 5] z, float[2, 5] w) "
            "<int64[2, 2] i = {0, 1, 1, 4}> { y = Neg (x)  z = ScatterND (y, i, u)  w = Abs (y) }"
        ),
        ["Neg", "Mul", "ScatterND", "Abs"],
    ),
    (
        "scatter-nd-in-place",
        "data that is written twice",
        18,
        (
            "g (float[5] x, float[1] u) => (float[5] z, float[5] w) "
            "<int64[1, 1] i = {1}, int64[1, 1] j = {3}> "
            "{ z = ScatterND (x, i, u)  w = ScatterND (x, j, u) }"
        ),
        ["Mul", "ScatterND", "Mul", "ScatterND"],
    ),
    (
        "scatter-nd-in-place",
        "booleans",
        18,
        (
            "g (bool[5] x, bool[1] u) => (bool[5] z, bool[5] w) <int64[1, 1] i = {1}> "
            "{ y = Not (x)  z = ScatterND (y, i, u)  w = Not (y) }"
        ),
        ["Not", "Cast", "Mul", "Cast", "ScatterND", "Not"],
    ),
    (
        "scatter-nd-in-place",
        "a constant of integers",
        18,
        (
            "g (int64[1] u) => (int64[3] z, int64[3] w) "
            "<int64[3] x = {5, 7, 9}, int64[1, 1] i = {1}> { z = ScatterND (x, i, u)  w = Neg (x) }"
        ),
        ["Mul", "ScatterND", "Neg"],
    ),
    (
        "scatter-nd-in-place",
        "two additions to one place",
        18,
        (
            "g (float[5, 2] x, float[1, 3, 2] u) => (float[5, 2] z) <int64[1, 3, 1] i = {1, 4, 1}> "
            '{ z = ScatterND <reduction = "add"> (x, i, u) }'
        ),
        ["Mul", "Reshape", *["Shape", "Slice"] * 2, "Concat", "Reshape", "ScatterND"],
    ),
    (
        "scatter-nd-in-place",
        "a single index",
        18,
        (
            "g (float[5, 2] x, float[2] u) => (float[5, 2] z) <int64[1] i = {3}> "
            "{ z = ScatterND (x, i, u) }"
        ),
        ["Mul", "Reshape", *["Shape", "Slice"] * 2, "Concat", "Reshape", "ScatterND"],
    ),
    (
        "gather-constant-matrix",
        "a matrix",
        18,
        (
            "g (float[5, 3] x) => (float[2, 2, 3] z) <int64[2, 2] i = {4, 0, 2, -1}> "
            "{ z = Gather (x, i) }"
        ),
        ["Identity", "Gather"],
    ),
    (
        "gather-constant-matrix",
        "no elements",
        18,
        "g (float[5, 3] x) => (float[0, 3] z) <int64[0] i = {}> { z = Gather (x, i) }",
        ["Identity", "Gather"],
    ),
    (
        "split-uneven",
        "ten elements in four parts",
        18,
        (
            "g (float[10] x) => (float[3] a, float[3] b, float[3] c, float[1] d) "
            "{ a, b, c, d = Split <num_outputs = 4> (x) }"
        ),
        ["Split"],
    ),
    (
        "split-uneven",
        "a symbolic dimension",
        18,
        (
            "g (float[n] x) => (float[a] u, float[b] v, float[c] w) "
            "{ u, v, w = Split <num_outputs = 3> (x) }"
        ),
        ["Shape", "Gather", "Add", "Div", "Mul", "Sub", "Concat", "Split"],
    ),
    (
        "squeeze-from-the-end",
        "two axes",
        18,
        "g (float[2, 3, 1, 1] x) => (float[2, 3] z) <int64[2] a = {-1, -2}> { z = Squeeze (x, a) }",
        ["Squeeze"],
    ),
    (
        "squeeze-from-the-end",
        "axes as an attribute",
        12,
        "g (float[2, 3, 1, 1] x) => (float[2, 3] z) { z = Squeeze <axes = [-1, -2]> (x) }",
        ["Squeeze"],
    ),
    (
        "unsqueeze-from-the-end",
        "two axes",
        18,
        (
            "g (float[2, 3] x) => (float[2, 3, 1, 1] z) <int64[2] a = {-1, -2}> "
            "{ z = Unsqueeze (x, a) }"
        ),
        ["Unsqueeze"],
    ),
    (
        "conv-same",
        "a window of one in steps of two",
        18,
        (
            "g (float[1, 1, 4, 6] x, float[1, 1, 1, 1] w) => (float[1, 1, 2, 3] z) "
            '{ z = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w) }'
        ),
        ["Conv"],
    ),
    (
        "conv-same",
        "a window with gaps",
        18,
        (
            "g (float[1, 1, 7] x, float[1, 1, 3] w) => (float[1, 1, 7] z) "
            '{ z = Conv <auto_pad = "SAME_LOWER", dilations = [2]> (x, w) }'
        ),
        ["Conv"],
    ),
    (
        "conv-same",
        "an unknown size",
        18,
        (
            "g (float[1, 1, n] x, float[1, 1, 2] w) => (float[1, 1, m] z) "
            '{ z = Conv <auto_pad = "SAME_LOWER", strides = [3]> (x, w) }'
        ),
        None,
    ),
    (
        "max-pool-same",
        "a window with gaps",
        18,
        (
            "g (float[1, 1, 6] x) => (float[1, 1, 6] z) "
            '{ z = MaxPool <auto_pad = "SAME_UPPER", dilations = [2], kernel_shape = [3]> (x) }'
        ),
        ["MaxPool"],
    ),
    (
        "average-pool-same",
        "a window with gaps",
        19,
        (
            "g (float[1, 1, 6] x) => (float[1, 1, 6] z) "
            '{ z = AveragePool <auto_pad = "SAME_UPPER", dilations = [2], kernel_shape = [3]> (x) }'
        ),
        ["AveragePool"],
    ),
    (
        "max-pool-indices",
        "two channels",
        18,
        (
            "g (float[1, 2, 4] x) => (float[1, 2, 2] z, int64[1, 2, 2] i) "
            "{ z, i = MaxPool <kernel_shape = [2], strides = [2]> (x) }"
        ),
        None,
    ),
    (
        "size-number",
        "of an unknown size",
        18,
        "g (float[n, 3] x) => (int64 z) { z = Size (x) }",
        ["Shape", "ReduceProd"],
    ),
    (
        "range-int32",
        "an output",
        18,
        (
            "g (float[n] x) => (int64[m] z) <int64 o = {0}, int64 d = {1}> "
            "{ s = Shape (x)  r = Squeeze (s)  z = Range (o, r, d) }"
        ),
        ["Shape", "Squeeze", "Range", "Cast"],
    ),
    (
        "range-types",
        "of double",
        18,
        "g (double n) => (double[m] z) <double o = {0}, double d = {1}> { z = Range (o, n, d) }",
        None,
    ),
    (
        "quantize-halves",
        "halves",
        18,
        (
            "g () => (uint8[4] z) "
            "<float[4] x = {0.5, 1.5, 2.5, 3.5}, float s = {1.0}, uint8 o = {1}> "
            "{ z = QuantizeLinear (x, s, o) }"
        ),
        ["Div", "Round", "Cast", "Add", "Clip", "Cast"],
    ),
    (
        "eye-offset",
        "of a square",
        18,
        "g (float[3, 3] x) => (float[3, 3] z) { z = EyeLike <k = 1> (x) }",
        None,
    ),
    (
        "softmax-coerced",
        "of three dimensions",
        11,
        "g (float[2, 3, 5] x) => (float[2, 3, 5] z) { z = Softmax (x) }",
        None,
    ),
    (
        "log-softmax-coerced",
        "of three dimensions",
        11,
        "g (float[2, 3, 5] x) => (float[2, 3, 5] z) { z = LogSoftmax (x) }",
        None,
    ),
    (
        "hardmax-coerced",
        "of three dimensions",
        11,
        "g (float[2, 3, 5] x) => (float[2, 3, 5] z) { z = Hardmax <axis = 0> (x) }",
        None,
    ),
    (
        "group-normalization-scale",
        "two groups of four channels",
        18,
        (
            "g (float[2, 4, 3] x, float[2] s, float[2] b) => (float[2, 4, 3] z) "
            "{ z = GroupNormalization <num_groups = 2> (x, s, b) }"
        ),
        [],
    ),
    (
        "mean-variance-axes",
        "other axes",
        18,
        "g (float[2, 3] x) => (float[2, 3] z) { z = MeanVarianceNormalization <axes = [1]> (x) }",
        [],
    ),
    (
        "shrink-infinite",
        "infinities",
        18,
        "g () => (float[3] z) <float[3] x = {inf, -inf, 2.0}> { z = Shrink (x) }",
        [],
    ),
    (
        "log-sum-exp-large",
        "more than a float holds",
        18,
        (
            "g () => (float[3] z) <float[3, 2] x = {90.0, 100.0, inf, 2.0, -inf, 3.0}, "
            "int64[1] a = {-1}> { z = ReduceLogSumExp <keepdims = 0> (x, a) }"
        ),
        [],
    ),
    (
        "log-sum-exp-large",
        "of all axes",
        13,
        (
            "g () => (float[1, 1] z) <float[2, 2] x = {-100.0, -200.0, -101.0, -102.5}> "
            "{ z = ReduceLogSumExp (x) }"
        ),
        [],
    ),
    (
        "gemm-integers",
        "of int32",
        18,
        "g (int32[2, 3] x, int32[3, 2] y) => (int32[2, 2] z) { z = Gemm (x, y) }",
        None,
    ),
    (
        "reduce-mean-integers",
        "of int32",
        18,
        "g (int32[2, 3] x) => (int32[1, 1] z) { z = ReduceMean (x) }",
        None,
    ),
    (
        "pow-integers",
        "beyond float32",
        18,
        "g () => (int64[2] z) <int64[2] x = {3, -3}, int64[2] e = {25, 3}> { z = Pow (x, e) }",
        None,
    ),
    (
        "pow-promoted",
        "float16 to a power of float32",
        18,
        (
            "g (float16[3] x) => (float16[3] z) <float[3] e = {2.0, 3.0, 0.5}> "
            "{ y = Abs (x)  z = Pow (y, e) }"
        ),
        ["Abs", "Pow", "Cast"],
    ),
    (
        "q-linear-conv-pictures",
        "of three dimensions",
        18,
        (
            "g () => (uint8[1, 1, 2] z) "
            "<uint8[1, 1, 4] x = {5, 9, 3, 7}, uint8[1, 1, 3] w = {1, 2, 3}, "
            "float s = {0.5}, uint8 o = {3}> { z = QLinearConv (x, s, o, w, s, o, s, o) }"
        ),
        None,
    ),
    (
        "top-k-unsorted",
        "two of five",
        18,
        (
            "g (float[5] x) => (float[2] v, int64[2] i) <int64[1] k = {2}> "
            "{ v, i = TopK <sorted = 0> (x, k) }"
        ),
        None,
    ),
    (
        "constant-of-scalar",
        "no dimension",
        18,
        (
            "g (float[3] x) => (float[3] z) <int64[0] s = {}> "
            "{ c = ConstantOfShape (s)  z = Add (x, c) }"
        ),
        ["Identity", "Add"],
    ),
]
"""The limit, the case in words, an opset, a model, and the operators written.

None stands for a refusal, an empty list for a function body without the operator."""


def feeds_of(model: onnx.ModelProto) -> Arrays:
    """Return seeded numbers for each input; a symbolic dimension is 7, a scalar about 4."""
    drawn, feeds = np.random.default_rng(3), Arrays()
    for value in model.graph.input:
        type_ = value.type.tensor_type
        shape = [dim.dim_value or 7 for dim in type_.shape.dim]
        numbers = drawn.standard_normal(shape) * 3 + (0 if shape else 4)
        feeds[value.name] = numbers.astype(onnx.helper.tensor_dtype_to_np_dtype(type_.elem_type))
    return feeds


def expected_of(model: onnx.ModelProto, text: str, opset: int, feeds: Arrays) -> list[np.ndarray]:
    """Return what the specification says.

    onnx.reference does not coerce before opset 13, where onnxruntime does; neither of them makes
    the output of a pool with gaps as long as SAME says, which pads in numbers do.
    """
    if opset < 12:
        return list(Session(model.SerializeToString(), "").run(feeds).values())
    if "Pool" in text:
        pads = text.replace('auto_pad = "SAME_UPPER"', "pads = [2, 2]")
        model = onnx.parser.parse_model(HEAD.format(opset) + pads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of infinities
        return ReferenceEvaluator(model).run(None, feeds)
