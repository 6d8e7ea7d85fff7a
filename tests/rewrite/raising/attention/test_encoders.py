"""Encoders have attention and no cache: it becomes one node, which opset 23 has as well."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.walk import nodes
from tests.grids import thinned

ENCODERS = Path(__file__).resolve().parents[4] / "fixtures" / "encoders"

LAYERS = {"ast": 1, "bert": 1, "deit": 1, "segformer": 4, "vit": 1, "yolos": 1}
"""How often each has attention."""


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(list(LAYERS), 3))
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


@pytest.mark.parametrize("name", ["swin", "wav2vec2"])
def test_sizes_that_may_be_0_are_named(name: str) -> None:
    """Their pictures and sounds may be too short for a window, as far as the file says."""
    _, report = kv.raise_(ENCODERS / f"{name}.onnx", verify=False)
    assert not report.attention
    assert {refusal.code for refusal in report.refused} == {"may-be-empty"}
