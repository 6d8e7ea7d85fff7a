"""Types that kvtool knows keep no model from being lowered; a refusal names what it comes from."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.rewrite.report import Refused
from tests.grids import each

_HEAD = '<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1, "my": 1]>'
_WEIGHTS = "uint8[32, 2, 8] w, float[64] s, float[32] scale"


def _model(text: str, head: str = _HEAD) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(head + text))


LOWERED = [
    pytest.param(
        f"m (float[B, 32] x, {_WEIGHTS}) => (float[B, 32] y) {{"
        "  p = com.microsoft.MatMulNBits <K = 32, N = 32, bits = 4, block_size = 16> (x, w, s)"
        "  y = RMSNormalization (p, scale) }",
        ["rms_normalization"],
        id="behind a contrib operator",
    ),
    pytest.param(
        "m (bool c, float[B, 32] x, float[32] scale) => (float[B, 32] y) { y = If (c) <"
        "  then_branch = t () => (float[B, 32] p) {"
        "    q = com.microsoft.QuickGelu (x) p = RMSNormalization (q, scale) },"
        "  else_branch = e () => (float[B, 32] p) { p = Relu (x) }> }",
        ["rms_normalization"],
        id="behind one in a branch",
    ),
    pytest.param(
        "m (int64 n, bool c, float[B, 32] x, float[32] scale) => (float[B, 32] y) {"
        "  q = com.microsoft.QuickGelu (x) y = Loop (n, c, q) <body = b (i, k, h) => (on, p) {"
        "    on = Identity (k) p = RMSNormalization (h, scale) }> }",
        ["rms_normalization"],
        id="a state of a loop that the body does not declare",
    ),
    pytest.param(
        "m (float[B, 32] x, float[32] scale) => (float[B, 32] y) {"
        "  q = com.microsoft.QuickGelu (x) r = SequenceConstruct (q, x) zero = Constant"
        "  <value_int = 0> () e = SequenceAt (r, zero) y = RMSNormalization (e, scale) }",
        ["rms_normalization"],
        id="an element of a sequence",
    ),
    pytest.param(
        "m (float[B, 3, 5, 4] q, float[B, 3, 5, 4] k, float[B, 3, 5, 4] v)"
        "  => (float[B, 3, 5, 4] y) { r = com.microsoft.QuickGelu (q) y = Attention (r, k, v) }",
        ["attention"],
        id="an operator with a rule of its own",
    ),
]


@pytest.mark.parametrize(("text", "rules"), LOWERED)
def test_a_type_that_infer_knows_is_known(text: str, rules: list[str]) -> None:
    source = _model(text)
    _, report = lower(source, opset=18)
    assert [done.rule for done in report.lowered] == rules
    assert report.verification.status == "equal"
    assert [node.op_type for node in source.graph][-1] in text  # the source is as it was


@pytest.mark.long
def test_raising_knows_shapes_behind_contrib_operators() -> None:
    source = _model(
        "m (float[B, 3, 7, 5] past, float[B, 3, 2, 5] new) => (float[B, 3, 7, 5] y)"
        "  <int64[1] four = {4}, int64[1] far = {7}, int64[1] axis = {2}, int64[1] nought = {0},"
        "   int64[1] two = {2}> {"
        "  n = com.microsoft.QuickGelu (new) head = Slice (past, nought, two, axis)"
        "  tail = Slice (past, four, far, axis) y = Concat <axis = 2> (head, n, tail) }"
    )
    _, report = raise_(source)
    assert [done.update for done in report.raised] == ["n"]
    assert report.verification.status == "equal"


REFUSED = [
    pytest.param(
        "m (float[B, 32] x, float[32] scale) => (float[B, 32] y, float[B, 32] z) {"
        "  [odd] p = my.Odd (x) [first] y = RMSNormalization (p, scale)"
        "  [other] q = my.Odd (x) [second] z = RMSNormalization (q, scale) }",
        [
            (
                "unknown-operator",
                "odd",
                (
                    "`my::Odd` is unknown, so that the element type of `p` is unknown, which 2 "
                    "nodes need, the first of them m, node `first` (RMSNormalization)"
                ),
            )
        ],
        id="an operator that nobody knows, once for all its nodes",
    ),
    pytest.param(
        "m (float[B, 32] x, float[32] scale) => (float[B, 32] y) {"
        "  [odd] p = my.Odd (x) [last] y = RMSNormalization (p, scale) }",
        [
            (
                "unknown-operator",
                "odd",
                (
                    "`my::Odd` is unknown, so that the element type of `p` is unknown, which "
                    "m, node `last` (RMSNormalization) needs"
                ),
            )
        ],
        id="one node behind it",
    ),
    pytest.param(
        "m (x, float[32] scale) => (float[B, 32] y, float[B, 32] z) {"
        "  [a] y = RMSNormalization (x, scale) [b] z = RMSNormalization (x, scale) }",
        [
            (
                "unknown-element-type",
                None,
                (
                    "the input declares no shape, so that the element type of `x` is unknown, "
                    "which 2 nodes need, the first of them m, node `a` (RMSNormalization)"
                ),
            )
        ],
        id="an input without a type",
    ),
    pytest.param(
        "m (float[B, 32] x, float[32] scale) => (float[B, 32] y) {"
        "  [bad] p = CumSum (, scale) [last] y = RMSNormalization (p, scale) }",
        [
            (
                "malformed",
                "bad",
                (
                    "input 0 of `CumSum` is absent, so that the element type of `p` is unknown, "
                    "which m, node `last` (RMSNormalization) needs"
                ),
            )
        ],
        id="a node that is broken, and may stay as it is",
    ),
    pytest.param(
        "m (float[B, 32] x, float[32] scale) => (float[B, 32] y) {"
        "  [bad] p = RMSNormalization (, scale) [last] y = RMSNormalization (p, scale) }",
        [("missing-input", "bad", "`RMSNormalization` requires its input `X`, which is absent")],
        id="a node that is broken, and is refused itself",
    ),
    pytest.param(
        "m (float[B, 32] x) => (string[B, 32] y) {"
        "  [odd] p = my.Odd (x) [text] y = StringConcat (p, p) }",
        [("new-operator", "text", "`StringConcat` came with opset 20")],
        id="a node that no type would help",
    ),
]


@each(("text", "expected"), REFUSED)
def test_a_refusal_names_the_cause_once(
    text: str, expected: list[tuple[str, str | None, str]]
) -> None:
    refused = _refused(_model(text))
    assert [(r.code, r.location.node, r.message) for r in refused] == expected


def test_a_node_that_is_refused_is_the_cause_of_its_own_rank() -> None:
    source = _model(
        "m (float[B, 32] x, int64[N] axes, int64[2] more) => (y) {"
        "  [grow] p = Unsqueeze (x, axes) [again] y = Unsqueeze (p, more) }"
    )
    what = "the axes are known at run time only, and their number is unknown"
    found = [(r.code, r.location.node, r.message) for r in _refused(source, opset=12)]
    assert found == [("dynamic-input", "grow", what)]


@pytest.mark.long
def test_the_broken_decoder_names_its_missing_inputs_only() -> None:
    path = Path("fixtures/models/native/BROKEN_gemma_static_raw_noopt.onnx")
    found = [(r.code, r.location.node) for r in _refused(ir.load(path))]
    assert found == [
        ("malformed", "model/CumSum_node_4"),
        ("missing-input", "model/Shape_node_7"),
        ("missing-input", "model/Unsqueeze_node_13"),
    ]


def _refused(model: ir.Model, opset: int = 18) -> list[Diagnostic]:
    with pytest.raises(Refused) as info:
        lower(model, opset=opset, verify=False)
    return list(info.value.report.reasons)
