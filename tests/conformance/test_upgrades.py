"""Every single-operator case of the onnx wheel comes to opset 24, from its own and from older ones.

The older ones are made by lowering. The whole run takes about a minute.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from onnx_kvtool.ops.schema import NEWEST
from tests.conformance.corpus import cases
from tests.conformance.upgrades import raised
from tests.conformance.verdict import Verdict

pytestmark = pytest.mark.long

_TARGET = 24

_AT_LEAST: dict[int | None, int] = {None: 963, 11: 1130, 17: 1197}
"""Cases that are equal; fewer is a step back. A newer onnx has more cases, never fewer."""

_ONNX = 28
"""The newest opset of the onnx release whose cases were counted."""


_each = pytest.mark.parametrize(
    "via",
    [
        pytest.param(None, id="as it is"),
        pytest.param(17, id="from opset 17"),
        pytest.param(11, id="from opset 11", marks=pytest.mark.exhaustive),
    ],
)


@functools.cache
def _found(via: int | None) -> dict[str, Verdict]:
    judged = {case.name: raised(case, _TARGET, via) for case in cases()}
    return {name: verdict for name, verdict in judged.items() if verdict is not None}


@_each
@pytest.mark.needs_onnxruntime("1.29")
def test_no_case_is_wrong_or_refused(via: int | None) -> None:
    others = {n: v for n, v in _found(via).items() if v.status != "equal"}
    assert others == {}


@pytest.mark.skipif(NEWEST < _ONNX, reason="an older onnx has fewer cases")
@_each
@pytest.mark.needs_onnxruntime("1.29")
def test_as_many_cases_are_equal_as_were(via: int | None) -> None:
    count = Counter(verdict.status for verdict in _found(via).values())
    assert count["equal"] >= _AT_LEAST[via]
