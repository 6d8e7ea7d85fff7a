"""Decoders of many exporters: caches of a fixed capacity and one Attention for each layer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.core.walk import nodes
from tests.grids import rest
from tests.rewrite.fixing.test_fixtures import assert_static
from tests.rewrite.raising.growing_steps import ROWS, differences

GROWING = Path(__file__).resolve().parents[4] / "fixtures" / "growing"

LAYERS = {
    "bart__dynamo_op18": 4,
    "bloom__optimum": 2,
    "falcon__dynamo_op18": 2,
    "falcon__optimum_op18": 2,
    "gemma2__optimum": 2,
    "gemma2_eager_dynamo18": 2,
    "gemma3__optimum_op18": 2,
    "gpt2__optimum_op18": 2,
    "gpt_neox__optimum": 2,
    "gptj__optimum": 2,
    "granite_eager__dynamo_op18": 2,
    "llama__optimum": 2,
    "llama_dynamic__dynamo_op18": 2,
    "llama_eager_dynamo18": 2,
    "mistral__optimum": 2,
    "mistral_swmask_ts17": 2,
    "mixtral__dynamo_op18": 2,
    "olmo2__dynamo_op20": 2,
    "opt__optimum_op18": 2,
    "phi3__optimum_op18": 2,
    "qwen2__dynamo_op18": 2,
    "qwen2__optimum_op18": 2,
    "qwen2_eager_fp16__ts_op17": 2,
    "qwen3__dynamo_op18": 2,
    "qwen3__optimum_op18": 2,
    "qwen3__optimum_op18__onnxsim": 2,
    "t5_decoder_merged__optimum": 8,
    "t5_decoder_with_past__optimum": 4,
}
"""How often each has attention; in the merged decoder once in each branch."""

CROSS = {
    "bart__dynamo_op18": 2,
    "t5_decoder_merged__optimum": 4,
    "t5_decoder_with_past__optimum": 2,
}
"""How much of it reads no cache that grows, but what an encoder gave."""

OFTEN = ("bart__dynamo_op18", "llama_eager_dynamo18")
"""One with an encoder, one without."""


def assert_each_layer_has_one(
    model: ir.Model, report: kv.RaiseReport, name: str, attention: AttentionChoice
) -> None:
    """Hold that each attention of a decoder has become one node, of the form that was asked for."""
    assert [str(refusal) for refusal in report.refused] == []
    # Masks of bloom, gptj and opt are put together by a ScatterND, and are no caches.
    assert {done.pattern for done in report.raised} == {"growing"}
    ops = [node.op_type for _, _, node in nodes(model)]
    assert len(report.attention) == ops.count("Attention") == LAYERS[name]
    first = 2 if "merged" in name else 0  # the branch without a past
    full = LAYERS[name] - CROSS.get(name, 0) - first if attention == "full" else 0
    assert [done.form for done in report.attention].count("full") == full


@cache
def raised(name: str, attention: AttentionChoice) -> tuple[ir.Model, kv.RaiseReport]:
    path = GROWING / f"{name}.onnx"
    return kv.raise_(path, capacity=ROWS, attention=attention, verify=False)


@pytest.mark.long
@pytest.mark.parametrize("name", [OFTEN[1], *rest(OFTEN[0])])
def test_each_layer_becomes_one_attention(name: str) -> None:
    """All of them are held so, and driven, in tests/test_growing_models.py."""
    auto, report = raised(name, "auto")
    assert_each_layer_has_one(auto, report, name, "auto")
    assert ir.to_proto(raised(name, "sliced")[0]) == ir.to_proto(auto)
    assert_each_layer_has_one(*raised(name, "full"), name, "full")


@pytest.mark.long
@pytest.mark.parametrize("attention", ["auto", "full"])
def test_steps_of_a_decoder_with_an_encoder_are_equal(attention: AttentionChoice) -> None:
    source = onnx.load(GROWING / f"{OFTEN[0]}.onnx")
    result = ir.to_proto(raised(OFTEN[0], attention)[0])
    onnx.checker.check_model(result, full_check=True)
    for batch in (1, 3):
        assert not differences(source, result, ROWS, batch, tolerance=2e-5)


def bloom(columns: str) -> onnx.ModelProto:
    """Return a decoder with a bias of head and distance whose mask has columns of their own."""
    model = onnx.load(GROWING / "bloom__optimum.onnx")
    mask = next(value for value in model.graph.input if value.name == "attention_mask")
    mask.type.tensor_type.shape.dim[1].dim_param = columns
    del model.graph.value_info[:]
    return model


@pytest.mark.exhaustive
def test_a_bias_is_as_long_as_the_keys_where_that_is_granted() -> None:
    granted = "covers-past:attention_mask"
    source = bloom("s89")
    _, report = kv.raise_(source, capacity=ROWS, verify=False)
    assert {one.code for one in report.refused} == {"sizes-unrelated"}
    model, report = kv.raise_(source, capacity=ROWS, assume=[granted])
    assert (report.refused, report.verification.status) == ([], "equal")
    assert all(f"assumed: {granted}" in one.proof for one in report.attention)
    assert not differences(source, ir.to_proto(model), ROWS, 3, tolerance=2e-5)
    # Columns that are called a length of tokens are drawn as such, so that the grant is false.
    with pytest.raises(kv.Refused, match="not equal to the source"):
        kv.raise_(bloom("new_tokens"), capacity=ROWS, assume=[granted])


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [{}, *rest({"s89": ROWS})], ids=str)
def test_a_bias_of_a_mask_is_static_where_its_length_is_granted(more: dict[str, int]) -> None:
    granted = "covers-past:attention_mask"
    sizes = {"batch_size": 2, "sequence_length": 3}
    options: dict[str, Any] = {"capacity": ROWS, "static": True, "dims": sizes | more}
    with pytest.raises(kv.Refused) as error:
        kv.raise_(bloom("s89"), **options, verify=False)
    assert {one.code for one in error.value.report.blocked} == {"dynamic-size"}
    assert all(granted in (one.help or "") for one in error.value.report.blocked)
    model, report = kv.raise_(bloom("s89"), **options, assume=[granted])
    assert_static(model)
    assert (report.refused, report.verification.status) == ([], "equal")
    assert all(granted in one.assumed for one in report.raised)
    if more:
        with pytest.raises(kv.Refused, match="the source does not run"):
            kv.raise_(bloom("new_tokens"), **(options | {"dims": sizes}), assume=[granted])


@pytest.mark.long
def test_dimensions_that_make_two_sizes_equal_are_advised() -> None:
    source = GROWING / "mistral_rolling__dynamo_op18.onnx"
    granted = ["rotated-rows"]
    for advice in ({"same-dim:s86=s21"}, {"same-dim:s86=s43"}, set()):
        _, report = kv.raise_(source, assume=granted, verify=False)
        found = {one.assumption for one in report.refused if one.code == "sizes-unrelated"}
        assert found == advice
        granted += found
    assert len(report.attention) == 2
