"""A table of biases of which the last columns are read, as many as there are keys."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_
from tests.rewrite.fixing.test_fixtures import assert_static
from tests.rewrite.raising.growing_steps import PROMPT_STEPS_AND_CHUNK, ROWS, Decoder

_BIAS = ", ".join(str((k % 7) / 4) for k in range(3 * 32))

_DECODER = f"""<ir_version: 8, opset_import: ["": 18]>
g (float[B, 3, S, 7] q, float[B, 3, S, 7] k, float[B, 3, S, 7] v,
   float[B, 3, P, 7] past_key, float[B, 3, P, 7] past_value)
  => (float[B, 3, S, 7] y, float[B, 3, T, 7] present_key, float[B, 3, T, 7] present_value)
<float[3, 1, 32] table = {{{_BIAS}}}> {{
    keys = Neg (k) values = Neg (v)
    present_key = Concat <axis = 2> (past_key, keys)
    present_value = Concat <axis = 2> (past_value, values)
    turned = Transpose <perm = [0, 1, 3, 2]> (present_key)
    raw = MatMul (q, turned)
    size = Shape <start = 2, end = 3> (present_key)
    none = Constant <value_ints = [0]> ()
    columns = Constant <value_ints = [32]> ()
    rest = Sub (columns, size)
    START
    far = Constant <value_ints = [9223372036854775807]> ()
    last = Constant <value_ints = [2]> ()
    bias = Slice (table, start, far, last)
    scores = Add (raw, bias)
    shares = Softmax (scores)
    y = MatMul (shares, present_value)
}}"""
_START = "start = Max (rest, none)"


def _source(start: str = _START) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_DECODER.replace("START", start))
    onnx.checker.check_model(model)
    return model


@pytest.mark.long
@pytest.mark.parametrize("capacity", [ROWS, 32])
def test_the_width_is_that_of_the_keys_up_to_the_columns_of_the_table(capacity: int) -> None:
    model, report = raise_(ir.from_proto(_source()), capacity=capacity)
    assert [done.mask for done in report.attention] == ["kept"]
    assert report.verification.status == "equal"
    assert [node.op_type for node in model.graph].count("Attention") == 1


@pytest.mark.long
def test_the_part_that_is_read_has_a_fixed_size_where_all_sizes_have_one() -> None:
    dims = {"B": 2, "S": 1}
    model, report = raise_(ir.from_proto(_source()), capacity=7, dims=dims, static=True)
    assert_static(model)
    assert report.verification.status == "equal"


@pytest.mark.long
def test_every_step_gives_what_the_source_gives() -> None:
    source = _source()
    model, _ = raise_(ir.from_proto(source), capacity=ROWS, verify=False)
    pasts = {"past_key": "present_key", "past_value": "present_value"}
    growing, fixed = (Decoder(one, pasts, 2) for one in (source, ir.to_proto(model)))
    growing.begin(2, 0)
    fixed.begin(2, ROWS)
    rng, past = np.random.default_rng(0), 0
    for count in PROMPT_STEPS_AND_CHUNK:
        new = {name: rng.normal(size=(2, 3, count, 7)).astype(np.float32) for name in "qkv"}
        expected = growing.step(new)
        actual = fixed.step({**new, "past_length": np.asarray([past])})
        np.testing.assert_allclose(actual["y"], expected["y"], atol=1e-5)
        past += count


@pytest.mark.long
@pytest.mark.parametrize(
    ("start", "capacity"),
    [
        (_START, 33),
        (
            "one = Constant <value_ints = [1]> () less = Sub (rest, one) start = Max (less, none)",
            24,
        ),
        ("one = Constant <value_ints = [1]> () start = Max (rest, one)", 32),
        (
            "two = Constant <value_ints = [2]> () less = Sub (rest, two) start = Max (less, none)",
            32,
        ),
    ],
    ids=[
        "a capacity beyond the table",
        "a column more than keys",
        "a table that ends before the capacity",
        "two columns more than keys",
    ],
)
def test_what_may_have_another_width_stays(start: str, capacity: int) -> None:
    model, report = raise_(ir.from_proto(_source(start)), capacity=capacity, verify=False)
    assert report.attention == []
    (refused,) = (one for one in report.refused if one.code == "sizes-unrelated")
    assert refused.message.startswith("axis ")
    assert "`scores` `" in refused.message
    assert "Attention" not in {node.op_type for node in model.graph}


_SHOWN = ", ".join(str(int(column <= row)) for row in range(32) for column in range(32))
_CAUSAL = f"""<ir_version: 8, opset_import: ["": 18]>
g (float[B, 3, S, 7] q, float[B, 3, S, 7] k, float[B, 3, S, 7] v,
   float[B, 3, P, 7] past_key, float[B, 3, P, 7] past_value)
  => (float[B, 3, S, 7] y, float[B, 3, T, 7] present_key, float[B, 3, T, 7] present_value)
<bool[1, 1, 32, 32] table = {{{_SHOWN}}}> {{
    keys = Neg (k) values = Neg (v)
    present_key = Concat <axis = 2> (past_key, keys)
    present_value = Concat <axis = 2> (past_value, values)
    turned = Transpose <perm = [0, 1, 3, 2]> (present_key)
    raw = MatMul (q, turned)
    size = Shape <start = 2, end = 3> (present_key)
    count = Shape <start = 2, end = 3> (q)
    zero = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    two = Constant <value_ints = [2]> ()
    three = Constant <value_ints = [3]> ()
    low = Constant <value_float = -3.4028235e38> ()
    before = Sub (size, count)
    START
    rows = Slice (table, start, size, two)
    shown = Slice (rows, zero, size, three)
    scores = Where (shown, raw, low)
    shares = Softmax (scores)
    y = MatMul (shares, present_value)
}}"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("start", "capacity", "fused"),
    [
        ("start = Identity (before)", ROWS, 1),
        ("start = Identity (before)", 32, 1),
        ("start = Identity (before)", 33, 0),
        ("start = Add (before, one)", ROWS, 0),
        ("start = Sub (before, one)", ROWS, 0),
    ],
    ids=["rows to spare", "as many rows", "a row too many", "a row too few", "another row"],
)
def test_rows_of_a_causal_table_are_those_of_the_queries(
    start: str, capacity: int, fused: int
) -> None:
    source = onnx.parser.parse_model(_CAUSAL.replace("START", start))
    model, report = raise_(ir.from_proto(source), capacity=capacity, verify=bool(fused))
    assert [node.op_type for node in model.graph].count("Attention") == fused
    if not fused:
        assert {one.code for one in report.refused} == {"sizes-unrelated"}
        return
    assert report.verification.status == "equal"
    static, report = raise_(
        ir.from_proto(source), capacity=capacity, dims={"B": 2, "S": 1}, static=True
    )
    assert_static(static)
    assert report.verification.status == "equal"
