"""Positions that wrap and whose start is taken from something: the raised model takes it modulo."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.runtime.engine.evaluator import Evaluator

_MODEL = """
<ir_version: 10, opset_import: ["": 18]>
g (float[2, 3, 5, 7] cache, float[2, 3, 2, 7] update, int64[2] w) => (float[2, 3, 5, 7] present) {
  ones = Constant <value = int64[3] {1, 2, 3}> ()
  rows = Constant <value = int64[1, 1, 2, 1] {0, 1}> ()
  size = Constant <value = int64 {5}> () three = Constant <value = int64 {3}> ()
  shape = Constant <value = int64[4] {2, 3, 2, 7}> ()
  START starts = Unsqueeze (start, ones) sum = Add (starts, rows) place = Mod (sum, size)
  index = Expand (place, shape) present = ScatterElements <axis = 2> (cache, index, update)
}
"""


@pytest.mark.long
@pytest.mark.parametrize("start", ["start = Neg (w)", "start = Sub (three, w)"])
def test_a_start_that_may_be_negative_is_taken_modulo(start: str) -> None:
    source = ir.from_proto(onnx.parser.parse_model(_MODEL.replace("START", start)))
    raised, report = raise_(source)
    assert [(r.axis, r.mode) for r in report.raised] == [(2, "circular")]
    assert report.verification.status == "equal"
    rng = np.random.default_rng(0)
    inputs = {
        "cache": rng.standard_normal((2, 3, 5, 7), np.float32),
        "update": rng.standard_normal((2, 3, 2, 7), np.float32),
        "w": np.array([4, 11]),
    }
    expected = Evaluator(source).run(inputs).values["present"]
    assert np.array_equal(Evaluator(raised).run(inputs).values["present"], expected)


_LINEAR = _MODEL.replace("place = Mod (sum, size)", "place = Identity (sum)")


@pytest.mark.parametrize(
    ("model", "start"),
    [
        pytest.param(_LINEAR, "start = Neg (w)", id="of an input"),
        pytest.param(_LINEAR, "two = Add (w, w) start = Neg (two)", id="of a multiple of one"),
        pytest.param(
            _LINEAR, "more = Add (w, three) start = Neg (more)", id="of more than an input"
        ),
        pytest.param(
            _LINEAR.replace("cache,", "cache, float[N] other,", 1),
            "n = Shape (other) start_ = Neg (n) nothing = Sub (w, w) start = Add (nothing, start_)",
            id="of a size",
        ),
    ],
)
def test_a_start_that_is_never_a_position_is_refused(model: str, start: str) -> None:
    """The source counts from the end; TensorScatter fails for every start but 0."""
    _, report = raise_(ir.from_proto(onnx.parser.parse_model(model.replace("START", start))))
    assert report.raised == []
    assert [refusal.code for refusal in report.refused] == ["negative-start"]


@pytest.mark.parametrize(
    ("model", "start", "sentence"),
    [
        (_LINEAR, "start = Identity (w)", "which counts from the end, is one"),
        (_MODEL, "start = Identity (w)", "which wraps as well, is one"),
    ],
)
def test_a_proof_says_what_becomes_of_a_negative_start(
    model: str, start: str, sentence: str
) -> None:
    _, report = raise_(ir.from_proto(onnx.parser.parse_model(model.replace("START", start))))
    (raised,) = report.raised
    assert [said for said in raised.proof if "below 0" in said] == [
        f"a start below 0, {sentence} that TensorScatter refuses"
    ]


@pytest.mark.long
def test_a_start_taken_modulo_is_never_negative() -> None:
    text = _MODEL.replace("START", "start = Neg (w)")
    _, report = raise_(ir.from_proto(onnx.parser.parse_model(text)))
    assert not [said for said in report.raised[0].proof if "below 0" in said]


_MAY_BE_NEGATIVE = {
    "less than what is fed": "start = Sub (w, three)",
    "less than what is fed as another type": (
        "n = Cast <to = 6> (w) m = Cast <to = 7> (n) start = Sub (m, three)"
    ),
    "the rest of what is fed": "start = Sub (three, w)",
    "the difference of two inputs": "start = Sub (w, other)",
    "computed as floating point": (
        "f = Cast <to = 1> (w) h = Constant <value_float = -2.5> () g = Add (f, h)"
        " start = Cast <to = 7> (g)"
    ),
    "the difference of two sizes": (
        "n = Shape (mask) none = Sub (w, w) m = Sub (n, three) start = Add (none, m)"
    ),
}


@pytest.mark.parametrize("start", _MAY_BE_NEGATIVE.values(), ids=_MAY_BE_NEGATIVE)
def test_a_start_that_may_be_below_zero_has_to_be_granted(start: str) -> None:
    """The source counts such a row from the end; TensorScatter fails where the source runs."""
    more = "cache, float[N] mask, int64[2] other,"
    text = _LINEAR.replace("cache,", more, 1).replace("START", start)
    source = ir.from_proto(onnx.parser.parse_model(text))
    _, report = raise_(source, verify=False)
    assert report.raised == []
    (refusal,) = report.refused
    assert refusal.code == "may-be-negative"
    assert refusal.assumption is not None and refusal.assumption.startswith("in-range:")
    _, report = raise_(source, assume=["in-range", refusal.assumption], verify=False)
    assert {*report.raised[0].assumed} & {"in-range", refusal.assumption}


@pytest.mark.long
def test_what_is_granted_is_kept_to_by_the_comparison() -> None:
    text = _LINEAR.replace("START", "start = Sub (w, three)")
    _, report = raise_(ir.from_proto(onnx.parser.parse_model(text)), assume=["in-range"])
    assert report.raised
    assert report.verification.status == "equal"


def test_the_last_rows_of_a_cache_are_no_start_below_zero() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[2,3,7] cache, float[2,L,7] rows) => (float[2,3,7] present) {
      zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
      n = Shape <start = 1, end = 2> (rows) capacity = Constant <value_ints = [3]> ()
      m = Sub (capacity, n) kept = Slice (cache, zero, m, one)
      present = Concat <axis = 1> (kept, rows)
    }"""
    _, report = raise_(ir.from_proto(onnx.parser.parse_model(text)), verify=False)
    assert len(report.raised) == 1


