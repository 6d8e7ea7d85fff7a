"""What a graph says of the values and lengths that its inputs should reach."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.core.machine import Budget
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import InputPlan, plan
from onnx_kvtool.verification.inputs.points import Directions, Points
from onnx_kvtool.verification.inputs.stepping import advance
from onnx_kvtool.verification.inputs.symbols import reaching
from onnx_kvtool.verification.inputs.values import varied
from tests.grids import each

_HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


def planned(text: str) -> InputPlan:
    return plan(deserialize(onnx.parser.parse_model(_HEAD + text).SerializeToString()))


_I = "(int64[7] x, int64[7] z) => (int64[N] y) "

LIMITED = {
    "a shape": ("{ y = Reshape(x, z) }", {"z"}, set(), set()),
    "a shape that is computed": ("{ a = Add(z, z) y = Reshape(x, a) }", {"z"}, set(), set()),
    "a shape that is read off": ("{ s = Shape(z) y = Reshape(x, s) }", set(), set(), set()),
    "places": ("{ y = Gather(x, z) }", {"z"}, set(), set()),
    "places of a maximum": (
        "{ a = ArgMax<axis: int = 0>(z) y = Gather(x, a) }",
        set(),
        set(),
        set(),
    ),
    "a divisor": ("{ y = Div(x, z) }", set(), {"z"}, set()),
    "a divisor that is computed": ("{ a = Sub(z, x) y = Mod(x, a) }", {"x", "z"}, set(), set()),
    "integers as floats": (
        "{ a = Cast<to: int = 1>(z) b = Exp(a) c = Cast<to: int = 7>(b) y = Add(x, c) }",
        set(),
        set(),
        {"z"},
    ),
    "plain integers": ("{ c = Less(x, z) a = Max(x, z) y = Where(c, a, x) }", set(), set(), set()),
    "an operator that nobody knows": ("{ y = a.Unheard(x, z) }", {"x", "z"}, set(), set()),
}


@each("name", [*LIMITED])
def test_inputs_that_only_small_values_suit_are_known(name: str) -> None:
    body, sizing, divisors, scaled = LIMITED[name]
    head = _HEAD.replace("21]", '21, "a" : 1]')
    model = deserialize(onnx.parser.parse_model(head + _I + body).SerializeToString())
    found = plan(model).points
    assert (found.sizing, found.divisors, found.scaled) == (sizing, divisors, scaled)


@each("seed", range(20))
def test_no_integer_is_divided_by_zero_and_none_by_minus_one(seed: int) -> None:
    points = Points(divisors=frozenset({"x"}), numbers=(0.0, -1.0))
    for values in ("edges", "small", "wide"):
        rng = np.random.default_rng(seed)
        drawn = varied(rng, ir.DataType.INT8, (50,), values, points, "x")
        assert not np.isin(drawn, (0, -1)).any()


def test_the_numbers_of_both_models_and_of_directions_are_drawn() -> None:
    one = planned("(float[64] x) => (float[64] y) <float t = {17}> { y = Max(x, t) }")
    other = planned("(float[64] x) => (float[64] y) <float t = {29}> { y = Max(x, t) }")
    both = one.compared(other, Directions(values=(41.0,)))
    [edges] = [case for case in CASES if case.values == "edges"]
    drawn = draw(both, edges, 3)["x"]
    for number in (17, 29, 41):
        assert (drawn == number).any()
        assert (np.abs(drawn - number) < number / 2).sum() >= 3
    assert not (draw(both, CASES[0], 3)["x"] > 10).any()


def test_ids_are_directed_to_rows_and_reach_the_last_one() -> None:
    known = _embedding()
    directed = known.compared(known, Directions(ids={"table": (5000,)}))
    for case in CASES:
        ids = draw(directed, case, 1)["input_ids"]
        assert (ids == 5000).any()
        assert ((ids == 8999).any()) == (case.start == "end")


def _embedding() -> InputPlan:
    text = "(int64[N,L] input_ids) => (float[N,L,2] y) <float[1,2] table = {1, 2}> "
    model = onnx.parser.parse_model(_HEAD + text + "{ y = Gather(table, input_ids) }")
    table = np.zeros((9000, 2), np.float32)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(table, "table"))
    return plan(deserialize(model.SerializeToString()))


def test_a_default_gets_another_value_where_both_models_have_it() -> None:
    text = "(float[7] x, float f) => (float[7] y) <float f = {3}> { y = Mul(x, f) }"
    one, other = planned(text), planned(text.replace(", float f", ""))
    [case] = [case for case in CASES if case.overrides]
    assert draw(one.compared(one, Directions()), case, 0)["f"] == 4
    assert "f" not in draw(one.compared(other, Directions()), case, 0)
    assert "f" not in draw(one.compared(one, Directions()), CASES[0], 0)


_GROWING = (
    "(float[B,2,L,4] k, float[B,2,P,4] past) => (float[B,2,T,4] present, float[B,2,S,4] y) "
    "<int64[1] first = {-WINDOW}, int64[1] last = {999999999}, int64[1] axis = {2}> "
    "{ present = Concat<axis: int = 2>(past, k) y = Slice(present, first, last, axis) }"
)


@each(("window", "past"), [(32, 30), (128, 126), (7, None), (100_000, None)])
def test_caches_grow_past_windows(window: int, past: int | None) -> None:
    known = planned(_GROWING.replace("WINDOW", str(window)))
    longer = list(reaching(known, CASES[-1], {}, Budget()))
    assert [case.past for case in longer[:1]] == ([] if past is None else [past])
    assert not list(reaching(known, CASES[0], {}, Budget()))


def test_long_caches_take_a_small_part_of_the_memory() -> None:
    known = planned(_GROWING.replace("WINDOW", "8000"))
    assert list(reaching(known, CASES[-1], {}, Budget()))
    assert not list(reaching(known, CASES[-1], {}, Budget(memory=8 << 20)))


_ROTARY = (
    "(float[B,2,L,4] k, float[B,2,P,4] past, int64[B,L] position_ids) "
    "=> (float[B,2,T,4] present, float[B,L,1] y) <float[ROWS,1] table = {VALUES}> "
    "{ present = Concat<axis: int = 2>(past, k) a = Unsqueeze(position_ids, zero) "
    "b = Squeeze(a, zero) y = Gather(table, b) EXTRA }"
).replace("<float", "<int64[1] zero = {0}, float")


@pytest.mark.parametrize(("extra", "last"), [("", 4999), ("z = Less(b, zero)", None)])
def test_positions_go_to_the_last_row_of_a_table_that_no_cache_reaches(
    extra: str, last: int | None
) -> None:
    text = _ROTARY.replace("ROWS", "5000").replace("VALUES", ", ".join(["0"] * 5000))
    known = planned(text.replace("EXTRA", extra))
    inputs = draw(known, CASES[-1], 0)
    for _ in range(2):
        outputs = {"present": np.concatenate([inputs["past"], inputs["k"]], axis=2)}
        following = advance(known, inputs, outputs)
        assert following is not None
        inputs = following
    assert inputs["position_ids"].max() == (inputs["past"].shape[2] if last is None else last)
    if last is not None:
        assert advance(known, inputs, {"present": inputs["past"]}) is None
