"""Attention that stays in many nodes, over the whole capacity of its caches.

Each decoder is proven, and driven token by token beside its source.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.rewrite.raising.columns.wide import Widened
from onnx_kvtool.rewrite.report import Refused
from tests.grids import part
from tests.rewrite.fixing.test_fixtures import assert_static
from tests.rewrite.raising.growing_steps import Decoder

_BATCH, _ROWS = 2, 11
_PASTS = {"past_key": "present_key", "past_value": "present_value"}

_DECODER = """<ir_version: 8, opset_import: ["": 18]>
g (float[2, 3, S, 7] q, float[2, 3, S, 7] k, float[2, 3, S, 7] v,
   float[2, 3, P, 7] past_key, float[2, 3, P, 7] past_value)
  => (float[2, 3, S, 7] y, float[2, 3, T, 7] present_key, float[2, 3, T, 7] present_value)
<float[7, 1] narrow = {NARROW}, float[7, 10] wide = {WIDE}DECLARED> {
    zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
    two = Constant <value_ints = [2]> () last = Constant <value_ints = [-1]> ()
    half = Constant <value_float = 0.5> ()
    keys = Neg (k) values = Neg (v) present_key = Concat <axis = 2> (past_key, keys)
    present_value = Concat <axis = 2> (past_value, values)
    turned = Transpose <perm = [0, 1, 3, 2]> (present_key)
    raw = MatMul (q, turned)
    BODY
}"""

_PLAIN = "p = Softmax (raw) "
_FOLDED = "y = Mul (q, folded)"

_STATIC = {
    "sinks": "sink = MatMul (q, narrow) full = Concat <axis = -1> (raw, sink)"
    " most = ReduceMax (full, last) less = Sub (full, most) shares = Softmax (less)"
    " kept = Slice (shares, zero, last, last) y = MatMul (kept, present_value)",
    "sinks of declared sizes": "DECLARED float[2, 3, S, 1] most, float[2, 3, S, 1] sink"
    " BODY sink = MatMul (q, narrow) full = Concat <axis = -1> (raw, sink)"
    " most = ReduceMax (full, last) less = Sub (full, most) shares = Softmax (less)"
    " kept = Slice (shares, zero, last, last) y = MatMul (kept, present_value)",
    "shares that are read twice": _PLAIN
    + "a = MatMul (p, present_value) b = ReduceMax (p, last) y = Mul (a, b)",
    "values that are tiled": _PLAIN
    + "times = Constant <value_ints = [1, 1, 1, 2]> () more = Tile (present_value, times)"
    " both = MatMul (p, more) a, b = Split <axis = -1, num_outputs = 2> (both)"
    " c = ReduceMax (p, last) d = Mul (b, c) y = Add (a, d)",
    "keys and values from one latent row": "rows = MatMul (present_key, wide)"
    " parts = Constant <value_ints = [3, 7]> () a, b = Split <axis = -1> (rows, parts)"
    " scale = ReduceSum (a, last) wide_scale = Transpose <perm = [0, 1, 3, 2]> (scale)"
    " scores = Add (raw, wide_scale) p = Softmax (scores)"
    " w = ReduceSum (p, last) u = MatMul (p, b) y = Mul (u, w)",
    "values of no number where the caches hold zeros": _PLAIN
    + "inverse = Reciprocal (present_value) a = MatMul (p, inverse) b = ReduceMax (p, last)"
    " y = Mul (a, b)",
    "shares in nodes of their own": "most = ReduceMax (raw, last) less = Sub (raw, most)"
    " e = Exp (less) all = ReduceSum (e, last) p = Div (e, all) y = MatMul (p, present_value)",
    "norms of single rows": "scale = ReduceMean (wide, last) flat = Reshape (scale, last)"
    " normed = LayerNormalization <axis = -1> (present_value, flat) p = Softmax (raw)"
    " a = MatMul (p, normed) b = ReduceMin (p, last) y = Add (a, b)",
    "one column alone": "first = Slice (raw, zero, one, last) y = Mul (q, first)",
    **{
        f"{name} of scores": f"small = Mul (raw, half) folded = {name} (small, last) {_FOLDED}"
        for name in ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare")
    },
    "a mask of zeros before new rows": "tall = Shape <start = 2, end = 3> (q)"
    " past = Shape <start = 2, end = 3> (past_key) sizes = Concat <axis = 0> (tall, past)"
    " old = ConstantOfShape (sizes) square = Concat <axis = 0> (tall, tall)"
    " low = ConstantOfShape <value = float[1] {-3.0}> (square) new = Trilu <upper = 1> (low, one)"
    " mask = Concat <axis = -1> (old, new) scores = Add (raw, mask) p = Softmax (scores)"
    " a = MatMul (p, present_value) b = ReduceMax (p, last) y = Mul (a, b)",
    "keys and values from one latent row, causal": "rows = MatMul (present_key, wide)"
    " parts = Constant <value_ints = [3, 7]> () a, b = Split <axis = -1> (rows, parts)"
    " left = Transpose <perm = [0, 1, 3, 2]> (b) scores = MatMul (q, left)"
    " nought = Constant <value_int = 0> () step = Constant <value_int = 1> ()"
    " low = Constant <value_float = -3.4028235e38> ()"
    " past = Shape <start = 2, end = 3> (past_key) total = Shape <start = 2, end = 3> (b)"
    " from = Squeeze (past) end = Squeeze (total) keys_at = Range (nought, end, step)"
    " at = Range (from, end, step) column = Unsqueeze (at, one)"
    " seen = LessOrEqual (keys_at, column) shown = Where (seen, scores, low)"
    " p = Softmax (shown) y = MatMul (p, b)",
    "rows looked up in flattened ones": "total = Shape <start = 2, end = 3> (present_key)"
    " scale = ReduceSum (present_value, last) flat = Reshape (scale, last)"
    " n = Squeeze (total) nought = Constant <value_int = 0> () step = Constant <value_int = 1> ()"
    " six = Constant <value_int = 6> () rows = Range (nought, n, step)"
    " heads = Range (nought, six, step) base = Mul (heads, n) column = Unsqueeze (base, one)"
    " places = Add (column, rows) found = Gather (flat, places)"
    " four = Constant <value_ints = [2, 3, 1, -1]> () bias = Reshape (found, four)"
    " scores = Add (raw, bias) p = Softmax (scores)"
    " a = MatMul (p, present_value) b = ReduceMax (p, last) y = Mul (a, b)",
}

_TABLE = (
    "sides = Constant <value_ints = [ROWS, ROWS]> () step = Constant <value_int = 1> ()"
    " low = ConstantOfShape <value = float[1] {-3.0}> (sides) table = Trilu <upper = 1> (low, step)"
    " limit = Constant <value_ints = [ROWS]> () total = Shape <start = 2, end = 3> (present_key)"
    " past = Shape <start = 2, end = 3> (past_key) from = Min (past, limit)"
    " to = Min (total, limit) taken = Sub (to, from) new = Max (taken, zero) end = Add (past, new)"
    " pair = Constant <value_ints = [2, 3]> () seven = Constant <value_ints = [7]> ()"
    " shape = Concat <axis = 0> (pair, new, seven) asked = Reshape (q, shape)"
    " scored = MatMul (asked, turned) first = FIRST behind = LAST"
    " rows = Slice (table, first, behind, zero) bias = Slice (rows, zero, end, one)"
    " scores = Add (scored, bias) p = Softmax (scores)"
    " a = MatMul (p, present_value) b = ReduceMax (p, last) y = Mul (a, b)"
)
_PLACED = (
    "best, place = TopK <axis = -1, largest = LARGEST> (raw, one) sizes = Shape (raw)"
    " none = ConstantOfShape (sizes) few = Shape (place) back = Mul (place, zero)"
    " last_place = Sub (back, one) ones = ConstantOfShape <value = float[1] {2.0}> (few)"
    " more = ScatterElements <axis = -1> (none, PLACE, ones) scores = Add (raw, more)"
    " p = Softmax (scores) a = MatMul (p, present_value) b = ReduceMax (p, last) c = Mul (a, b)"
    " y = Add (c, best)"
)
_HALVES = (
    "rows = Transpose <perm = [3, 1, 2, 0]> (present_key) sizes = Shape (rows)"
    " none = ConstantOfShape <value = float[1] {0.5}> (sizes)"
    " parts = Constant <value_ints = [2, 4, 1]> () a, b, c = Split <axis = 0> (rows, parts)"
    " four = Constant <value_ints = [4, 1]> () pair = Constant <value_ints = [2, 1]> ()"
    " at = Constant <value_ints = [0, 3, 1, 5]> () to = Constant <value_ints = [6, -5]> ()"
    " firsts = Reshape (at, four) seconds = Reshape (to, pair)"
    " half_full = ScatterND (none, firsts, b) full = ScatterND <reduction = REDUCTION>"
    " (half_full, seconds, a) left = Transpose <perm = [3, 1, 0, 2]> (full)"
    " scores = MatMul (q, left) p = Softmax (scores) d = MatMul (p, present_value)"
    " e = ReduceMax (p, last) y = Mul (d, e)"
)
_FRONT = _TABLE.replace("FIRST", "Identity (past)").replace("LAST", "Identity (end)")
_BACK = _TABLE.replace("FIRST", "Sub (past, limit)").replace("LAST", "Sub (end, limit)")
_STATIC |= {
    "rows of a larger table": _FRONT.replace("ROWS", "13"),
    "rows of a table as large as the caches": _FRONT.replace("ROWS", "11"),
    "rows of a table, counted from its end": _BACK.replace("ROWS", "13"),
    "the largest score is raised": _PLACED.replace("LARGEST", "1").replace("PLACE", "place"),
    "the smallest score is raised": _PLACED.replace("LARGEST", "0").replace("PLACE", "place"),
    "the last score is raised": _PLACED.replace("LARGEST", "1").replace("PLACE", "last_place"),
    "parts of heads are put together": _HALVES.replace("REDUCTION", '"none"'),
    "parts of heads are added up": _HALVES.replace("REDUCTION", '"add"'),
}

_FUSED = {
    "keys and values from one latent row": "rows = MatMul (present_key, wide)"
    " parts = Constant <value_ints = [3, 7]> () a, b = Split <axis = -1> (rows, parts)"
    " left = Transpose <perm = [0, 1, 3, 2]> (b) scores = MatMul (q, left) p = Softmax (scores)"
    " y = MatMul (p, b)",
    "keys that are put together and flattened": "rows = Transpose <perm = [3, 1, 2, 0]>"
    " (present_key) sizes = Shape (rows) none = ConstantOfShape (sizes)"
    " parts = Constant <value_ints = [3, 4]> () a, b = Split <axis = 0> (rows, parts)"
    " three = Constant <value_ints = [3, 1]> () four = Constant <value_ints = [4, 1]> ()"
    " at = Constant <value_ints = [4, 6, 5]> () to = Constant <value_ints = [0, 3, 1, 2]> ()"
    " firsts = Reshape (at, three) seconds = Reshape (to, four)"
    " half_full = ScatterND (none, firsts, a) full = ScatterND (half_full, seconds, b)"
    " again = Transpose <perm = [3, 1, 2, 0]> (full) shape = Shape (again)"
    " end = Constant <value_ints = [3]> () far = Constant <value_ints = [9]> ()"
    " tall = Slice (shape, two, end) width = Slice (shape, end, far)"
    " outer = Slice (shape, zero, two) flat_shape = Concat <axis = 0> (last, tall, width)"
    " flat = Reshape (again, flat_shape) across = Transpose <perm = [0, 2, 1]> (flat)"
    " left_shape = Concat <axis = 0> (outer, width, tall) left = Reshape (across, left_shape)"
    " scored = MatMul (q, left) biases = ReduceMax (present_value, last)"
    " bias = Transpose <perm = [0, 1, 3, 2]> (biases) scores = Add (scored, bias)"
    " p = Softmax (scores) y = MatMul (p, present_value)",
}

_DYNAMIC = {
    "the last of the rows in use is written over": "row = Constant <value_ints = [1, 1]> ()"
    " back = ConstantOfShape <value = int64[1] {-1}> (row) n = Transpose <perm = [2, 0, 1, 3]>"
    " (present_value) new = Transpose <perm = [2, 0, 1, 3]> (v) over = ScatterND (n, back, new)"
    " every = Constant <value_ints = [0, 1, 2, 3]> () folded = ReduceMax (over, every)"
    " y = Add (q, folded)",
    "as many scores are written as there are rows in use": "places = Cast <to = 7> (raw)"
    " none = Mul (places, zero) over = ScatterElements <axis = 0> (raw, none, raw)"
    " folded = ReduceMax (over, last) y = Mul (q, folded)",
    "the largest score, another behind the rows": "sink = MatMul (q, narrow)"
    " full = Concat <axis = -1> (raw, sink) best, place = TopK <axis = -1> (full, one)"
    " y = Mul (q, best)",
    "rows of a table smaller than the caches": _FRONT.replace("ROWS", "10"),
    "rows of a smaller table, counted from its end": _BACK.replace("ROWS", "10"),
    "ReduceMean of scores": f"folded = ReduceMean (raw, last) {_FOLDED}",
    "scores in front of which stands another": "sink = MatMul (q, narrow)"
    " full = Concat <axis = -1> (sink, raw) shares = Softmax (full)"
    " first = Slice (shares, zero, one, last) y = Mul (q, first)",
    "scores behind others, added from the front": "sink = MatMul (q, narrow)"
    " full = Concat <axis = -1> (raw, sink) sums = CumSum (full, last)"
    " folded = ReduceMax (sums, last) y = Mul (q, folded)",
    "scores turned over": "back = Constant <value_ints = [-99]> ()"
    " far = Slice (raw, last, back, last, last) first = Slice (far, zero, one, last)"
    " y = Mul (q, first)",
    "values tiled along their rows": "times = Constant <value_ints = [1, 1, 2, 1]> ()"
    " more = Tile (present_value, times) folded = ReduceMax <keepdims = 1> (more, two)"
    " y = Mul (q, folded)",
}


def _source(body: str) -> onnx.ModelProto:
    numbers = [str((3 * n % 11 - 5) / 4) for n in range(70)]
    declared, _, nodes = body.rpartition(" BODY ")
    text = _DECODER.replace("DECLARED", declared.replace("DECLARED", ",")).replace("BODY", nodes)
    text = text.replace("{WIDE}", f"{{{', '.join(numbers)}}}")
    model = onnx.parser.parse_model(text.replace("{NARROW}", f"{{{', '.join(numbers[:7])}}}"))
    onnx.checker.check_model(model)
    return model


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize(
    ("body", "fused"),
    [*((body, 0) for body in _STATIC.values()), *((body, 1) for body in _FUSED.values())],
    ids=[*_STATIC, *(f"fused, {name}" for name in _FUSED)],
)
def test_every_step_gives_what_the_source_gives(body: str, fused: int, length: int) -> None:
    source = _source(body)
    model, report = raise_(ir.from_proto(source), capacity=_ROWS, dims={"S": length}, static=True)
    assert_static(model)
    assert report.verification.status == "equal"
    assert [node.op_type for node in model.graph].count("Attention") == fused
    growing, fixed = (Decoder(one, _PASTS, 2) for one in (source, ir.to_proto(model)))
    growing.begin(_BATCH, 0)
    fixed.begin(_BATCH, _ROWS)
    rng = np.random.default_rng(5)
    for past in range(0, _ROWS - length + 1, length):
        new = {name: rng.normal(size=(_BATCH, 3, length, 7)).astype(np.float32) for name in "qkv"}
        expected = growing.step(new)
        actual = fixed.step({**new, "past_length": np.asarray([past])})
        np.testing.assert_allclose(actual["y"], expected["y"], rtol=1e-3, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("body", _DYNAMIC.values(), ids=_DYNAMIC)
def test_what_may_look_at_rows_not_in_use_is_refused(body: str) -> None:
    with pytest.raises(Refused) as error:
        raise_(ir.from_proto(_source(body)), capacity=_ROWS, dims={"S": 1}, static=True)
    codes = {one.code for one in error.value.report.reasons}
    assert "dynamic-size" in codes
    assert codes <= {"dynamic-size", "rows-move", "sizes-unrelated"}


@pytest.mark.long
@pytest.mark.parametrize("more", [-1, 1])
def test_a_row_too_many_or_too_few_is_found(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hide = Widened.hidden

    def shifted(self: Widened, value: ir.Value, axis: int, filler: float) -> ir.Value:
        other = copy(self)
        other.count = self.em.op("Add", self.count, self.em.constant([more]))
        return hide(other, value, axis, filler)

    monkeypatch.setattr(Widened, "hidden", shifted)
    with pytest.raises(Refused) as error:
        raise_(ir.from_proto(_source(_STATIC["sinks"])), capacity=7, dims={"S": 1}, static=True)
    assert error.value.report.verification.status == "different"
