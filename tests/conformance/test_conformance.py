"""Every single-operator case of the onnx wheel, at every target: equal, or refused with a reason.

Of each operator two cases run by default at 18, and one at 9; a hundred cases take a second or so.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import onnx_ir as ir
import pytest

from onnx_kvtool.ops.legality import examine
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from tests.conformance.corpus import cases, collected, few
from tests.conformance.summary import TARGETS, page, verdicts
from tests.conformance.verdict import Verdict

pytestmark = pytest.mark.long

_AT_LEAST = {9: 1153, 10: 1147, 11: 1137, 13: 916, 17: 785, 18: 676, 21: 666, 23: 382}
"""Cases that are equal; fewer is a step back. A newer onnx has more cases, never fewer."""

_ONNX = 28
"""The newest opset of the onnx release whose cases were counted."""

# On the way to 9 a case passes 10; to 11 and above it goes in one step, and passes none.
_WHOLE = [
    pytest.param(n, True, id=f"{n}, all", marks=pytest.mark.exhaustive) for n in TARGETS if n != 10
]
_FEW = [pytest.param(18, False, id="18, two of each operator")]
_each = pytest.mark.parametrize(("target", "whole"), [*_FEW, *_WHOLE])


@functools.cache
def _found(target: int, whole: bool) -> dict[str, Verdict]:
    return verdicts(target, cases() if whole else few())


def test_every_target_is_looked_at() -> None:
    assert sorted(_AT_LEAST) == sorted(TARGETS)


@_each
def test_no_case_is_wrong(target: int, whole: bool) -> None:
    wrong = {name: v.detail for name, v in _found(target, whole).items() if v.status == "wrong"}
    assert wrong == {}


@pytest.mark.skipif(NEWEST < _ONNX, reason="an older onnx has fewer cases")
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize(("target", "whole"), _WHOLE)
def test_as_many_cases_are_equal_as_were(target: int, whole: bool) -> None:
    equal = [name for name, v in _found(target, whole).items() if v.status == "equal"]
    assert len(equal) >= _AT_LEAST[target]


@_each
def test_no_case_leaves_the_portable_dialect(target: int, whole: bool) -> None:
    left = {name: v.departures for name, v in _found(target, whole).items() if v.departures}
    assert left == {}


@_each
def test_every_refusal_says_why(target: int, whole: bool) -> None:
    refusals = _refused(target, whole)
    assert refusals
    for name, verdict in refusals.items():
        assert verdict.refusals, name
        for refusal in verdict.refusals:
            assert refusal.code, name
            assert refusal.message, name
            assert not refusal.message.endswith("."), name
            assert refusal.location.op, name


@_each
def test_the_lowest_opset_of_a_refusal_is_the_lowest_that_works(target: int, whole: bool) -> None:
    """At the opset that its refusals name a case is not refused; just below it is."""
    by_name = {case.name: case for case in cases()}
    for name, verdict in _refused(target, whole).items():
        named = [refusal.lowest_opset for refusal in verdict.refusals]
        known = [opset for opset in named if opset is not None]
        assert len(known) == len(named), name
        lowest = max(known)
        assert lowest > target, name
        assert not legalise(ir.from_proto(by_name[name].model), lowest, Options()).refused, name
        below = lowest - 1
        assert legalise(ir.from_proto(by_name[name].model), below, Options()).refused, name


def test_the_page_counts_what_was_found() -> None:
    found: Mapping[int, Mapping[str, Verdict]] = {18: _found(18, False)}
    text = page(found)
    equal = sum(v.status == "equal" for v in _found(18, False).values())
    assert f"| 18 | {equal + len(_refused(18, False))} | {equal} |" in text
    assert "## Refused at 18" in text


def _refused(target: int, whole: bool) -> dict[str, Verdict]:
    return {name: v for name, v in _found(target, whole).items() if v.status == "refused"}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # onnx computes its cases with overflows
def test_the_backend_cases_of_onnx_are_legal() -> None:
    """No false alarm on a model that onnx itself ships."""
    seen = 0
    for case in collected():
        model: ir.Model = ir.from_proto(case.model)
        opset = model.opset_imports.get("", 0)
        for node in model.graph:
            if node.domain == "" and opset:
                seen += 1
                problems = list(examine(node, opset))
                assert not problems, (case.name, problems)
    assert seen > 1500