@pytest.mark.parametrize(
    "cast",
    [
        pytest.param("c = Cast <to = 6> (w) start = Cast <to = 7> (c)", id="the start"),
        pytest.param(
            "c = Cast <to = 6> (w) d = Cast <to = 7> (c) one = Constant <value = int64 {1}> ()"
            " start = Add (d, one)",
            id="a part of the start",
        ),
    ],
)
@pytest.mark.parametrize("first", [1, 2**32 + 1, 2**33])
def test_a_start_that_wraps_at_32_bits_wraps_in_the_result(cast: str, first: int) -> None:
    source = ir.from_proto(onnx.parser.parse_model(_LINEAR.replace("START", cast)))
    raised, report = raise_(source, verify=False)
    assert len(report.raised) == 1
    rng = np.random.default_rng(0)
    inputs = {
        "cache": rng.standard_normal((2, 3, 5, 7), np.float32),
        "update": rng.standard_normal((2, 3, 2, 7), np.float32),
        "w": np.array([first, 2]),
    }
    expected = Evaluator(source).run(inputs).values["present"]
    assert np.array_equal(Evaluator(raised).run(inputs).values["present"], expected)


def test_rows_that_are_cast_to_32_bits_wrap_in_the_result() -> None:
    text = _LINEAR.replace("START", "start = Identity (w)").replace(
        "index = Expand (place, shape)",
        "narrow = Cast <to = 6> (place) index = Expand (narrow, shape)",
    )
    source = ir.from_proto(onnx.parser.parse_model(text))
    raised, report = raise_(source, verify=False)
    assert len(report.raised) == 1
    rng = np.random.default_rng(0)
    inputs = {
        "cache": rng.standard_normal((2, 3, 5, 7), np.float32),
        "update": rng.standard_normal((2, 3, 2, 7), np.float32),
        "w": np.array([2**32 + 3, 0]),
    }
    expected = Evaluator(source).run(inputs).values["present"]
    assert np.array_equal(Evaluator(raised).run(inputs).values["present"], expected)
