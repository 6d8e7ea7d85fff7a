"""Windows: caches whose rows move up before new ones are written, and what only looks like one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.raising.arrangement import seen_through
from onnx_kvtool.rewrite.verify import Verifier
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.symbolic.index_maps import IndexMaps
from tests.grids import grid

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models" / "torch_static"

_MODEL = """
<ir_version: 10, opset_import: ["": 18]>
g (float[B, 7, 5] window, float[B, 7, 5] cache, float[B, S, 5] update, int64[1] start) => (OUT) {
  zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
  two = Constant <value_ints = [2]> () six = Constant <value_ints = [6]> ()
  far = Constant <value_ints = [9223372036854775807]> ()
  BODY
}
"""

_ROLL = """
tail = Slice (window, one, far, one) head = Slice (window, zero, one, one)
rolled = Concat <axis = 1> (tail, head)
"""
_WRITE = """
first = Transpose <perm = [1, 0, 2]> (rolled) a = Transpose <perm = [1, 0, 2]> (update)
where = Unsqueeze (six, one) w = ScatterND (first, where, a)
window_out = Transpose <perm = [1, 0, 2]> (w)
"""
_BESIDE = """
data = Transpose <perm = [1, 0, 2]> (cache) u = Transpose <perm = [1, 0, 2]> (update)
place = Unsqueeze (start, one) written = ScatterND (data, place, u)
present = Transpose <perm = [1, 0, 2]> (written)
"""
_SHIFT = """
count = Shape <start = 1, end = 2> (update) kept = Slice (window, count, far, one)
window_out = Concat <axis = 1> (kept, update)
"""
_FILL = """
rows = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6]> () seven = Constant <value_ints = [7]> ()
is_full = Greater (start, six) by = Cast <to = 7> (is_full) moved = Add (rows, by)
wrapped = Mod (moved, seven) rolled = Gather <axis = 1> (window, wrapped)
low = Max (start, zero) at = Min (low, six) place = Unsqueeze (at, one)
first = Transpose <perm = [1, 0, 2]> (rolled) a = Transpose <perm = [1, 0, 2]> (update)
w = ScatterND (first, place, a) window_out = Transpose <perm = [1, 0, 2]> (w)
"""
_SUM = "y = ReduceSum <keepdims = 0> (window_out, one)"
_ROWS = "y = Identity (window_out)"


def model(body: str, outputs: str = "float[B, 7, 5] window_out", rows: str = "1") -> ir.Model:
    text = _MODEL.replace("OUT", outputs).replace("BODY", body).replace("B, S, 5", f"B, {rows}, 5")
    return ir.from_proto(onnx.parser.parse_model(text))


WINDOWS = {
    "a roll and the last row": model(_ROLL + _WRITE),
    "rows cut off and new ones appended": model(_SHIFT, rows="S"),
    "filled first, then rolled": model(_FILL),
    "rows read in order": model(_SHIFT + _ROWS, "float[B, 7, 5] window_out, float[B, 7, 5] y", "S"),
    "a sum over the rows": model(_FILL + _SUM, "float[B, 7, 5] window_out, float[B, 5] y"),
}


@pytest.mark.long
@pytest.mark.parametrize("source", WINDOWS.values(), ids=WINDOWS)
def test_a_window_becomes_circular(source: ir.Model) -> None:
    raised, report = kv.raise_(source, assume=["rotated-rows"])
    assert [(r.past, r.axis, r.mode, r.assumed) for r in report.raised] == [
        ("window", 1, "circular", ("rotated-rows",))
    ]
    assert [(c.past, c.present, c.capacity, c.source) for c in report.caches] == [
        ("window", "window_out", 7, "rolling")
    ]
    assert report.verification.status == "equal"
    assert {output.name for output in raised.graph.outputs} == {
        output.name for output in source.graph.outputs
    }


@pytest.mark.parametrize("source", WINDOWS.values(), ids=WINDOWS)
def test_a_window_stays_as_long_as_its_order_may_matter(source: ir.Model) -> None:
    _, report = kv.raise_(source, verify=False)
    assert [(r.code, r.assumption) for r in report.refused] == [
        ("rolling-window", "rotated-rows:window")
    ]


_OF_OPSET_11 = """
<ir_version: 6, opset_import: ["": 11]>
g (float[B, 7, 5] window, float[B, 1, 5] update, int64[1] start) => (float[B, 7, 5] window_out)
<int64[1] six = {6}, int64[7] rows = {0, 1, 2, 3, 4, 5, 6}, int64[1] seven = {7}>
{
  is_full = Greater (start, six) by = Cast <to = 7> (is_full) moved = Add (rows, by)
  wrapped = Mod (moved, seven) column = Unsqueeze <axes = [1]> (wrapped)
  first = Transpose <perm = [1, 0, 2]> (window) rolled = GatherND (first, column)
  at = Where (is_full, six, start) place = Unsqueeze <axes = [1]> (at)
  a = Transpose <perm = [1, 0, 2]> (update) w = ScatterND (rolled, place, a)
  window_out = Transpose <perm = [1, 0, 2]> (w)
}
"""


@pytest.mark.long
def test_a_window_of_an_opset_without_batch_dims() -> None:
    source = ir.from_proto(onnx.parser.parse_model(_OF_OPSET_11))
    _, report = kv.raise_(source, assume=["rotated-rows", "in-range"])
    assert [(r.past, r.mode) for r in report.raised] == [("window", "circular")]
    assert report.verification.status == "equal"


_BY_INDEX = _FILL.replace(
    "rolled = Gather <axis = 1> (window, wrapped)",
    "column = Unsqueeze (wrapped, one) rolled = GatherND <batch_dims = [0]> (window, column)",
)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_ROLL.replace("(window, one, far, one)", "()") + _WRITE, id="empty Slice"),
        pytest.param(_FILL.replace("(moved, seven)", "(moved)"), id="Mod of one value"),
        pytest.param(_FILL.replace("axis = 1", "axis = [1]"), id="list for an axis"),
        pytest.param(_FILL.replace("axis = 1", "axis = 5"), id="axis that is not there"),
        pytest.param(_BY_INDEX, id="list for the batch axes"),
    ],
)
def test_a_malformed_window_is_none(body: str) -> None:
    source = model(body)
    kv.check(source)
    kv.inspect(source)
    _, report = kv.raise_(source, assume=["rotated-rows"], verify=False)
    assert not report.raised


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("hand/shift_cat__dynamo_op18", ["past_length"]),
        ("hand/sliding_hf_old__dynamo_op18", []),
        ("hf/gemma3_static_slidingfull_L1__dynamo_op18", []),
    ],
)
def test_exported_windows(name: str, added: list[str]) -> None:
    _, report = kv.raise_(MODELS / f"{name}.onnx", assume=["rotated-rows"])
    assert not report.refused
    assert [one.name for one in report.inputs_added] == added
    assert "circular" in {cache.mode for cache in report.caches}
    assert report.verification.status == "equal"


@pytest.mark.long
@grid(
    6,
    opset=[18, 13],
    name=[
        "hand/shift_cat__dynamo_op18",
        "hand/sliding_hf_old__dynamo_op18",
        "hf/gemma3_static_slidingfull_L1__dynamo_op18",
    ],
)
def test_exported_windows_step_on_in_both_runtimes_and_lowered(name: str, opset: int) -> None:
    path = MODELS / f"{name}.onnx"
    raised, report = kv.raise_(path, assume=["rotated-rows"], verify_steps=8)
    lowered, again = kv.lower(raised, opset=opset, verify_steps=8)
    both = kv.verify(raised, lowered, runtime="reference", steps=8)
    assert (report.verification.status, again.verification.status, both.status) == ("equal",) * 3


@pytest.mark.parametrize("rows", [[1] * 20, [5, 7, 3, 1, 6], [7, 7, 2]], ids=str)
def test_a_host_that_feeds_the_rows_back_reads_the_same(rows: list[int]) -> None:
    """The row of position p is row p mod 7, however many rows a step has."""
    source = model(_SHIFT + _ROWS, "float[B, 7, 5] window_out, float[B, 7, 5] y", "S")
    raised, _ = kv.raise_(source, assume=["rotated-rows"], verify=False)
    a, b = Evaluator(source), Evaluator(raised)
    rng = np.random.default_rng(5)
    ordered = rng.standard_normal((2, 7, 5)).astype(np.float32)
    circular, before = ordered, 0
    for count in rows:
        new = rng.standard_normal((2, count, 5)).astype(np.float32)
        rest = {"cache": ordered, "start": np.zeros(1, np.int64), "update": new}
        expected = a.run({"window": ordered, **rest}).values
        fed = {"window": circular, "past_length": np.array([before]), **rest}
        found = b.run(fed).values
        assert np.array_equal(found["y"], expected["y"])
        before += count
        ordered, circular = expected["window_out"], found["window_out"]
        for row in range(7):
            position = before - 7 + row
            assert np.array_equal(circular[:, position % 7], ordered[:, row])


LOOKALIKES = {
    "a row that is not the last": (_ROLL + _WRITE.replace("six", "two"), "1", "rows-move"),
    "moved by two for one row": (
        _ROLL.replace("one, far, one", "two, far, one").replace("zero, one, one", "zero, two, one")
        + _WRITE,
        "1",
        "rows-move",
    ),
    "halves of another length": (
        _ROLL.replace("zero, one, one", "zero, two, one") + _WRITE,
        "1",
        "rows-move",
    ),
    "the newest first": (
        "kept = Slice (window, zero, six, one) window_out = Concat <axis = 1> (update, kept)",
        "1",
        None,
    ),
    "fewer rows appended than cut off": (
        "kept = Slice (window, two, far, one) window_out = Concat <axis = 1> (kept, update)",
        "1",
        None,
    ),
    "moved one step too late": (
        _FILL.replace("Greater (start, six)", "Greater (start, seven)"),
        "1",
        "rows-move",
    ),
    "moved one step too early": (
        _FILL.replace("Greater (start, six)", "Greater (start, two)"),
        "1",
        "rows-move",
    ),
    "rows read before the step": (
        _SHIFT + "old = ReduceSum <keepdims = 0> (window, one)",
        "S",
        "window-read-before",
    ),
    "rolled rows read before the step": (
        _ROLL + _WRITE + "old = ReduceSum <keepdims = 0> (rolled, one)",
        "1",
        "window-read-before",
    ),
    "a window that does not go out": (_SHIFT + _SUM, "S", "window-not-returned"),
}


@pytest.mark.parametrize(("body", "rows", "code"), LOOKALIKES.values(), ids=LOOKALIKES)
def test_what_is_no_window_stays(body: str, rows: str, code: str | None) -> None:
    outputs = "float[B, 7, 5] window_out"
    if "old =" in body:
        outputs += ", float[B, 5] old"
    if code == "window-not-returned":
        outputs = "float[B, 5] y"
    source = model(body, outputs, rows)
    result, report = kv.raise_(source, assume=["rotated-rows"], verify=False)
    assert not report.raised
    assert serialize(result) == serialize(source)
    assert {refusal.code for refusal in report.refused} == ({code} if code else set())


@pytest.mark.long
def test_a_cache_beside_a_window_is_raised_without_it() -> None:
    """What is proven of a node holds whatever other nodes do to other caches."""
    outputs = "float[B, 7, 5] window_out, float[B, 7, 5] present"
    raised, report = kv.raise_(model(_ROLL + _WRITE + _BESIDE, outputs))
    assert [(r.past, r.axis, r.assumed) for r in report.raised] == [("cache", 1, ())]
    assert [refusal.code for refusal in report.refused] == ["rolling-window"]
    assert [n.op_type for n in raised.graph].count("TensorScatter") == 1
    assert report.verification.status == "equal"


@pytest.mark.long
def test_a_window_counts_the_tokens_of_the_cache_beside_it() -> None:
    outputs = "float[B, 7, 5] window_out, float[B, 7, 5] present"
    _, report = kv.raise_(model(_ROLL + _WRITE + _BESIDE, outputs), assume=["rotated-rows"])
    assert [(r.past, r.mode) for r in report.raised] == [
        ("window", "circular"),
        ("cache", "linear"),
    ]
    assert not report.inputs_added
    assert report.verification.status == "equal"


def _moved(source: ir.Model, by: int) -> ir.Model:
    """Return the circular form of a window with the order in which its rows are read changed."""
    raised, _ = kv.raise_(source, assume=["rotated-rows"], verify=False)
    for value in raised.graph.initializers.values():
        held = value.const_value
        if held is not None and np.array_equal(held.numpy(), np.arange(7)):
            value.const_value = ir.tensor(held.numpy() + by, name=value.name)
            return raised
    raise AssertionError("nothing gathers the rows in order")


@pytest.mark.long
@pytest.mark.parametrize("by", [0, 1, -1])
def test_a_wrong_order_is_found(by: int) -> None:
    source = WINDOWS["rows read in order"]
    rotated = RotatedCache("window", "last", 7)
    status = Verifier(source).compare(_moved(source, by), rotated=[rotated]).status
    assert status == ("different" if by else "equal")


@pytest.mark.parametrize("op", ["Identity", "Transpose <perm = [0, 1, 2]>"])
def test_values_that_are_made_from_each_other_end_the_search(op: str) -> None:
    source = model(
        f"here = {op} (window) there = {op} (here) place = Unsqueeze (start, two) "
        "window_out = ScatterND (there, place, update)"
    )
    nodes = {node.outputs[0].name: node for node in source.graph}
    nodes["here"].replace_input_with(0, nodes["there"].outputs[0])
    for name in ("here", "there"):
        nodes[name].outputs[0].shape = ir.Shape(["B", 7, 5])
        nodes[name].outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    found = list(seen_through(nodes["there"].outputs[0], IndexMaps(18)))
    assert len(found) == 3
    kv.check(source)
    _, report = kv.raise_(source, capacity=9, partial=True, verify=False)
    assert not report.raised
