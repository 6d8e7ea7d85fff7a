"""A cache that is rolled stays as it is, and the others of the model are raised."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnx_kvtool.commands.raise_ import raise_

_ROLLED = """
far = Constant <value_ints = [9223372036854775807]> ()
tail = Slice (window, one, far, one) head = Slice (window, zero, one, one)
rolled = Concat <axis = 1> (tail, head) first = Transpose <perm = [1, 0, 2]> (rolled)
a = Transpose <perm = [1, 0, 2]> (update) last = Constant <value_ints = [6]> ()
where = Unsqueeze (last, one) w = ScatterND (first, where, a)
window_out = Transpose <perm = [1, 0, 2]> (w)
"""
_KEPT = "window_out = Identity (window)"

_MODEL = """
<ir_version: 10, opset_import: ["": 18]>
g (float[B, 7, 5] window, float[B, 7, 5] cache, float[B, 1, 5] update, int64[1] start)
  => (float[B, 7, 5] window_out, float[B, 7, 5] present) {
  zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
  WINDOW
  data = Transpose <perm = [1, 0, 2]> (cache) u = Transpose <perm = [1, 0, 2]> (update)
  place = Unsqueeze (start, one) written = ScatterND (data, place, u)
  present = Transpose <perm = [1, 0, 2]> (written)
}
"""


def model(window: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(_MODEL.replace("WINDOW", window)))


def test_the_other_cache_alone_is_raised() -> None:
    _, report = raise_(model(_KEPT), verify=False)
    assert [(r.past, r.axis) for r in report.raised] == [("cache", 1)]


def test_a_cache_beside_a_rolled_window_is_raised() -> None:
    """What is proven of a node holds whatever other nodes do to other caches."""
    raised, report = raise_(model(_ROLLED))
    assert [(r.past, r.axis, r.assumed) for r in report.raised] == [("cache", 1, ())]
    assert [refusal.code for refusal in report.refused] == ["rows-move"]
    assert [n.op_type for n in raised.graph].count("TensorScatter") == 1
    assert report.verification.status == "equal"
