"""Every single-operator case of the onnx wheel in our reference runtime and in onnx.reference."""

from __future__ import annotations

import pytest

from onnx_kvtool.runtime.kernels.table import MODULES
from tests.conformance.corpus import cases
from tests.conformance.reference import EXACT, family_of, reference_page, runs

pytestmark = pytest.mark.long

_each = pytest.mark.parametrize(
    "whole",
    [
        pytest.param(False, id="two of each operator"),
        pytest.param(True, id="all", marks=pytest.mark.exhaustive),
    ],
)

_OWN = sorted({module.__name__.split(".")[3] for module in MODULES})


@_each
@pytest.mark.parametrize("family", _OWN)
def test_every_case_of_a_kernel_of_our_own_passes(family: str, whole: bool) -> None:
    group = {name: run for name, run in runs(whole).items() if run.family == family}
    assert group
    assert {name: run.ours for name, run in group.items() if run.ours is not None} == {}


@_each
@pytest.mark.parametrize("family", EXACT)
def test_what_only_moves_or_rounds_is_right_bit_for_bit(family: str, whole: bool) -> None:
    assert [n for n, run in runs(whole).items() if run.family == family and not run.exact] == []


@_each
def test_at_least_as_many_cases_pass_as_with_onnx_reference(whole: bool) -> None:
    ours = {name for name, run in runs(whole).items() if run.ours is None}
    theirs = {name for name, run in runs(whole).items() if run.onnx is None}
    assert theirs - ours == set()
    assert len(ours) >= len(theirs)


def test_the_operators_of_caches_have_kernels_of_our_own() -> None:
    for case in cases():
        op_type = case.model.graph.node[0].op_type
        if "Scatter" in op_type or op_type in {"Attention", "Cast", "RotaryEmbedding"}:
            assert family_of(op_type) in _OWN, op_type


@_each
def test_the_page_counts_what_was_found(whole: bool) -> None:
    found = runs(whole)
    text = reference_page(found)
    assert f"the {len(found)} single-operator cases" in text
    for name, run in found.items():
        assert (f"`{name}`:" in text) == (run.ours is not None)
