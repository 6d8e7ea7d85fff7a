"""A Softmax over a column more than there are keys is named, and stays."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_

_DECODER = """<ir_version: 8, opset_import: ["": 18]>
g (float[B, 3, S, 7] q, float[B, 3, 7, T] k, float[B, 3, T, 7] v, float[B, 3, S, 1] more)
  => (float[B, 3, S, 7] y) {
    raw = MatMul (q, k)
    scores = Concat <axis = -1> (JOINED)
    last = Constant <value_ints = [-1]> () zero = Constant <value_ints = [0]> ()
    most = ReduceMax <keepdims = 1> (scores, last)
    lower = Sub (scores, most)
    all = Softmax (lower)
    shares = Slice (all, zero, last, last)
    y = MatMul (shares, v)
}"""


@pytest.mark.parametrize(
    ("joined", "count"),
    [("raw, more", 1), ("more, raw", 0), ("raw, more, more", 0)],
    ids=["a sink behind the keys", "a column before the keys", "two columns"],
)
def test_sinks_are_named(joined: str, count: int) -> None:
    source = onnx.parser.parse_model(_DECODER.replace("JOINED", joined))
    _, report = raise_(ir.from_proto(source), verify=False)
    assert (report.attention, report.refused) == ([], [])
    assert sum("attention with sinks" in note for note in report.notes) == count
