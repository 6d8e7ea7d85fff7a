"""Caches that grow up to a window and then drop rows, and what only looks like one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from tests.grids import part
from tests.growing_models import Host, conversation

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "growing"

EXPORTED = {
    "gemma3_rolling__dynamo_op18": ["linear", "linear", "circular", "circular"],
    "mistral_rolling__dynamo_op18": ["circular"] * 4,
}

_MODEL = """
<ir_version: 10, opset_import: ["": 18]>
g (float[B, 2, P, 3] past, float[B, 2, S, 3] rows, float[B, 2, Q, 3] other) => (OUTPUTS) {
  zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
  two = Constant <value_ints = [2]> () from = Constant <value_ints = [-5]> ()
  most = Constant <value_ints = [-4]> () far = Constant <value_ints = [9223372036854775807]> ()
  new = Neg (rows)
  BODY
}
"""
_WINDOW = """
kept = Slice (past, from, far, two, one) all = Concat <axis = 2> (kept, new)
present = Slice (all, from, far, two, one) y = ReduceSum <keepdims = 0> (all, two)
"""
_PLAIN = _WINDOW.replace("(kept, new)", "(past, new)").replace(
    "kept = Slice (past, from, far, two, one)", ""
)
_SIZES = _WINDOW + "size = Shape <start = 2, end = 3> (past)"


def model(body: str) -> ir.Model:
    outputs = "float[B, 2, R, 3] present, float[B, 2, 3] y"
    if "size =" in body:
        outputs += ", int64[1] size"
    text = _MODEL.replace("OUTPUTS", outputs).replace("BODY", body)
    return ir.from_proto(onnx.parser.parse_model(text))


@part(3)
@pytest.mark.parametrize("body", [_WINDOW, _PLAIN, _SIZES], ids=["cut", "joined as it is", "sized"])
@pytest.mark.parametrize("chunks", [[1] * 9, [3, 1, 4, 1, 2], [8, 7, 1]], ids=str)
@pytest.mark.parametrize("batch", [1, 3])
def test_the_circular_form_computes_the_same(body: str, chunks: list[int], batch: int) -> None:
    source = model(body)
    raised, report = kv.raise_(source, capacity=64, assume=["rotated-rows"], verify=False)
    assert [(c.past, c.capacity, c.mode, c.source) for c in report.caches] == [
        ("past", 6, "circular", "rolling")
    ]
    a, b = Evaluator(source), Evaluator(raised)
    rng = np.random.default_rng(7)
    past = np.zeros((batch, 2, 0, 3), np.float32)
    cache, before = np.zeros((batch, 2, 6, 3), np.float32), 0
    for count in chunks:
        rest = {
            "rows": rng.standard_normal((batch, 2, count, 3)).astype(np.float32),
            "other": np.zeros((batch, 2, 1, 3), np.float32),
        }
        expected = a.run({"past": past, **rest}).values
        found = b.run({"past": cache, "past_length": np.array([before]), **rest}).values
        before += count
        for name in expected.keys() - {"present"}:
            assert np.array_equal(found[name], expected[name]), name
        past, cache = expected["present"], found["present"]
        places = np.arange(before - past.shape[2], before) % 6
        assert np.array_equal(cache[:, :, places], past)


@pytest.mark.long
def test_windows_and_growing_caches_count_by_one_input() -> None:
    """A window of a fixed size, one that grows, and a cache that keeps all rows."""
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[B, 2, P, 3] past, float[B, 2, W, 3] rolled, float[B, 2, 5, 3] fixed,
       float[B, 2, S, 3] rows)
      => (float[B, 2, T, 3] present, float[B, 2, R, 3] rolled_out, float[B, 2, 5, 3] fixed_out) {
      one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
      from = Constant <value_ints = [-4]> () far = Constant <value_ints = [9223372036854775807]> ()
      new = Neg (rows) present = Concat <axis = 2> (past, new)
      head = Slice (rolled, from, far, two, one) all = Concat <axis = 2> (head, new)
      rolled_out = Slice (all, from, far, two, one)
      count = Shape <start = 2, end = 3> (new) kept = Slice (fixed, count, far, two)
      fixed_out = Concat <axis = 2> (kept, new)
    }
    """
    source = ir.from_proto(onnx.parser.parse_model(text))
    _, report = kv.raise_(source, capacity=16, assume=["rotated-rows"], partial=True)
    assert [(c.past, c.capacity, c.mode) for c in report.caches] == [
        ("past", 16, "linear"),
        ("rolled", 5, "circular"),
        ("fixed", 5, "circular"),
    ]
    assert [one.name for one in report.inputs_added] == ["past_length"]
    assert report.verification.status == "equal"


