"""A Softmax over a column more than there are keys is named, and stays."""

from __future__ import annotations

import onnx.parser
import pytest

import onnx_kvtool as kv

_DECODER = """<ir_version: 8, opset_import: ["": 18]>
g (float[B, 3, S, 7] q, float[B, 3, 7, T] k, float[B, 3, P, 7] past, float[B, 3, S, 7] new,
   float[B, 3, S, 1] more) => (float[B, 3, S, 7] y, float[B, 3, T, 7] present) {
    present = Concat <axis = 2> (past, new)
    raw = MatMul (q, k)
    scores = Concat <axis = -1> (JOINED)
    last = Constant <value_ints = [-1]> () zero = Constant <value_ints = [0]> ()
    most = ReduceMax <keepdims = 1> (scores, last)
    lower = Sub (scores, most)
    all = Softmax (lower)
    shares = Slice (all, zero, last, last)
    y = MatMul (shares, present)
}"""


@pytest.mark.parametrize(
    ("joined", "count"),
    [("raw, more", 1), ("more, raw", 0), ("raw, more, more", 0)],
    ids=["a sink behind the keys", "a column before the keys", "two columns"],
)
def test_sinks_are_named(joined: str, count: int) -> None:
    source = onnx.parser.parse_model(_DECODER.replace("JOINED", joined))
    _, report = kv.raise_(source, verify=False)
    (growing,) = (found for found in kv.check(source) if found.code == "KV209")
    assert report.attention == []
    for said in (report.notes, kv.inspect(source).notes, [growing.help or ""]):
        assert sum("attention with sinks" in text for text in said) == count
