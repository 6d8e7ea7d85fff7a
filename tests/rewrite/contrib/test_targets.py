"""A release that does not know an operator of onnxruntime gets none, and `check` says the same."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnx_kvtool.core.model import deserialize
from onnx_kvtool.lint.engine import lint
from onnx_kvtool.lint.table import RULES
from onnx_kvtool.ops.contrib_schema import CONTRIB_SCHEMAS
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.targets.target import Release, find_target, releases

STRANGERS = [
    *CONTRIB_SCHEMAS,
    ("com.microsoft", "Inverse"),
    ("com.microsoft.nchwc", "Conv"),
    ("com.ms.internal.nhwc", "MaxPool"),
    ("", "ScaledTanh"),
]
OTHERS = [("", "Neg"), ("plugin", "Gelu"), ("com.microsoft", "Local")]


def model() -> onnx.ModelProto:
    """Return a model of opset 16 with a node of each operator, called as that."""
    nodes = [
        helper.make_node(op, ["x"], [f"y{i}"], f"{domain}::{op}", domain=domain)
        for i, (domain, op) in enumerate([*STRANGERS, *OTHERS])
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output]
    domains = {domain for domain, _ in (*STRANGERS, *OTHERS) if domain}
    imports = [helper.make_opsetid("", 16), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    local = helper.make_function(
        "com.microsoft", "Local", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])],
        [helper.make_opsetid("", 16)],
    )  # fmt: skip
    graph = helper.make_graph(nodes, "g", [x], outputs)
    return helper.make_model(graph, opset_imports=imports, functions=[local], ir_version=8)


NEWEST = [r for r in releases() if r.max_opset is not None and r.max_opset >= 16]


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
    assert said <= touched
    if target.release.contrib is None:
        assert not said
    else:
        known = target.release.contrib
        lacking = {
            f"{d}::{op}" for d, op in STRANGERS if d not in ("", "com.microsoft") or op not in known
        }
        assert said == lacking


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
