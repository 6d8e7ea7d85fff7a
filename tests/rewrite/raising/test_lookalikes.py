"""Odd but sound updates: raised or not, the cache is the same on every input that is drawn."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from tests.grids import rest
from tests.rewrite.raising.brute_force import compare, in_all_graphs
from tests.rewrite.raising.lookalikes.case import Case
from tests.rewrite.raising.lookalikes.table import CASES


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
@pytest.mark.parametrize("count", [10, *rest(None)], ids=["10 draws", "all draws"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_cache_is_the_same(case: Case, count: int | None) -> None:
    source = onnx.parser.parse_model(case.text)
    onnx.checker.check_model(source, full_check=True)

    model, report = kv.raise_(ir.from_proto(source), assume=case.assume, verify=False)

    if case.count is not None:
        assert [str(refusal) for refusal in report.refused] == []
        assert len(report.raised) == case.count
    if not report.raised:
        return
    result = onnx.load_from_string(serialize(model))
    onnx.checker.check_model(result, full_check=True)
    written = sum(node.op_type == "TensorScatter" for node in in_all_graphs(result))
    assert written == len(report.raised)
    starts = [] if case.in_body else [done.write_indices for done in report.raised]
    draws = case.draws if count is None else dataclasses.replace(case.draws, count=count)
    found = compare(source, result, draws, starts)
    assert found.faults == []
    assert found.compared
