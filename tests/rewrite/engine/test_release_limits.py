"""A target changes what its release needs, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import read
from onnx_kvtool.rewrite.report import Refused
from tests.cache_models import model, one_update, value

_NATIVE = Path(__file__).resolve().parents[3] / "fixtures" / "models" / "native"
B, H, L, S, D = 2, 3, 4, 5, 7


def _operators(lowered: ir.Model) -> Counter[str]:
    return Counter(node.op_type for _, _, node in nodes(lowered))


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "opset", "gone", "kept"),
    [
        pytest.param(
            "onnxruntime@1.20",
            21,
            {"TensorScatter", "Attention", "RMSNormalization", "RotaryEmbedding"},
            {"ScatterND", "Softmax"},
            id="an old release gets its own opset",
        ),
        pytest.param(
            "onnxruntime@1.23",
            23,
            {"TensorScatter", "Attention"},
            {"RMSNormalization", "RotaryEmbedding"},
            id="onnxruntime 1.23 has Attention but fails on rows without keys",
        ),
        pytest.param(
            "onnxruntime@1.24",
            24,
            {"TensorScatter", "Attention"},
            {"RMSNormalization", "RotaryEmbedding"},
            id="onnxruntime 1.24 lacks TensorScatter and ignores nonpad_kv_seqlen",
        ),
        pytest.param(
            "onnxruntime@1.26",
            24,
            {"Attention"},
            {"TensorScatter", "RMSNormalization", "RotaryEmbedding"},
            id="onnxruntime 1.26 has TensorScatter and aligns the causal limit wrongly",
        ),
        pytest.param(
            "openvino",
            24,
            {"TensorScatter"},
            {"Attention", "RMSNormalization", "RotaryEmbedding"},
            id="OpenVINO lacks TensorScatter alone",
        ),
        pytest.param(
            "tensorrt@10.15",
            24,
            {"TensorScatter", "Attention"},
            {"RMSNormalization", "RotaryEmbedding"},
            id="TensorRT takes neither rank 3 nor nonpad_kv_seqlen",
        ),
    ],
)
def test_a_decoder_keeps_what_the_release_runs_rightly(
    target: str, opset: int, gone: set[str], kept: set[str]
) -> None:
    lowered, report = lower(_NATIVE / "llama_static.onnx", target=target, verify=False)
    operators = _operators(lowered)
    assert report.target_opset == lowered.opset_imports[""] == opset
    assert not gone & set(operators)
    assert kept <= set(operators)


@pytest.mark.long
def test_a_release_that_runs_the_model_gets_it_unchanged() -> None:
    source = read(_NATIVE / "llama_static.onnx")
    lowered, report = lower(source, target="onnxruntime@1.28", verify=False)
    assert (report.lowered, report.target) == ([], "onnxruntime 1.28.0")
    assert _operators(lowered) == _operators(source)
    assert lowered.functions.keys() == source.functions.keys()


@pytest.mark.long
def test_openvino_gets_what_only_tensor_scatter_gives() -> None:
    path = _NATIVE / "llama_static.onnx"
    target, _ = lower(path, target="openvino", verify=False)
    only, _ = lower(path, only=["TensorScatter"], verify=False)
    assert ir.to_proto(target).graph == ir.to_proto(only).graph


def test_the_ir_version_is_one_that_the_release_loads() -> None:
    source = one_update([B, H, S, D], [B, H, L, D], batch=B, opset=24)
    source.ir_version = 13
    for target, expected in (("onnxruntime@1.15", 8), ("onnxruntime@1.23", 11), ("openvino", 12)):
        assert lower(ir.from_proto(source), target=target, verify=False)[0].ir_version == expected


@pytest.mark.long
def test_an_opset_below_that_of_the_release_can_be_asked_for() -> None:
    path = _NATIVE / "llama_static.onnx"
    lowered, _ = lower(path, target="onnxruntime@1.17", opset=13, verify=False)
    assert lowered.opset_imports[""] == 13


def test_a_model_below_the_opset_of_the_release_stays_there() -> None:
    source = model(
        [helper.make_node("Relu", ["x"], ["y"], name="relu")],
        [value("x", T.FLOAT, [B])],
        [value("y", T.FLOAT, [B])],
        opset=14,
    )
    lowered, report = lower(ir.from_proto(source), target="onnxruntime@1.20", verify=False)
    assert lowered.opset_imports[""] == 14
    assert report.lowered == []


def test_a_model_older_than_all_that_the_release_loads_is_refused() -> None:
    source = model(
        [helper.make_node("Relu", ["x"], ["y"], name="relu")],
        [value("x", T.FLOAT, [B])],
        [value("y", T.FLOAT, [B])],
        opset=6,
    )
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(source), target="onnxruntime@1.20", verify=False)
    assert [r.code for r in refused.value.report.refused] == ["old-opset"]


def _attention(opset: int = 24, *, rows: Any = L, inputs: str = "QKV", **attributes: Any) -> Any:
    """Return one Attention; `inputs` may name a mask (M) and valid lengths (N) besides Q, K, V."""
    names = [n if n in inputs else "" for n in ("Q", "K", "V", "M", "", "", "N")]
    while not names[-1]:
        names.pop()
    shapes = {"Q": [B, H, rows, D], "K": [B, H, S, D], "V": [B, H, S, D], "M": [B, 1, rows, S]}
    declared = [value(n, T.FLOAT, shapes[n]) for n in names if n and n != "N"]
    if "N" in inputs:
        declared.append(value("N", T.INT64, [B]))
    node = helper.make_node("Attention", names, ["Y"], name="attention", **attributes)
    return model([node], declared, [value("Y", T.FLOAT, None)], opset=opset, ir_version=12)


@pytest.mark.parametrize(
    ("target", "source", "stays"),
    [
        pytest.param("onnxruntime@1.27", {}, True, id="plain attention"),
        pytest.param("onnxruntime@1.27", {"is_causal": 1}, True, id="causal, four queries"),
        pytest.param(
            "onnxruntime@1.27", {"is_causal": 1, "rows": 1}, False, id="causal, one query"
        ),
        pytest.param(
            "onnxruntime@1.27", {"is_causal": 1, "rows": "L"}, False, id="causal, perhaps one query"
        ),
        pytest.param(
            "onnxruntime@1.27", {"inputs": "QKVM"}, False, id="a mask may leave a row without keys"
        ),
        pytest.param("onnxruntime@1.28", {"inputs": "QKVM"}, True, id="which 1.28 gets right"),
        pytest.param("onnxruntime@1.26", {"softcap": 2.0}, True, id="softcap without a mask"),
        pytest.param(
            "onnxruntime@1.26", {"softcap": 2.0, "is_causal": 1}, False, id="softcap before a mask"
        ),
        pytest.param(
            "onnxruntime@1.27", {"softcap": 2.0, "is_causal": 1}, True, id="fixed in 1.27"
        ),
        pytest.param(
            "onnxruntime@1.28", {"inputs": "QKVN", "is_causal": 1}, True, id="all that is native"
        ),
        pytest.param("tensorrt@10.15", {"inputs": "QKVM"}, True, id="4-D with a 4-D mask"),
        pytest.param("tensorrt@10.15", {"inputs": "QKVN"}, False, id="valid lengths in TensorRT"),
        pytest.param("tensorrt@10.15", {"softcap": 2.0}, False, id="softcap in TensorRT"),
    ],
)
def test_attention_stays_where_the_release_computes_it_rightly(
    target: str, source: dict[str, Any], stays: bool
) -> None:
    lowered, report = lower(ir.from_proto(_attention(**source)), target=target)
    assert (_operators(lowered)["Attention"] == 1) == stays
    assert report.verification.status == "equal"
    assert any("attention" in note.lower() for note in report.notes) != stays


@pytest.mark.parametrize("target", ["onnxruntime@1.28", "openvino"])
def test_a_window_becomes_a_mask_where_attention_itself_is_right(target: str) -> None:
    source = _attention(opset=25, left_window_size=1)
    lowered, report = lower(ir.from_proto(source), target=target, verify=False)
    (attention,) = (node for node in lowered.graph if node.op_type == "Attention")
    assert "left_window_size" not in attention.attributes
    assert attention.inputs[3] is not None
    assert [done.via for done in report.lowered] == ["mask"]


def test_a_default_that_the_release_does_not_know_is_left_out() -> None:
    source = _attention(opset=25, left_window_size=-1, right_window_size=-1)
    lowered, report = lower(ir.from_proto(source), target="onnxruntime@1.28", verify=False)
    (attention,) = lowered.graph
    assert not attention.attributes
    assert report.lowered == []
    assert any("removed" in note for note in report.notes)


def _scatter(reduction: str) -> ir.Model:
    node = helper.make_node(
        "ScatterND", ["x", "at", "new"], ["y"], name="scatter", reduction=reduction
    )
    inputs = [value("x", T.FLOAT, [S]), value("at", T.INT64, [2, 1]), value("new", T.FLOAT, [2])]
    return ir.from_proto(model([node], inputs, [value("y", T.FLOAT, [S])], opset=18, ir_version=8))


def test_tensorrt_gets_no_reduction_not_even_none() -> None:
    lowered, _ = lower(_scatter("none"), target="tensorrt@10.0", verify=False)
    (node,) = lowered.graph
    assert not node.attributes


def test_a_reduction_that_tensorrt_lacks_is_refused_with_its_reason() -> None:
    with pytest.raises(Refused) as refused:
        lower(_scatter("add"), target="tensorrt@10.0", verify=False)
    (refusal,) = refused.value.report.refused
    assert (refusal.code, refusal.lowest_opset) == ("target-limit", None)
    assert refusal.message == "tensorrt 10.0 supports no `reduction` of ScatterND"


def test_operators_that_tensorrt_does_not_import_are_refused_if_they_shall_stay() -> None:
    with pytest.raises(Refused) as refused:
        lower(
            "fixtures/models/genai/genai_llama_fp32_cpu.onnx",
            target="tensorrt",
            contrib="keep",
            verify=False,
        )
    report = refused.value.report
    assert {(one.code, one.message) for one in report.reasons} == {
        ("target-limit", f"tensorrt 11.0 imports no `{operator}`")
        for operator in (
            "SimplifiedLayerNormalization",
            "com.microsoft::GroupQueryAttention",
            "com.microsoft::SkipSimplifiedLayerNormalization",
        )
    }
    assert len(report.reasons) == 7


_STRANGERS = """
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    m (float[3, 3] x) => (float[3, 3] y) {
        [gelu] g = com.microsoft.FastGelu (x)
        [sample] y = com.microsoft.SampleOp (g)
    }
