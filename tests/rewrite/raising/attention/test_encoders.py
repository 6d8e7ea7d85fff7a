"""Encoders have attention and no cache: it becomes one node, which opset 23 has as well."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.walk import nodes
from tests.grids import thinned

pytestmark = pytest.mark.long

ENCODERS = Path(__file__).resolve().parents[4] / "fixtures" / "encoders"

LAYERS = {
    "segformer": 4,
    "ast": 1,
    "bert": 1,
    "swin": 2,
    "deit": 1,
    "vit": 1,
    "wav2vec2": 1,
    "yolos": 1,
}
"""How often each has attention."""


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(sorted(LAYERS, key="segformer".__eq__), 12))
def test_its_attention_is_one_node_at_24_and_at_23(name: str) -> None:
    path = ENCODERS / f"{name}.onnx"
    raised, report = kv.raise_(path)
    assert (report.raised, report.refused) == ([], [])
    assert report.verification.status == "equal"
    lowered, again = kv.lower(raised, opset=23)
    assert again.verification.status == "equal"
    for model in (raised, lowered):
        ops = Counter(node.op_type for _, _, node in nodes(model))
        assert (ops["Attention"], ops["Softmax"]) == (LAYERS[name], 0)
    assert kv.verify(path, lowered, cases=1).status == "equal"


def test_sizes_that_may_be_0_are_named() -> None:
    """Pictures may be too small for a patch, and what is proven must hold for these as well."""
    with mock.patch("onnx_kvtool.shapes.proven_attention._MOST_RUNS", 0):
        _, report = kv.raise_(ENCODERS / "swin.onnx", verify=False)
    assert not report.attention
    assert {refusal.code for refusal in report.refused} == {"may-be-empty"}
    assert "`div(width, 4)`" in report.refused[0].message
