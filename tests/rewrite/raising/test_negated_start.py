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
        (_LINEAR, "start = Sub (three, w)", "which counts from the end, is one"),
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


def test_a_start_taken_modulo_is_never_negative() -> None:
    text = _MODEL.replace("START", "start = Neg (w)")
    _, report = raise_(ir.from_proto(onnx.parser.parse_model(text)))
    assert not [said for said in report.raised[0].proof if "below 0" in said]
