"""A mask that may hide padding besides later keys: kept, or left out where that is granted."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.core.walk import nodes
from tests.grids import part

pytestmark = pytest.mark.long

GROWING = Path(__file__).resolve().parents[4] / "fixtures" / "growing"
GRANTED = "unpadded:attention_mask"

MASKS = {
    "bart__dynamo_op18": ["causal", "causal", "none", "none"],  # cross attention comes behind
    "falcon__dynamo_op18": ["causal", "causal"],
    "gemma2__optimum": ["kept", "causal"],
    "gemma3__optimum_op18": ["kept", "causal"],
    "gpt2__optimum_op18": ["causal", "causal"],
    "llama__optimum": ["causal", "causal"],
    "mistral__optimum": ["kept", "kept"],
    "mixtral__dynamo_op18": ["causal", "causal"],
    "phi3__optimum_op18": ["causal", "causal"],
    "qwen3__optimum_op18__onnxsim": ["causal", "causal"],
}
"""What becomes of the mask of each Attention; windows stay."""


@pytest.mark.long
@part(20)
@pytest.mark.parametrize("attention", ["auto", "full"])
@pytest.mark.parametrize("name", list(MASKS))
def test_what_hides_padding_alone_is_left_out_where_none_is_granted(
    name: str, attention: AttentionChoice
) -> None:
    path = GROWING / f"{name}.onnx"
    raised, report = kv.raise_(path, capacity=16, attention=attention, assume=[GRANTED])
    assert [done.mask for done in report.attention] == MASKS[name]
    said = [f"assumed: {GRANTED}" in done.proof for done in report.attention]
    assert said == [mask == "causal" for mask in MASKS[name]]
    masked = [
        len(node.inputs) > 3 and node.inputs[3] is not None
        for _, _, node in nodes(raised)
        if node.op_type == "Attention"
    ]
    assert sorted(masked) == sorted(mask == "kept" for mask in MASKS[name])
    assert report.verification.status == "equal"
    if "causal" in MASKS[name]:
        text = "run without padding: `attention_mask` is taken to be 1 throughout"
        assert text in (report.verification.detail or "")


@pytest.mark.exhaustive
def test_it_goes_with_fixed_sizes() -> None:
    path = GROWING / "llama__optimum.onnx"
    dims = {"batch_size": 2, "sequence_length": 1}
    _, report = kv.raise_(path, capacity=16, assume=["unpadded"], dims=dims, static=True)
    assert {(done.form, done.mask) for done in report.attention} == {("full", "causal")}
    assert "assumed: unpadded" in report.attention[0].proof
    assert report.verification.status == "equal"


def test_the_report_names_the_assumption_that_would_do() -> None:
    _, report = kv.raise_(GROWING / "falcon__dynamo_op18.onnx", capacity=16, verify=False)
    assert [done.mask for done in report.attention] == ["kept", "kept"]
    text = "`--assume unpadded:attention_mask` removes it"
    assert all(text in done.proof for done in report.attention)


@pytest.mark.exhaustive
def test_a_window_is_no_padding() -> None:
    _, report = kv.raise_(GROWING / "mistral__optimum.onnx", capacity=16, verify=False)
    assert not any("unpadded" in line for done in report.attention for line in done.proof)


def test_a_padded_batch_tells_the_two_apart() -> None:
    path = GROWING / "falcon__dynamo_op18.onnx"
    raised, _ = kv.raise_(path, capacity=16, assume=[GRANTED], verify=False)
    report = kv.verify(path, raised)
    assert report.status == "different"
