"""What looks like a cache that grows and is none, or cannot be proven, stays as it is."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from tests.grids import each

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"

_ATTENTION = """float[B,4,S,8] q, float[B,2,S,8] new_k, float[B,2,S,6] new_v,
    float[B,2,P,8] past_k, float[B,2,P,6] past_v"""
_ATTENDED = "float[B,4,L,6] y, float[B,2,T,8] present_k, float[B,2,T,6] present_v"
_NEW = "k = Neg (new_k) v = Neg (new_v)"
_HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
_PAST = "float[B,2,S,3] new, float[B,2,P,3] past"
_GROWN = "rows = Neg (new) present = Concat <axis = 2> (past, rows)"

CASES: dict[str, tuple[str, str, str, str | None, str | None]] = {
    # name: (inputs, outputs, nodes, reason code; None where it is no candidate, assumption)
    "new rows in front": (
        _PAST,
        "float[B,2,T,3] present",
        "rows = Neg (new) present = Concat <axis = 2> (rows, past)",
        None,
        None,
    ),
    "the past read by attention": (
        _PAST,
        "float[B,2,T,3] present, float[B,2,P,3] y",
        f"{_GROWN} y = Neg (past)",
        "past-read",
        None,
    ),
    "the past read behind an Identity": (
        _PAST,
        "float[B,2,T,3] present, float[B,2,P,3] y",
        f"same = Identity (past) {_GROWN} y = Neg (same)",
        "past-read",
        None,
    ),
    "the past handed out": (
        _PAST,
        "float[B,2,T,3] present, float[B,2,P,3] y",
        f"{_GROWN} y = Identity (past)",
        "past-read",
        None,
    ),
    "the number of elements of the past": (
        _PAST,
        "float[B,2,T,3] present, int64 y",
        f"{_GROWN} y = Size (past)",
        "past-read",
        None,
    ),
    "the past twice": (
        "float[B,2,P,3] past",
        "float[B,2,T,3] present",
        "present = Concat <axis = 2> (past, past)",
        None,
        None,
    ),
    "new rows that the past is read for": (
        _PAST,
        "float[B,2,T,3] present",
        """rows = Neg (new) more = Concat <axis = 2> (rows, past)
        present = Concat <axis = 2> (past, more)""",
        "past-read",
        None,
    ),
    "new rows on both sides": (
        _PAST,
        "float[B,2,T,3] present",
        "present = Concat <axis = 2> (past, new, new)",
        "past-read",
        None,
    ),
    "a batch that grows": (
        "float[S,2,4,3] new, float[P,2,4,3] past",
        "float[T,2,4,3] present",
        "present = Concat <axis = 0> (past, new)",
        "batch-axis",
        None,
    ),
    "features that are joined": (
        "float[B,2,S,3] new, float[B,2,S,3] past",
        "float[B,2,S,6] present",
        "rows = Neg (new) present = Concat <axis = 3> (past, rows)",
        "fixed-length",
        None,
    ),
    "a past of four rows in every step": (
        "float[B,2,S,3] new, float[B,2,4,3] past",
        "float[B,2,T,3] present",
        _GROWN,
        "fixed-length",
        None,
    ),
    "two inputs, of which either could be the cache": (
        _PAST,
        "float[B,2,T,3] present",
        "present = Concat <axis = 2> (past, new)",
        "two-inputs",
        None,
    ),
    "two inputs in the other order, behind others": (
        _PAST,
        "float[B,2,T,3] present",
        "same = Identity (past) present = Concat <axis = 2> (new, same)",
        "two-inputs",
        None,
    ),
    "rows up to the 9999th are handed on": (
        _PAST,
        "float[B,2,W,3] present",
        """rows = Neg (new) grown = Concat <axis = 2> (past, rows)
        most = Constant <value_ints = [9999]> ()
        first = Constant <value_ints = [-4]> () axes = Constant <value_ints = [2]> ()
        present = Slice (grown, first, most, axes)""",
        "rows-move",
        None,
    ),
    "the grown rows are computed with before they leave": (
        _PAST,
        "float[B,2,T,3] present",
        "rows = Neg (new) grown = Concat <axis = 2> (past, rows) present = Neg (grown)",
        None,
        None,
    ),
    "grown once for attention and once more for the next step": (
        _PAST,
        "float[B,2,T,3] present, float[B,2,T,3] y",
        f"{_GROWN} again = Concat <axis = 2> (past, rows) y = Neg (again)",
        "grown-rows-stay",
        None,
    ),
    "two lengths": (
        f"{_PAST}, float[B,2,Q,3] other",
        "float[B,2,T,3] present, float[B,2,U,3] other_present",
        f"{_GROWN} other_present = Concat <axis = 2> (other, rows)",
        "sizes-unrelated",
        "same-dim:P=Q",
    ),
    "a branch that hands on the past": (
        f"{_PAST}, bool go",
        "float[B,2,T,3] present",
        """present = If (go) <then_branch = a () => (float[B,2,T,3] x) {
            n = Neg (new) x = Concat <axis = 2> (past, n) },
            else_branch = b () => (float[B,2,T,3] y) { y = Identity (past) }>""",
        "past-read",
        None,
    ),
    "a present that is read behind an If": (
        f"{_PAST}, bool go",
        "float[B,2,T,3] present, float[B,2,T,3] z",
        """present = If (go) <then_branch = a () => (float[B,2,T,3] x) {
            n = Neg (new) x = Concat <axis = 2> (past, n) },
            else_branch = b () => (float[B,2,T,3] y) { y = Neg (new) }> z = Neg (present)""",
        "present-read",
        None,
    ),
    "rows that outlive a loop": (
        f"{_PAST}, int64 n, bool go",
        "float[B,2,T,3] present",
        """present = Loop (n, go, past) <body = b (int64 i, bool c, float[B,2,Q,3] x) =>
            (bool d, float[B,2,U,3] y) { d = Identity (c) y = Concat <axis = 2> (x, new) }>""",
        "past-read",
        None,
    ),
    "attention whose values are read elsewhere": (
        _ATTENTION,
        f"{_ATTENDED}, float[B,2,P,6] z",
        f"""{_NEW} z = Neg (past_v) y, present_k, present_v = Attention
        (q, k, v, , past_k, past_v)""",
        "half-attention past-read",
        None,
    ),
    "causal attention with other queries than keys": (
        _ATTENTION.replace("[B,4,S,8]", "[B,4,L,8]"),
        _ATTENDED,
        f"""{_NEW} y, present_k, present_v = Attention <is_causal = 1>
        (q, k, v, , past_k, past_v)""",
        "inside-attention",
        None,
    ),
    "causal attention with a mask of another length": (
        f"{_ATTENTION}, bool[B,1,S,M] mask",
        _ATTENDED,
        f"""{_NEW} y, present_k, present_v = Attention <is_causal = 1>
        (q, k, v, mask, past_k, past_v)""",
        "mask-length",
        "covers-past:mask",
    ),
    "attention that hands out its scores": (
        _ATTENTION,
        f"{_ATTENDED}, float[B,4,S,T] scores",
        f"""{_NEW} y, present_k, present_v, scores = Attention
        (q, k, v, , past_k, past_v)""",
        "inside-attention",
        None,
    ),
    "one past of keys and of values": (
        "float[B,4,S,8] q, float[B,2,S,8] new_k, float[B,2,S,8] new_v, float[B,2,P,8] past_k",
        "float[B,4,L,8] y, float[B,2,T,8] present_k, float[B,2,T,8] present_v",
        f"""{_NEW} y, present_k, present_v = Attention
        (q, k, v, , past_k, past_k)""",
        "past-read",
        None,
    ),
}


def _head(nodes: str) -> str:
    return _HEAD.replace("18", "23") if "Attention" in nodes else _HEAD


def model_of(name: str) -> onnx.ModelProto:
    inputs, outputs, nodes, *_ = CASES[name]
    return onnx.parser.parse_model(f"{_head(nodes)} g ({inputs}) => ({outputs}) {{ {nodes} }}")


@each("name", [*CASES])
def test_it_stays(name: str) -> None:
    *_, code, assumption = CASES[name]
    source = model_of(name)
    result, report = kv.raise_(source, capacity=16, partial=True, verify=False)
    assert not report.raised
    assert not report.inputs_added
    assert {one.code for one in report.refused} == set(code.split() if code else ())
    assert {one.assumption for one in report.refused} <= {assumption}
    assert ir.to_proto(result).graph == ir.to_proto(ir.from_proto(source)).graph


@pytest.mark.long
def test_no_mask_says_how_far_windows_alone_have_come() -> None:
    """It is as long as the rows before and the new tokens, and the rows are at most five."""
    source = onnx.load(FIXTURES / "growing" / "mistral_rolling__dynamo_op18.onnx")
    _, report = kv.raise_(
        source,
        capacity=16,
        partial=True,
        assume=["rotated-rows", "covers-past:attention_mask"],
        attention="keep",
        verify=False,
    )
    assert len(report.raised) == 4
    assert [one.name for one in report.inputs_added] == ["past_length"]


def test_a_mask_does_not_say_where_a_step_begins_that_adds_an_unknown_number_of_rows() -> None:
    text = f"""{_HEAD} g (float[B,2,N,3] rows, float[B,2,P,3] past, int64[B,M] mask)
        => (float[B,2,T,3] present) {{
        flags = Cast <to = 9> (mask) which = NonZero (flags) count = Shape <start = 1> (which)
        zero = Constant <value_ints = [0]> () axes = Constant <value_ints = [2]> ()
        new = Slice (rows, zero, count, axes) present = Concat <axis = 2> (past, new) }}"""
    source = onnx.parser.parse_model(text)
    _, report = kv.raise_(
        source, capacity=16, assume=["covers-past:mask"], partial=True, verify=False
    )
    assert [one.code for one in report.refused] == ["step-unknown"]
    _, report = kv.raise_(source, capacity=16, partial=True, verify=False)
    assert [one.name for one in report.inputs_added] == ["past_length"]
