"""Fingerprints survive what does not change a finding."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from onnx_kvtool.core.model import deserialize
from onnx_kvtool.lint.engine import lint
from onnx_kvtool.lint.table import RULES

BEGIN = """
    <ir_version: 10, opset_import: ["": 24]>
    decoder (bool full, float[2, 3, 7, 5] past, float[2, 3, 1, 5] update)
        => (float[2, 3, 7, 5] a, float[2, 3, 7, 5] b, float[2, 3, 7, 5] c) {
"""
NAMED = '[cache] a = TensorScatter <mode: string = "ring"> (past, update)'
UNNAMED = 'b = TensorScatter <mode: string = "wrap"> (past, update)'
NESTED = """
    c = If (full) <
        then_branch = one () => (float[2, 3, 7, 5] x) {
            x = TensorScatter <mode: string = "none"> (past, update)
        },
        else_branch = two () => (float[2, 3, 7, 5] y) { y = Identity (past) }
    >
"""
NOISE = "noise = Relu (update)"


def fingerprints(*nodes: str) -> set[str]:
    text = BEGIN + "\n".join(nodes) + "}"
    model = deserialize(onnx.parser.parse_model(text).SerializeToString())
    found = lint(model, [RULES["KV003"]])
    marks = {finding.fingerprint for finding in found}
    assert len(marks) == len(found) == 3
    assert all(len(mark) == 32 for mark in marks)
    return marks


PLAIN = (NAMED, UNNAMED, NESTED)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param((NESTED, UNNAMED, NAMED), id="nodes in another order"),
        pytest.param((NOISE, *PLAIN), id="a node in front"),
        pytest.param((NAMED.replace('"ring"', '"loop"'), UNNAMED, NESTED), id="another message"),
    ],
)
def test_fingerprints_stay(nodes: tuple[str, ...]) -> None:
    assert fingerprints(*nodes) == fingerprints(*PLAIN)


def test_a_renamed_node_is_another() -> None:
    renamed = fingerprints(NAMED.replace("[cache]", "[layer]"), UNNAMED, NESTED)
    assert len(renamed & fingerprints(*PLAIN)) == 2


def test_findings_at_one_place_are_numbered() -> None:
    twice = (NAMED, UNNAMED.replace("b =", "[cache] b ="), NESTED)
    assert len(fingerprints(*twice) & fingerprints(*PLAIN)) == 2
