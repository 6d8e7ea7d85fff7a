"""Inputs at which one of two ways to compute fails."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import InputPlan, plan
from onnx_kvtool.verification.inputs.points import Directions, Points
from onnx_kvtool.verification.inputs.values import varied
from tests.grids import each

_FLOATS = "(float[N,4] x) => (float[N,M] y) "
_IDS = (
    "(int64[N] x) => (float[N] y) <float[5] t = {2, 3, 5, 7, 11}, int64 low = {-5}, "
    "int64 zero = {0}, int64 four = {4}> "
)
_STARTS = """(float[12,4] cache, float[2,4] new, int64[2] at) => (float[12,4] y)
    <int64 ten = {10}, int64[1] axis = {-1}> { BODY r = Mod(s, ten) i = Unsqueeze(r, axis)
    y = ScatterND(cache, i, new) }"""
_SQUARE = "{ a = Mul(x, x) y = Sqrt(a) }"
_MOMENTS = (
    "<int64[1] k = {1}> { m = ReduceMean(x, k) s = Mul(x, x) t = ReduceMean(s, k) "
    "q = Mul(m, m) y = Sub(t, q) }"
)
_CENTRED = (
    "<int64[1] k = {1}> { m = ReduceMean(x, k) d = Sub(x, m) s = Mul(d, d) y = ReduceMean(s, k) }"
)
_SUM = (
    "<int64[1] k = {1}, float t = {3}> { s = ReduceSum(x, k) u = Squeeze(s, k) c = OP(u, t) "
    "y = Cast<to: int = 1>(c) }"
)
_NORM = "<float[4] g = {1, 2, 3, 5}> { y = LayerNormalization(x, g) }"


def planned(text: str) -> InputPlan:
    head = '<ir_version: 10, opset_import: ["" : 21, "a" : 1]> g '
    return plan(deserialize(onnx.parser.parse_model(head + text).SerializeToString()))


def _starts(body: str) -> str:
    return _STARTS.replace("BODY", body)


_CAST = "c = Cast<to: int = 6>(at) s = Cast<to: int = 7>(c)"

PAIRS = {
    "the root of a square": (_FLOATS + "{ y = Abs(x) }", _FLOATS + _SQUARE, {"huge", "negative"}),
    "squares in both": (_FLOATS + _SQUARE, _FLOATS + "{ y = ReduceL2(x) }", set()),
    "a square beside a norm": (_FLOATS + _SQUARE, _FLOATS + _NORM, set()),
    "a square beside what nobody knows": (_FLOATS + _SQUARE, _FLOATS + "{ y = a.B(x) }", set()),
    "a difference of squares": (_FLOATS + _CENTRED, _FLOATS + _MOMENTS, {"distant"}),
    "a difference of squares beside a norm": (_FLOATS + _MOMENTS, _FLOATS + _NORM, set()),
    "a threshold on sums": (
        _FLOATS + _SUM.replace("OP", "Less"),
        _FLOATS + _SUM.replace("OP", "LessOrEqual"),
        {"whole"},
    ),
    "another threshold on sums": (
        _FLOATS + _SUM.replace("OP", "Less"),
        _FLOATS + _SUM.replace("OP", "Less").replace("{3}", "{5}"),
        set(),
    ),
    "the sign of ids": (
        _IDS + "{ y = Gather(t, x) }",
        _IDS + "{ a = Abs(x) y = Gather(t, a) }",
        {"below"},
    ),
    "the sign of ids on both sides": (
        _IDS + "{ a = Abs(x) y = Gather(t, a) }",
        _IDS + "{ b = Identity(x) a = Abs(b) y = Gather(t, a) }",
        set(),
    ),
    "starts in int32": (_starts("s = Identity(at)"), _starts(_CAST), {"moderate"}),
    "starts in int32 on both sides": (_starts(_CAST), _starts(_CAST), set()),
}


@each("name", [*PAIRS])
def test_cases_are_those_in_which_two_ways_to_compute_differ(name: str) -> None:
    *texts, expected = PAIRS[name]
    one, other = map(planned, texts)
    assert {case.values for case in one.corners(other)} == expected
    assert {case.values for case in other.corners(one)} == expected


def _drawn(name: str, seed: int) -> dict[str, np.ndarray]:
    one, other = (planned(text) for text in PAIRS[name][:2])
    case = one.corners(other)[0]
    return draw(one.compared(other, Directions()), case, seed)


@pytest.mark.parametrize("seed", range(5))
def test_corners_are_drawn(seed: int) -> None:
    with np.errstate(over="ignore"):
        assert np.isinf(np.square(_drawn("the root of a square", seed)["x"])).any()
    x = _drawn("a difference of squares", seed)["x"]
    assert x.min() > 1000 and np.ptp(x, axis=1).max() < 10
    assert (_drawn("a threshold on sums", seed)["x"].sum(axis=1) == 3).all()
    ids = _drawn("the sign of ids", seed)["x"]
    assert ids[0] == -1 and ids.min() >= -5 and ids.max() < 5
    assert (_drawn("starts in int32", seed)["at"] >= 1 << 32).all()


@each("dtype", ["FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"])
def test_what_is_large_depends_on_the_type(dtype: str) -> None:
    drawn = varied(np.random.default_rng(2), ir.DataType[dtype], (50,), "huge", Points(), "x")
    with np.errstate(over="ignore"):
        assert np.isfinite(drawn).all() and np.isinf(drawn * drawn).sum() > 40


@each("seed", range(20))
def test_no_zero_has_a_sign(seed: int) -> None:
    """Where of onnxruntime gives 0 for -0, and what is moved is compared bit for bit."""
    points = Points(numbers=(-0.0, 2.0))
    for values in ("edges", "negative", "wide", "whole"):
        drawn = varied(np.random.default_rng(seed), ir.DataType.FLOAT, (9, 4), values, points, "x")
        assert not (np.signbit(drawn) & (drawn == 0)).any()


BOUNDED = {
    "the whole table": ("i = Clip(x, low, four)", False),
    "by two operators": ("a = Max(x, low) i = Min(a, four)", False),
    "a view of what is bounded": ("a = Clip(x, zero, four) i = Identity(a)", False),
    "on one side": ("i = Max(x, zero)", True),
    "a sum of what is bounded": ("a = Clip(x, zero, four) i = Add(a, four)", True),
    "beyond the table": ("a = Sub(low, four) i = Clip(x, a, four)", True),
    "before what is not": ("a = Clip(x, zero, four) i = Abs(x)", True),
}


@each("name", [*BOUNDED])
def test_any_integer_is_drawn_for_an_index_that_is_bounded(name: str) -> None:
    body, is_sizing = BOUNDED[name]
    known = planned(_IDS + "{ " + body + " y = Gather(t, i) }")
    assert ("x" in known.points.sizing) == is_sizing
    [edges] = [case for case in CASES if case.values == "edges"]
    drawn = [draw(known, edges, seed)["x"] for seed in range(5)]
    assert any((ids < 0).any() for ids in drawn) != is_sizing


def test_a_bound_that_the_caller_may_give_is_none() -> None:
    text = _IDS.replace("(int64[N] x)", "(int64[N] x, int64 four)")
    known = planned(text + "{ i = Clip(x, low, four) y = Gather(t, i) }")
    assert "x" in known.points.sizing


@each("body", ["c = Less(x)", "c = Sub(x)", "c = Gather(x)", "c = Sum()", "c = Mul(x)"])
def test_what_inputs_a_node_lacks_says_nothing(body: str) -> None:
    known = planned("(float[N] x) => (float[N] y) { " + body + " y = Sin(x) }")
    assert known.corners(planned("(float[N] x) => (float[N] y) { y = Sin(x) }")) == ()