"""


def test_what_has_no_standard_form_is_refused_for_a_release_that_does_not_import_it() -> None:
    source = ir.from_proto(onnx.parser.parse_model(_STRANGERS))
    with pytest.raises(Refused) as refused:
        lower(source, target="tensorrt@10.1", verify=False)
    (found,) = refused.value.report.refused
    assert (found.code, found.location.node) == ("target-limit", "sample")
    assert found.message == (
        "tensorrt 10.1 imports no `com.microsoft::SampleOp`, and kvtool cannot write "
        "`com.microsoft::SampleOp` with operators of ONNX: it is a sample for who writes operators"
    )


def test_a_release_that_imports_an_operator_keeps_it() -> None:
    text = _STRANGERS.replace("SampleOp (g)", "Gelu (g)")
    for target, rules in (("tensorrt@10.1", ["fast_gelu", "gelu"]), ("onnxruntime@1.17", [])):
        source = ir.from_proto(onnx.parser.parse_model(text))
        lowered, report = lower(source, target=target, verify=False)
        assert [done.rule for done in report.lowered] == rules
        assert ("com.microsoft" in lowered.opset_imports) == (not rules)


@pytest.mark.long
def test_openvino_keeps_what_it_computes_as_onnxruntime_does() -> None:
    model, _ = lower(
        "fixtures/models/genai/genai_llama_fp32_cpu.onnx", target="openvino", verify=False
    )
    unknown = {node.op_type for node in model.graph if node.domain != ""}
    assert unknown == {"SkipSimplifiedLayerNormalization"}
    assert "SimplifiedLayerNormalization" not in {node.op_type for node in model.graph}


@pytest.mark.long
def test_functions_of_the_model_and_operators_of_plugins_are_not_refused() -> None:
    """mobius writes com.microsoft::SkipSimplifiedLayerNormalization as a function."""
    lower(_NATIVE / "llama_static.onnx", target="tensorrt@11.0", verify=False)
    text = """
        <ir_version: 10, opset_import: ["": 18, "plugin": 1, "com.microsoft": 1]>
        m (float[2] x, float s) => (float[2] y) {
            a = plugin.Make (x) q = com.microsoft.QuantizeLinear (a, s)
            y = com.microsoft.DequantizeLinear (q, s)
        }
    """
    lower(ir.from_proto(onnx.parser.parse_model(text)), target="tensorrt@10.1", verify=False)


def test_what_a_rule_emits_is_held_to_the_limits_too() -> None:
    """A circular cache needs Mod, which TensorRT before 8.5 lacks."""
    source = one_update([B, H, S, D], [B, H, L, D], batch=B, mode="circular", axis=2)
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(source), target="tensorrt@8.4", verify=False)
    (refusal,) = refused.value.report.refused
    assert refusal.code == "target-limit"
    assert "has no Mod" in refusal.message
    lower(ir.from_proto(source), target="tensorrt@8.5", verify=False)


@pytest.mark.long
def test_a_node_that_a_rule_emits_may_be_rewritten_again() -> None:
    """Attention becomes Softmax, whose float16 form onnxruntime 1.15 cannot load at opset 18."""
    path = _NATIVE / "llama_static_fp16.onnx"
    lowered, report = lower(path, target="onnxruntime@1.15")
    assert "Softmax" not in _operators(lowered)
    assert "ReduceMax" in _operators(lowered)
    assert report.verification.status == "equal"
    places = [done.location for done in report.lowered]
    assert len(places) == len(set(places))  # each node of the source is reported once
    lowered, _ = lower(path, target="onnxruntime@1.15", opset=17, verify=False)
    assert "Softmax" in _operators(lowered)


@pytest.mark.parametrize(
    ("operands", "gone"),
    [
        ("float[2] s, uint8[2] p) => (float[2, 3] z) {", True),
        ("uint8[2] p) => (float[2, 3] z) <float[2] s = {1, 2}> {", True),
        ("float[2] s) => (float[2, 3] z) <uint8[2] p = {1, 2}> {", True),
        ("float[3] o) => (float[2, 3] z) <float[2] s = {1, 2}, uint8[2] p = {1, 2}> {", False),
    ],
    ids=["both", "zero point", "scale", "neither"],
)
def test_a_scale_that_a_run_tells_is_dequantized_in_arithmetic(operands: str, gone: bool) -> None:
    text = f"g (uint8[2, 3] x, {operands} z = DequantizeLinear <axis: int = 0> (x, s, p) }}"
    source = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 19]> ' + text)
    lowered, report = lower(source, target="tract", verify=True)
    assert ("DequantizeLinear" in _operators(lowered)) != gone
    assert report.target_opset == 19


def test_tensor_scatter_in_the_one_form_that_tensorrt_takes_stays() -> None:
    source = one_update([B, H, S, D], [B, H, L, D], batch=B, axis=-2)
    lowered, _ = lower(ir.from_proto(source), target="tensorrt@10.15", verify=False)
    assert _operators(lowered) == {"TensorScatter": 1}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"mode": "circular"}, id="circular"),
        pytest.param({"axis": 1}, id="another axis"),
        pytest.param({"dtype": T.INT64}, id="another element type"),
        pytest.param({"write_indices": None}, id="no write_indices"),
    ],
)
def test_tensor_scatter_in_another_form_does_not(change: dict[str, Any]) -> None:
    shape = [B, S, H, D] if change.get("axis") == 1 else [B, H, S, D]
    rows = [B, L, H, D] if change.get("axis") == 1 else [B, H, L, D]
    source = one_update(shape, rows, batch=B, **{"axis": -2, **change})
    lowered, _ = lower(ir.from_proto(source), target="tensorrt@10.15", verify=False)
    assert "TensorScatter" not in _operators(lowered)


def test_axes_that_are_not_constant_are_refused_for_tensorrt() -> None:
    node = helper.make_node("Squeeze", ["x", "axes"], ["y"], name="squeeze")
    inputs = [value("x", T.FLOAT, [1, S]), value("axes", T.INT64, [1])]
    source = model([node], inputs, [value("y", T.FLOAT, None)], opset=17, ir_version=8)
    with pytest.raises(Refused, match="takes Squeeze with constant axes only"):
        lower(ir.from_proto(source), target="tensorrt@8.6", verify=False)
    constant = numpy_helper.from_array(np.array([0], np.int64), "axes")
    source.graph.initializer.append(constant)
    del source.graph.input[1]
    lower(ir.from_proto(source), target="tensorrt@8.6", verify=False)


def _normalization() -> ir.Model:
    node = helper.make_node("LpNormalization", ["x"], ["y"], name="norm")
    inputs, outputs = [value("x", T.FLOAT, [L, S])], [value("y", T.FLOAT, [L, S])]
    return ir.from_proto(model([node], inputs, outputs, opset=24))


def test_an_operator_without_a_kernel_for_its_new_version_keeps_the_old_one() -> None:
    lowered, report = lower(_normalization(), target="onnxruntime@1.23")
    assert (report.target_opset, lowered.opset_imports[""]) == (21, 21)
    assert report.notes[0] == (
        "opset 21: onnxruntime 1.23.2 has no kernel for LpNormalization at opset 22 and later"
    )


def test_but_not_where_the_opset_was_asked_for() -> None:
    with pytest.raises(Refused, match="has no kernel for LpNormalization at opset 22"):
        lower(_normalization(), target="onnxruntime@1.23", opset=22, verify=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"target": "onnxruntime@1.15", "opset": 19},
            "`opset` is 19, and onnxruntime 1.15.1 loads no opset above 18",
            id="an opset above the release's",
        ),
        pytest.param(
            {"target": "openvino", "only": ["TensorScatter"]},
            "`only` names the operators to replace, so that `target` cannot choose them",
            id="operators chosen twice",
        ),
    ],
)
def test_contradictions_are_wrong_usage(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        lower(_NATIVE / "llama_static.onnx", **arguments)
    assert error.value.message == message


@pytest.mark.long
def test_a_release_that_is_not_known_is_said_to_have_the_limits_of_another() -> None:
    path = _NATIVE / "llama_static.onnx"
    _, report = lower(path, target="onnxruntime@1.17.1", verify=False)
    assert (report.target, report.target_opset) == ("onnxruntime 1.17.1", 19)
    assert report.notes[0] == (
        "onnxruntime 1.17.1 has the limits of onnxruntime 1.16.3, the next known release below"
    )
