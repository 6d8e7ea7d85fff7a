"""A release that does not know an operator of onnxruntime gets none, and `check` says the same."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.targets.limits import highest_opset
from onnx_kvtool.targets.release import Release
from onnx_kvtool.targets.releases import releases
from onnx_kvtool.targets.target import find_target
from tests.grids import each, part
from tests.lint.cases import lint

UNKNOWN = [
    *CONTRIB_RULES,
    ("com.microsoft", "SampleOp"),
    ("com.microsoft.nchwc", "Conv"),
    ("com.ms.internal.nhwc", "MaxPool"),
    ("", "GRUUnit"),
]
OTHERS = [("", "Neg"), ("plugin", "Gelu"), ("com.microsoft", "Local")]


def model() -> onnx.ModelProto:
    """Return a model of opset 16 with a node of each operator, called as that."""
    nodes = [
        helper.make_node(op, ["x"], [f"y{i}"], f"{domain}::{op}", domain=domain)
        for i, (domain, op) in enumerate([*UNKNOWN, *OTHERS])
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output]
    domains = {domain for domain, _ in (*UNKNOWN, *OTHERS) if domain}
    imports = [helper.make_opsetid("", 16), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    local = helper.make_function(
        "com.microsoft", "Local", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])],
        [helper.make_opsetid("", 16)],
    )  # fmt: skip
    graph = helper.make_graph(nodes, "g", [x], outputs)
    return helper.make_model(graph, opset_imports=imports, functions=[local], ir_version=8)


NEWEST = [r for r in releases() if r.max_opset is not None and r.max_opset >= 16]


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("release", NEWEST, ids=str)
def test_lower_and_check_say_the_same_of_each_operator(release: Release) -> None:
    target = find_target(str(release).replace(" ", "@"))
    proto = model()
    findings = lint(deserialize(proto.SerializeToString()), [RULES["KV308"]], [target])
    said = {f.location.node for f in findings if "imports no" in f.message}
    kept = legalise(ir.from_proto(proto), 16, Options(), release=target.release, contrib="keep")
    refused = {f.location.node for f in kept.refused if "imports no" in f.message}
    assert said == refused
    asked = legalise(ir.from_proto(proto), 16, Options(), release=target.release)
    touched = {d.location.node for d in asked.lowered} | {f.location.node for f in asked.refused}
    # What is no operator of onnxruntime is judged in models alone that nothing else is refused of.
    assert said - {"::".join(other) for other in OTHERS} <= touched
    for domain, op in UNKNOWN:
        assert (f"{domain}::{op}" in said) != target.release.imports(domain, op)


PARTS: dict[str, tuple[str, str, int, dict[str, int], str]] = {
    "an input that came later": (
        "1.17.3", "GroupQueryAttention", 11, {}, "with 9 inputs at most, here it has 11"
    ),
    "an attribute that came later": (
        "1.17.3", "RotaryEmbedding", 4, {"is_packed_batching": 0},
        "without its attribute `is_packed_batching`",
    ),
    "a width that came later": (
        "1.20.1", "MatMulNBits", 3, {"bits": 8, "K": 16, "N": 2, "block_size": 16},
        "with a `bits` of `4`, here it is `8`",
    ),
    "blocks that came later": (
        "1.18.1", "SparseAttention", 9, {"num_heads": 2, "kv_num_heads": 2}, "imports no"
    ),
    "experts that came later": ("1.22.1", "MoE", 6, {"k": 2}, "imports no"),
    "experts that were computed wrongly": ("1.23.2", "QMoE", 8, {"k": 2}, "imports no"),
    "experts of a width that came later": (
        "1.26.0", "QMoE", 8, {"expert_weight_bits": 2},
        "with a `expert_weight_bits` of `4` or `8`, here it is `2`",
    ),
    "an operator that came later": ("1.19.2", "GatherBlockQuantized", 3, {}, "imports no"),
    "windows without a kernel for CPUs": ("1.19.2", "UnfoldTensor", 1, {"size": 2}, "imports no"),
    "an input that came later to attention": (
        "1.21.1", "MultiHeadAttention", 9, {"num_heads": 2}, "with 8 inputs at most, here it has 9"
    ),
    "an input that was read wrongly": (
        "1.30.0", "MultiHeadAttention", 9, {"num_heads": 2},
        "of `com.microsoft::MultiHeadAttention` with `past_sequence_length` wrongly",
    ),
    "an input of none that was read wrongly": (
        "1.22.1", "DecoderMaskedMultiHeadAttention", 8, {"num_heads": 2},
        "with `past_sequence_length` wrongly",
    ),
    "a mask that was read wrongly": (
        "1.20.1", "DecoderMaskedMultiHeadAttention", 4, {"num_heads": 2},
        "with `mask_index` wrongly",
    ),
}  # fmt: skip


@each("name", [*PARTS])
def test_a_form_that_came_later_is_no_operator_of_the_release(name: str) -> None:
    version, op, count, attributes, words = PARTS[name]
    names = [f"i{i}" for i in range(count)]
    node = helper.make_node(op, [*names, ""], ["y"], "n", domain="com.microsoft", **attributes)
    proto = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [onnx.ValueInfoProto(name=i) for i in names],
            [onnx.ValueInfoProto(name="y")],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )
    for release, is_lacking in ((version, True), ("1.32.0", False)):
        target = find_target(f"onnxruntime@{release}")
        found = lint(deserialize(proto.SerializeToString()), [RULES["KV308"]], [target])
        kept = legalise(ir.from_proto(proto), 17, Options(), release=target.release, contrib="keep")
        for messages in ([f.message for f in found], [f.message for f in kept.refused]):
            assert [words in message for message in messages] == [True] * is_lacking


@pytest.mark.parametrize("runtime", ["onnxruntime-node", "onnxruntime-web"])
def test_a_package_of_npm_knows_what_the_release_of_its_version_knows(runtime: str) -> None:
    release = find_target(runtime).release
    same = find_target(f"onnxruntime@{release.version}").release
    assert release.narrower == same.narrower
    assert release.narrower["GroupQueryAttention"].inputs == 16


@pytest.mark.long
@each("op", ["MatMulNBits", "GatherBlockQuantized", "QMoE", "DequantizeLinear"])
def test_weights_of_4_bits_lower_the_opset_of_a_release_without_them(op: str) -> None:
    domain = "" if op == "DequantizeLinear" else "com.microsoft"
    node = helper.make_node(op, ["a", "b", "c"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=10)
    target = find_target("tract")
    opset, reasons = highest_opset(ir.from_proto(proto), target.release, target.max_opset)
    assert opset == 20
    assert "DequantizeLinear" in reasons[0]


@pytest.mark.parametrize("release", ["onnxruntime@1.17.3", "openvino"])
def test_imports_that_no_node_uses_are_left_out(release: str) -> None:
    """onnxruntime's optimiser imports all that it knows, and older releases refuse the versions."""
    node = helper.make_node("Neg", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    domains = {"": 18, "ai.onnx.ml": 5, "com.microsoft.nchwc": 1, "vendor": 1}
    imports = [helper.make_opsetid(*pair) for pair in domains.items()]
    proto = helper.make_model(
        helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=8
    )
    made = ir.from_proto(proto)
    target = find_target(release)
    legalise(made, 18, Options(), release=target.release)
    assert set(made.opset_imports) == {""}
    other = ir.from_proto(proto)
    legalise(other, 17, Options())
    assert set(other.opset_imports) == {""}
