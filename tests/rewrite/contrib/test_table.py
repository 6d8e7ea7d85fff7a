"""Every operator of onnxruntime has a rule, or a reason why not, and every rule a property test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.contrib.without import WITHOUT_A_RULE
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.ops.contrib import OperatorName, published
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.targets.target import find_target
from tests.grids import each
from tests.lint.cases import lint


def named_in_properties() -> frozenset[str]:
    """Return the strings in functions of this folder that draw their cases, or compare them."""
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and (
                node.name == "demand_same" or any(map(is_given, node.decorator_list))
            ):
                found |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
    return frozenset(text for text in found if isinstance(text, str))


def is_given(decorator: ast.expr) -> bool:
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "given"
    )


NAMES = named_in_properties()


@each("key", list(CONTRIB_RULES))
def test_a_rule_has_a_property_test(key: tuple[str, str]) -> None:
    assert key[1] in NAMES


@each("key", list(CONTRIB_RULES))
def test_a_rule_has_a_producer_of_a_release(key: tuple[str, str]) -> None:
    assert re.search(r"\w.* \d+\.\d+", CONTRIB_RULES[key].producer)


def test_an_operator_has_a_schema_if_it_has_a_rule() -> None:
    written = {name for name, line in published().items() if "inputs" in line}
    assert written == CONTRIB_RULES.keys(), "run `python -m tests.ops.contrib_schemas`"


def test_every_operator_of_onnxruntime_has_a_rule_or_a_reason() -> None:
    assert not CONTRIB_RULES.keys() & WITHOUT_A_RULE.keys()
    assert CONTRIB_RULES.keys() | WITHOUT_A_RULE.keys() == published().keys()


def of_one(domain: str, op_type: str, opset: int) -> onnx.ModelProto:
    """Return a model of one node, which no schema knows at the opset."""
    node = helper.make_node(op_type, ["x"], ["y"], "n", domain=domain)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")])
    imports = {"": opset} | ({domain: 1} if domain else {})
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*pair) for pair in imports.items()], ir_version=8
    )


@pytest.mark.long
@each("key", list(WITHOUT_A_RULE))
def test_an_operator_without_a_rule_is_refused_by_its_name(key: OperatorName) -> None:
    proto, name = of_one(*key, 16), "::".join(filter(None, key))
    outcome = legalise(ir.from_proto(proto), 11, Options(), contrib="standard")
    (found,) = outcome.refused
    assert found.code == "no-standard-form"
    assert f"`{name}`" in found.message
    assert found.message.endswith(WITHOUT_A_RULE[key])
    target = find_target("openvino")
    (said,) = lint(deserialize(proto.SerializeToString()), [RULES["KV308"]], [target])
    assert name in said.message


NAMES_OF_DOMAIN = [
    (name, opset)
    for domain, name in (*CONTRIB_RULES, *WITHOUT_A_RULE)
    for opset in (11, 16)
    if domain and op_facts(name, opset) is None
]


@pytest.mark.long
@each(("op_type", "opset"), NAMES_OF_DOMAIN)
def test_a_name_of_onnxruntimes_domain_is_no_operator_of_the_default_one(
    op_type: str, opset: int
) -> None:
    """onnxruntime itself says that it is not registered there."""
    outcome = legalise(ir.from_proto(of_one("", op_type, opset)), 9, Options(), contrib="standard")
    (found,) = outcome.refused
    assert f"`{op_type}`" in found.message
