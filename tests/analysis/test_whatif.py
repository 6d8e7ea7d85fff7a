"""What caches would cost with other rows and types, worked out by hand."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

import onnx_kvtool as kv
from tests.grids import each

HEADER = '<ir_version: 11, opset_import: ["": 24]>\n'
ROW = 3 * 7 * 4
"""Bytes of one row of one sequence, (B, 3, C, 7) in float32."""

LINEAR = "present = TensorScatter <axis = 2> (past, new, start)"
CIRCULAR = 'window_out = TensorScatter <axis = 2, mode = "circular"> (window, new, start)'
GROWING = "long_out = Concat <axis = 2> (long, new)"

WEIGHT = f"float[25] weight = {{{', '.join('1' * 25)}}}"
FIXED = onnx.parser.parse_model(
    HEADER
    + f"""decoder (float[B, 3, 11, 7] past, float[B, 3, 5, 7] window, float[B, 3, 1, 7] new,
             int64[B] start)
    => (float[B, 3, 11, 7] present, float[B, 3, 5, 7] window_out) <{WEIGHT}> {{
        {LINEAR} {CIRCULAR} unread = Neg(weight) }}"""
)
GROWN = onnx.parser.parse_model(
    HEADER
    + f"""decoder (float[B, 3, P, 7] long, float[B, 3, 1, 7] new) => (float[B, 3, N, 7] long_out) {{
        {GROWING} }}"""
)
NAMED = onnx.parser.parse_model(
    HEADER
    + f"""decoder (float[B, 3, C, 7] past, float[B, 3, 1, 7] new, int64[B] start)
    => (float[B, 3, C, 7] present) {{ {LINEAR} }}"""
)

CASES = [
    pytest.param(
        FIXED, {"capacity": 100},
        {"bytes_per_token": 2 * ROW, "bytes_per_sequence": 105 * ROW, "total_bytes": None},
        id="a window keeps its five rows",
    ),
    pytest.param(
        FIXED, {"capacity": 4}, {"bytes_per_sequence": 8 * ROW}, id="fewer rows than the window"
    ),
    pytest.param(
        FIXED, {"cache_dtype": "float8e4m3fn"},
        {"bytes_per_token": ROW / 2, "bytes_per_sequence": 16 * ROW / 4, "dtype": "float8e4m3fn"},
        id="another type, the rows as they are",
    ),
    pytest.param(
        FIXED, {"cache_dtype": "int4", "capacity": 11},
        {"bytes_per_token": 2 * ROW / 8, "bytes_per_sequence": 16 * ROW / 8},
        id="a row of 10.5 bytes",
    ),
    pytest.param(
        FIXED, {"dims": {"B": 2}, "memory": 100 + 16 * ROW * 3 + 5},
        {"total_bytes": 32 * ROW, "sequences": 3},
        id="three sequences fit beside 100 bytes of weights",
    ),
    pytest.param(FIXED, {"memory": 99}, {"sequences": 0}, id="the weights alone do not fit"),
    pytest.param(
        GROWN, {"memory": "1GiB"},
        {"bytes_per_token": ROW, "bytes_per_sequence": None, "sequences": None, "step": None},
        id="nobody knows the rows of a cache that grows",
    ),
    pytest.param(
        GROWN, {"capacity": 100, "memory": "1MiB"},
        {"bytes_per_sequence": 100 * ROW, "sequences": 2**20 // (100 * ROW)},
        id="a cache that grows to a hundred rows",
    ),
    pytest.param(
        NAMED, {"capacity": "C=13"}, {"bytes_per_sequence": 13 * ROW, "capacity": 13},
        id="the dimension of the capacity by its name",
    ),
]  # fmt: skip


@each(("model", "asked", "expected"), CASES)
def test_what_the_caches_would_cost(model: onnx.ModelProto, asked, expected) -> None:
    found = kv.inspect(model, **asked).to_json()["whatif"]
    assert {key: found[key] for key in expected} == expected


STEPS = [
    pytest.param(
        FIXED, {"dims": {"B": 2}, "bandwidth": 10_000},
        {"batch": 2, "weights": 100, "read": 32 * ROW, "written": 4 * ROW, "copied": 0},
        100 + 36 * ROW,
        id="both caches are written in place",
    ),
    pytest.param(
        GROWN, {"capacity": 100, "bandwidth": "10kB/s"},
        {"batch": 1, "weights": 0, "read": 100 * ROW, "written": ROW, "copied": 200 * ROW},
        301 * ROW,
        id="a cache that grows is read and written besides",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "asked", "expected", "moved"), STEPS)
def test_what_a_step_moves(model: onnx.ModelProto, asked, expected, moved: int) -> None:
    step = kv.inspect(model, **asked).to_json()["whatif"]["step"]
    assert {key: step[key] for key in expected} == expected
    batch = expected["batch"]
    assert step["tokens_per_second"] == pytest.approx(batch * 10_000 / moved)
    in_place = moved - expected["copied"]
    assert step["tokens_per_second_in_place"] == pytest.approx(batch * 10_000 / in_place)


def test_a_window_that_keeps_its_rows_is_named() -> None:
    text = str(kv.inspect(FIXED, capacity=100))
    assert "note: 1 window keeps its 5 rows" in text


def test_nothing_is_said_when_nobody_asks() -> None:
    report = kv.inspect(FIXED)
    assert report.whatif is None
    assert "whatif" not in report.to_json()


REFUSED = [
    ({"capacity": 0}, "`capacity` is `0`"),
    ({"capacity": "many"}, "`capacity` is `many`"),
    ({"capacity": "D=4"}, "no cache has a capacity called `D`"),
    ({"capacity": "B=4"}, "no cache has a capacity called `B`"),
    ({"cache_dtype": "string"}, "no element type `string`"),
    ({"cache_dtype": "float9"}, "no element type `float9`"),
    ({"memory": "much"}, "`memory` is `much`"),
    ({"bandwidth": "0"}, "`bandwidth` is `0`"),
]


@each(("asked", "message"), REFUSED)
def test_a_question_that_is_none_is_wrong_usage(asked, message: str) -> None:
    with pytest.raises(kv.UsageError, match=message):
        kv.inspect(NAMED, **asked)
