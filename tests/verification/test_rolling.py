"""A cache that keeps the last rows, beside its circular form, whose rows are a permutation."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.verification.affordable import Large, compare_shrunk
from onnx_kvtool.verification.report import Settings
from tests.runtime.recorded import model, needs_24

pytestmark = needs_24

HEADER = '<ir_version: 10, opset_import: ["": 24]>'

SHIFTED = f"""{HEADER}
g (float[B, 2, 8, 5] past, float[B, 2, S, 5] new) => (float[B, 2, 8, 5] present)
{{
  [start] length = Shape <start = 2, end = 3> (new)
  many = Constant <value_ints = [9223372036854775807]> ()
  two = Constant <value_ints = [2]> ()
  tail = Slice (past, length, many, two)
  present = Concat <axis = 2> (tail, new)
}}
"""

CIRCULAR = f"""{HEADER}
g (float[B, 2, 8, 5] past, float[B, 2, S, 5] new, int64[1] past_length)
  => (float[B, 2, 8, 5] present)
{{
  batch = Shape <end = 1> (new)
  starts = Expand (past_length, batch)
  present = TensorScatter <axis = 2, mode = "circular"> (past, new, starts)
}}
"""

FILLED = f"""{HEADER}
g (float[B, 2, 8, 5] past, float[B, 2, 1, 5] new, int64[1] position)
  => (float[B, 2, 8, 5] present, float[B, 2, 1, 5] sum)
{{
  eight = Constant <value_int = 8> ()
  row = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6, 7]> ()
  seven = Constant <value_int = 7> ()
  one = Constant <value_int = 1> ()
  zero = Constant <value_int = 0> ()
  is_full = GreaterOrEqual (position, eight)
  shift = Cast <to = 7> (is_full)
  shifted = Add (row, shift)
  from = Mod (shifted, eight)
  rolled = Gather <axis = 2> (past, from)
  last = Min (position, seven)
  here = Equal (row, last)
  axes = Constant <value_ints = [0, 1, 3]> ()
  mask = Unsqueeze (here, axes)
  present = Where (mask, new, rolled)
  used = LessOrEqual (row, position)
  used_mask = Unsqueeze (used, axes)
  float_mask = Cast <to = 1> (used_mask)
  kept = Mul (present, float_mask)
  along = Constant <value_ints = [2]> ()
  sum = ReduceSum <keepdims = 1> (kept, along)
}}
"""

FILLED_CIRCULAR = f"""{HEADER}
g (float[B, 2, 8, 5] past, float[B, 2, 1, 5] new, int64[1] position)
  => (float[B, 2, 8, 5] present, float[B, 2, 1, 5] sum)
{{
  batch = Shape <end = 1> (new)
  starts = Expand (position, batch)
  present = TensorScatter <axis = 2, mode = "circular"> (past, new, starts)
  row = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6, 7]> ()
  axes = Constant <value_ints = [0, 1, 3]> ()
  used = LessOrEqual (row, position)
  used_mask = Unsqueeze (used, axes)
  float_mask = Cast <to = 1> (used_mask)
  kept = Mul (present, float_mask)
  along = Constant <value_ints = [2]> ()
  sum = ReduceSum <keepdims = 1> (kept, along)
}}
"""

GROWN = f"""{HEADER}
g (float[B, 2, P, 5] past, float[B, 2, 1, 5] new, int64[1] position_ids)
  => (float[B, 2, Q, 5] present, float[B, 2, 1, 5] sum)
{{
  joined = Concat <axis = 2> (past, new)
  start = Constant <value_ints = [-7]> ()
  many = Constant <value_ints = [9223372036854775807]> ()
  along = Constant <value_ints = [2]> ()
  present = Slice (joined, start, many, along)
  sum = ReduceSum <keepdims = 1> (joined, along)
}}
"""

GROWN_CIRCULAR = (
    FILLED_CIRCULAR.replace("int64[1] position)", "int64[1] position_ids)")
    .replace("position,", "position_ids,")
    .replace("position)\n", "position_ids)\n")
)

PAIRS = {
    "rows move up by as many as are new": (SHIFTED, CIRCULAR),
    "rows are filled, then move up": (FILLED, FILLED_CIRCULAR),
    "rows grow up to a number": (GROWN, GROWN_CIRCULAR),
}

LATE = "one = Constant <value_ints = [1]> () late = Add (INDEX, one) starts = Expand (late, batch)"

FAULTS = {
    "rows stand one later": ("starts = Expand (INDEX, batch)", LATE),
    "rows do not turn": ('mode = "circular"', 'mode = "linear"'),
    "all rows are read": ("LessOrEqual (row, INDEX)", "LessOrEqual (row, row)"),
    "the last row is not read": ("LessOrEqual (row, INDEX)", "Less (row, INDEX)"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRS)
def test_a_right_form_is_equal(name: str) -> None:
    rolling, circular = map(model, PAIRS[name])
    found = kv.verify(rolling, circular)
    assert (found.status, found.detail) == ("equal", None)
    note = "caches of A roll, those of B are circular of 8 rows: compared by position"
    assert note in found.notes
    assert found.cases >= 6
    assert {o.name for o in found.outputs if o.bit_equal} >= {"present"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (name, fault)
        for name, (_, circular) in PAIRS.items()
        for fault in FAULTS
        if ("LessOrEqual" in circular or fault.startswith("rows"))
        # Both take positions that they are not known to have a use for past the last row.
        and (circular, fault) != (FILLED_CIRCULAR, "rows do not turn")
    ],
)
def test_a_fault_is_found(name: str, fault: str) -> None:
    rolling, circular = PAIRS[name]
    index = "past_length" if rolling is SHIFTED else "position"
    index = "position_ids" if rolling is GROWN else index
    before, after = (text.replace("INDEX", index) for text in FAULTS[fault])
    found = kv.verify(model(rolling), model(circular.replace(before, after)))
    assert found.status == "different"


@pytest.mark.long
def test_a_linear_cache_is_none_that_rolls() -> None:
    linear = CIRCULAR.replace('mode = "circular"', 'mode = "linear"')
    assert kv.verify(model(linear), model(CIRCULAR)).status == "different"
    assert kv.verify(model(CIRCULAR), model(CIRCULAR)).status == "equal"


def lowered(source: ir.Model) -> ir.Model:
    return kv.lower(source, opset=18, verify=False)[0]


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRS)
def test_a_lowered_circular_form_is_still_one(name: str) -> None:
    rolling, circular = map(model, PAIRS[name])
    found = kv.verify(rolling, lowered(circular))
    assert (found.status, found.detail) == ("equal", None)


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRS)
def test_copies_are_a_pair_as_well(name: str) -> None:
    rolling, circular = PAIRS[name]
    models = Large(model(rolling), "A"), Large(model(circular), "B")
    found = compare_shrunk(*models, Settings())
    assert (found.status, found.detail) == ("equal", None)
