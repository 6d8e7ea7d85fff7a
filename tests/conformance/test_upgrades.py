"""Every single-operator case of the onnx wheel comes to opset 24, from its own and from older ones.

The older ones are made by lowering. Two cases of each operator run by default; all take a minute.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from onnx_kvtool.ops.schema import NEWEST
from tests.conformance.corpus import cases, few
from tests.conformance.upgrades import raised
from tests.conformance.verdict import Verdict

pytestmark = pytest.mark.long

_TARGET = 24

_AT_LEAST: dict[int | None, int] = {None: 963, 11: 1130, 17: 1197}
"""Cases that are equal; fewer is a step back. A newer onnx has more cases, never fewer."""

_ONNX = 28
"""The newest opset of the onnx release whose cases were counted."""


_VIA = {"as it is": None, "from opset 17": 17, "from opset 11": 11}
_WHOLE = [
    pytest.param(via, True, id=f"{name}, all", marks=pytest.mark.exhaustive)
    for name, via in _VIA.items()
]
_FEW = [
    pytest.param(None, False, id="as it is, two of each operator"),
    pytest.param(17, False, id="from opset 17, one of each operator"),
]


@functools.cache
def _found(via: int | None, whole: bool) -> dict[str, Verdict]:
    some = cases() if whole else few(both=via is None)
    judged = {case.name: raised(case, _TARGET, via) for case in some}
    return {name: verdict for name, verdict in judged.items() if verdict is not None}


@pytest.mark.parametrize(("via", "whole"), [*_FEW, *_WHOLE])
@pytest.mark.needs_onnxruntime("1.29")
def test_no_case_is_wrong_or_refused(via: int | None, whole: bool) -> None:
    others = {n: v for n, v in _found(via, whole).items() if v.status != "equal"}
    assert others == {}


@pytest.mark.skipif(NEWEST < _ONNX, reason="an older onnx has fewer cases")
@pytest.mark.parametrize(("via", "whole"), _WHOLE)
@pytest.mark.needs_onnxruntime("1.29")
def test_as_many_cases_are_equal_as_were(via: int | None, whole: bool) -> None:
    count = Counter(verdict.status for verdict in _found(via, whole).values())
    assert count["equal"] >= _AT_LEAST[via]
