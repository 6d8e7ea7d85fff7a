"""Sequences below opset 11, which has none: of known elements they are read through."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime import onnxruntime
from tests.grids import each, part

_X = np.arange(2 * 7 * 3, dtype=np.float32).reshape(2, 7, 3)
_SPLIT = "<int64 two = {2}, int64 last = {-1}, int64 first = {0}, int64[3] sizes = {1, 4, 2}>"


def _model(text: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> ' + text)


_GRAPHS: list[Any] = [
    pytest.param(
        f"g (float[2, 7, 3] x) => (float[2, 2, 3] y) {_SPLIT}"
        " { s = SplitToSequence <axis = 1> (x, two) y = SequenceAt (s, first) }",
        _X[:, :2],
        id="parts of one size",
    ),
    pytest.param(
        f"g (float[2, 7, 3] x) => (float[2, 1, 3] y) {_SPLIT}"
        " { s = SplitToSequence <axis = -2> (x, two) y = SequenceAt (s, last) }",
        _X[:, 6:],
        id="the last part is smaller",
    ),
    pytest.param(
        f"g (float[2, N, 3] x) => (float[2, M, 3] y) {_SPLIT}"
        " { s = SplitToSequence <axis = 1> (x, sizes) a = SequenceAt (s, two)"
        " b = SequenceAt (s, first) y = Concat <axis = 1> (a, b) }",
        np.concatenate([_X[:, 5:], _X[:, :1]], 1),
        id="parts of given sizes",
    ),
    pytest.param(
        f"g (float[2, 7, 3] x) => (float[2, 3] y) {_SPLIT}"
        " { s = SplitToSequence <axis = 1, keepdims = 0> (x) y = SequenceAt (s, two) }",
        _X[:, 2],
        id="rows without their axis",
    ),
    pytest.param(
        f"g (float[2, 7, 3] x) => (float[2, 3, 7] y) {_SPLIT}"
        " { s = SplitToSequence <axis = 1, keepdims = 0> (x)"
        " y = ConcatFromSequence <axis = -1, new_axis = 1> (s) }",
        _X.transpose(0, 2, 1),
        id="joined along a new axis",
    ),
    pytest.param(
        f"g (float[2, 7, 3] x) => (float[N, 7, 3] y, int64 n) {_SPLIT}"
        " { z = Neg (x) s = SequenceConstruct (x, z) t = SequenceInsert (s, z, first)"
        " u = SequenceErase (t, two) v = SequenceInsert (u, x)"
        " y = ConcatFromSequence <axis = 0> (v) n = SequenceLength (v) }",
        np.concatenate([-_X, _X, _X]),
        id="inserted and erased",
    ),
    pytest.param(
        f"g (float[2, 7, 3] x) => (float[2, 7, 3] y) {_SPLIT}"
        " { c = Constant <value = bool {1}> () s = SequenceConstruct (x) y = If (c) <"
        "then_branch = t () => (float[2, 7, 3] a) { b = SequenceAt (s, first) a = Neg (b) },"
        "else_branch = e () => (float[2, 7, 3] d) { d = SequenceAt (s, first) }> }",
        -_X,
        id="read in a body",
    ),
]


@part(3)
@pytest.mark.parametrize("target", [9, 10])
@pytest.mark.parametrize("opset", [11, 12, 18])
@pytest.mark.parametrize(("text", "expected"), _GRAPHS)
def test_a_sequence_of_known_elements_is_read_through(
    text: str, expected: Any, opset: int, target: int
) -> None:
    model = _model(text, opset)
    is_drawn = "N, 3] x" not in text  # the size would not be that of the parts
    lowered, report = lower(ir.from_proto(model), opset=target, verify=is_drawn)
    assert report.verification.status == ("equal" if is_drawn else "skipped")
    onnx.checker.check_model(ir.to_proto(lowered), full_check=True)
    assert not [node for node in lowered.graph.all_nodes() if "Sequence" in node.op_type]
    for data in (model.SerializeToString(), serialize(lowered)):
        found = onnxruntime.Session(data, "").run({"x": _X})
        np.testing.assert_array_equal(found["y"], expected)
    assert {done.location.op for done in report.lowered if done.rule == "sequence"} <= {
        "SequenceAt", "ConcatFromSequence", "SequenceLength",
    }  # fmt: skip


@each(
    ("text", "op"),
    [
        pytest.param(
            "g (float[2, N, 3] x) => (float[2, M, 3] y) <int64 two = {2}>"
            " { s = SplitToSequence <axis = 1> (x, two) y = SequenceAt (s, two) }",
            "SplitToSequence",
            id="of an unknown number",
        ),
        pytest.param(
            "g (float[2, 7, 3] x, int64 i) => (float[2, M, 3] y)"
            " { s = SplitToSequence <axis = 1> (x) y = SequenceAt (s, i) }",
            "SplitToSequence",
            id="read at a place that the run decides on",
        ),
        pytest.param(
            "g (float[2, 7, 3] x) => (seq(float) s) { y = Neg (x) s = SequenceConstruct (x, y) }",
            "SequenceConstruct",
            id="that the model gives",
        ),
    ],
)
@each("opset", [11, 18])
def test_another_sequence_is_refused(text: str, op: str, opset: int) -> None:
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(_model(text, opset)), opset=10, verify=False)
    first = refused.value.report.refused[0]
    assert (first.location.op, first.code, first.lowest_opset) == (op, "new-operator", 11)
    assert first.location.index == [n.op_type for n in _model(text, opset).graph.node].index(op)
