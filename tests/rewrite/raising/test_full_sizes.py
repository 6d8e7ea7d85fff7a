"""Sizes that onnx does not infer and a proof needs: found, used, and gone from the result."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.model_io.model import serialize

_HALVES = """
    whole = Shape (x) last = Constant <value_ints = [2]> () two = Constant <value_ints = [2]> ()
    zero = Constant <value_ints = [0]> () end = Constant <value_ints = [99]> ()
    size = Gather (whole, last) half = Div (size, two)
    left = Slice (x, zero, half, last) right = Slice (x, half, end, last)
    rows = Concat <axis = 2> (right, left)
"""
"""The halves of each row change places, as in a rotary embedding: (B, 1, 6) as before."""

_WRITE = """
    axes = Constant <value_ints = [1, 2]> () column = Unsqueeze (start, axes)
    shape = Shape (rows) index = Expand (column, shape)
    present = ScatterElements <axis = 1> (cache, index, rows)
"""


def model(nodes: str, inputs: str = "float[B,1,6] x", cache: str = "float[B,7,6]") -> ir.Model:
    text = f"""<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]>
    decoder ({cache} cache, {inputs}, int64[B] start) => ({cache} present) {{ {nodes} {_WRITE} }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


@pytest.mark.long
def test_a_size_that_onnx_does_not_infer_is_found_and_used() -> None:
    _, report = raise_(model(_HALVES))
    (done,) = report.raised
    assert (done.axis, done.update, done.write_indices) == (1, "rows", "start")
    assert "axis 2 is written whole: it has size `6` in both" in done.proof
    assert report.verification.status == "equal"


def test_nothing_of_it_is_written() -> None:
    source = model(_HALVES, inputs="float[?,1,6] x")
    result, _ = raise_(source, verify=False)
    written = onnx.load_from_string(serialize(result)).graph
    before = onnx.load_from_string(serialize(source)).graph
    assert list(written.input) == list(before.input)
    assert list(written.output) == list(before.output)
    assert not [v.name for v in written.value_info if v.name in ("left", "right", "rows")]


@pytest.mark.parametrize(
    ("nodes", "inputs"),
    [
        pytest.param(
            "rows = Concat <axis = 2> (x, y)",
            'float[B,1,N] x, float[B,1,M] y, float["N + M"] named',
            id="a sum of names, which an input may have as its name",
        ),
        pytest.param(
            "rows = Concat <axis = 2> (x, y) other = com.microsoft.QuickGelu (x)",
            'float[B,1,N] x, float[B,1,M] y, float["N + M"] named',
            id="a sum of names, where onnx does not know another node",
        ),
        pytest.param(
            f"{_HALVES.replace('rows =', 'mixed =')} rows = Reshape (mixed, unknown)",
            "float[B,1,6] x, int64[3] unknown",
            id="a shape of the caller's choice",
        ),
        pytest.param(
            """rows = Reshape (x, unknown)
            seen = If (choice) <
                then_branch = yes () => (float[B,7,?] a) { a = Concat <axis = 1> (cache, rows) },
                else_branch = no () => (float[B,7,?] b) { b = Identity (cache) }>""",
            "float[B,1,6] x, int64[3] unknown, bool choice",
            id="what only one branch demands",
        ),
    ],
)
def test_what_is_no_fact_is_not_used(nodes: str, inputs: str) -> None:
    cache = 'float[B,7,"N + M"]' if "named" in inputs else "float[B,7,6]"
    _, report = raise_(model(nodes, inputs, cache), verify=False)
    assert not report.raised
    assert [refusal.code for refusal in report.refused] == ["sizes-unrelated"]


@pytest.mark.long
def test_a_model_that_contradicts_itself_says_nothing_of_sizes() -> None:
    source = model(
        f"{_HALVES} wrong = Concat <axis = 1> (cache, other)", "float[B,1,6] x, float[B,2,5] other"
    )
    _, report = raise_(source, verify=False)
    assert [refusal.code for refusal in report.refused] == ["sizes-unrelated"]
