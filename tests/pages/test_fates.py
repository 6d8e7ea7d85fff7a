"""What the pages say becomes of an operator is what becomes of onnx's cases of it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_kvtool.ops.schema import same_version
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from tests.conformance.corpus import cases
from tests.pages.operator_facts import LAST, fates

_TARGETS = (11, 13, 17, 18, 21)


def told(op: str, target: int) -> str:
    """Return what the page of an operator says of one opset."""
    for span, text in fates(op):
        first, _, last = span.partition(" to ")
        if int(first) >= target >= int(last or first):
            return text
    raise AssertionError(f"the page of {op} leaves out opset {target}")


def contradiction(text: str, rules: set[str] | None) -> bool:
    """Return whether a case was lowered by these rules (None: refused) against the page."""
    if rules is None:
        return text == "stays"
    if not rules:
        return "stays" not in text
    words = {"function_body": "the function body", "element_type": "casts to a type"}
    return not any(words.get(rule, f"rule `{rule}`") in text for rule in rules)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", _TARGETS)
def test_pages_agree_with_what_lower_does(target: int) -> None:
    wrong, judged = [], 0
    for case in cases():
        op = case.model.graph.node[0].op_type
        newest = same_version(op, case.opset, LAST)
        if case.opset <= target or not newest or len(case.model.graph.node) != 1:
            continue
        judged += 1
        outcome = legalise(ir.from_proto(case.model), target, Options())
        rules = None if outcome.refused else {done.rule for done in outcome.lowered}
        if contradiction(told(op, target), rules):
            wrong.append((case.name, told(op, target), rules))
    assert wrong == []
    assert judged > 300
