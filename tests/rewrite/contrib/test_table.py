"""Every rule for an operator of onnxruntime has a property test in this folder."""

from __future__ import annotations

import ast
from pathlib import Path

from onnx_kvtool.ops.contrib_schema import CONTRIB_SCHEMAS
from onnx_kvtool.rewrite.contrib.table import CONTRIB_RULES
from tests.grids import each


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


def test_every_operator_that_is_known_has_a_rule() -> None:
    assert CONTRIB_SCHEMAS.keys() == CONTRIB_RULES.keys()