LOOKALIKES = {
    "one row less goes out": _WINDOW.replace("(all, from,", "(all, most,"),
    "the first rows go out": _WINDOW.replace("(all, from, far", "(all, zero, two"),
    "new rows in front": _WINDOW.replace("(kept, new)", "(new, kept)"),
    "the past is read": _WINDOW + "size = Shape <start = 2, end = 3> (old) old = Neg (past)",
    "every second row": _WINDOW.replace(
        "present = Slice (all, from, far, two, one)", "present = Slice (all, from, far, two, two)"
    ),
    "as many rows on as a caller says": _WINDOW.replace(
        "present = Slice (all, from, far, two, one)",
        "step = Shape <start = 2, end = 3> (other) present = Slice (all, from, far, two, step)",
    ),
    "along the axis that a caller says": _WINDOW.replace(
        "present = Slice (all, from, far, two, one)",
        "axis = Shape <start = 2, end = 3> (other) present = Slice (all, from, far, axis, one)",
    ),
    "along another axis": _WINDOW.replace(
        "present = Slice (all, from, far, two, one)", "present = Slice (all, from, far, one, one)"
    ),
}


@pytest.mark.parametrize("body", LOOKALIKES.values(), ids=LOOKALIKES)
def test_what_is_no_window_stays(body: str) -> None:
    body = body.replace(
        "size = Shape <start = 2, end = 3> (old) old = Neg (past)",
        "old = Neg (past) size = Shape <start = 2, end = 3> (old)",
    )
    source = model(body)
    result, report = kv.raise_(
        source, capacity=64, assume=["rotated-rows"], partial=True, verify=False
    )
    assert not report.raised
    assert serialize(result) == serialize(source)


def test_the_order_of_the_rows_has_to_be_granted() -> None:
    _, report = kv.raise_(model(_WINDOW), capacity=64, partial=True, verify=False)
    assert [(r.code, r.assumption) for r in report.refused] == [
        ("rolling-window", "rotated-rows:past")
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "modes"), EXPORTED.items(), ids=EXPORTED)
def test_exported_decoders_are_raised_and_proven(name: str, modes: list[str]) -> None:
    _, report = kv.raise_(
        FIXTURES / f"{name}.onnx",
        capacity=32,
        assume=["rotated-rows", *_same(name)],
        attention="keep",
    )
    assert not report.refused
    assert [cache.mode for cache in report.caches] == modes
    assert report.verification.status == "equal"


@pytest.mark.long
@part(6)
@pytest.mark.parametrize("chunks", [[5, *[1] * 9], [12, 3, 1]], ids=str)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", EXPORTED)
def test_a_host_hears_the_same_answer(name: str, batch: int, chunks: list[int]) -> None:
    path = FIXTURES / f"{name}.onnx"
    assume = ["rotated-rows", *_same(name)]
    raised, report = kv.raise_(path, capacity=32, assume=assume, verify=False)
    assert (len(report.attention), report.refused) == (2, [])
    talk = conversation(batch, sum(chunks))
    source, result = Evaluator(kv.load(path)), Evaluator(raised)
    a = Host(path, lambda feeds: source.run(feeds).values)
    b = Host(ir.to_proto(raised), lambda feeds: result.run(feeds).values)
    expected, _ = a.answer(talk, chunks)
    found, _ = b.answer(talk, chunks)
    np.testing.assert_allclose(found[talk.live], expected[talk.live], rtol=0, atol=2e-5)


def _same(name: str) -> list[str]:
    return ["same-dim:s43=s21"] if name.startswith("gemma3") else []
