"""The metadata `kvtool.ignore` suppresses what lies where it stands, and is reported if idle."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.lint.engine import KEY, look
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize
from tests.grids import each

MODEL = """
    <ir_version: 10, opset_import: ["": 24, "own": 1]>
    decoder (bool full, float[2, 3, 7, 5] past, float[2, 3, 1, 5] update)
        => (float[2, 3, 7, 5] present, float[2, 3, 7, 5] other) {
        [choice] present = If (full) <
            then_branch = wrapped () => (float[2, 3, 7, 5] there) {
                [inner] there = TensorScatter <mode: string = "wrap"> (past, update)
            },
            else_branch = plain () => (float[2, 3, 7, 5] here) {
                here = TensorScatter <mode: string = "ring"> (past, update)
            }
        >
        [last] other = own.Write (past, update)
    }
    <domain: "own", opset_import: ["": 24]>
    Write (old, rows) => (new) {
        [body] new = TensorScatter <mode: string = "none"> (old, rows)
    }
"""
BRANCHES = ["inner", "#0"]


def model() -> ir.Model:
    return deserialize(onnx.parser.parse_model(MODEL).SerializeToString())


def on_model(model: ir.Model) -> dict[str, str]:
    return model.metadata_props


def on_graph(model: ir.Model) -> dict[str, str]:
    return model.graph.metadata_props


def on_choice(model: ir.Model) -> dict[str, str]:
    return model.graph[0].metadata_props


def on_last(model: ir.Model) -> dict[str, str]:
    return model.graph[1].metadata_props


def on_inner(model: ir.Model) -> dict[str, str]:
    return model.graph[0].attributes["then_branch"].as_graph()[0].metadata_props


def on_branch(model: ir.Model) -> dict[str, str]:
    return model.graph[0].attributes["else_branch"].as_graph().metadata_props


def on_function(model: ir.Model) -> dict[str, str]:
    return next(iter(model.functions.values())).metadata_props


def found(model: ir.Model, *codes: str) -> tuple[list[Finding], int]:
    return look(model, [RULES[code] for code in codes or ("KV001", "KV003", "MD410")])


def labels(findings: list[Finding]) -> list[str]:
    return [f"{f.location.node_label}" for f in findings if f.code == "KV003"]


@each(
    ("place", "codes", "left"),
    [
        pytest.param(on_model, "KV003", [], id="the model covers everything"),
        pytest.param(on_graph, "KV003", ["body"], id="the main graph covers its branches"),
        pytest.param(on_choice, "KV003", ["body"], id="a node covers its branches"),
        pytest.param(on_inner, "KV003", ["#0", "body"], id="a node covers itself alone"),
        pytest.param(on_branch, "KV003", ["inner", "body"], id="a branch covers itself"),
        pytest.param(on_function, "KV003", BRANCHES, id="a function covers its body"),
        pytest.param(on_model, "KV0", [], id="a prefix covers its codes"),
        pytest.param(on_model, "KV001, KV003", [], id="codes stand in a list"),
        pytest.param(on_model, "KV001 KV003", [], id="the list may have spaces"),
        pytest.param(on_model, "KV001", [*BRANCHES, "body"], id="another code covers nothing"),
        pytest.param(on_model, "", [*BRANCHES, "body"], id="no code covers nothing"),
    ],
)
def test_what_is_covered(
    place: Callable[[ir.Model], dict[str, str]], codes: str, left: list[str]
) -> None:
    one = model()
    place(one)[KEY] = codes
    findings, suppressed = found(one)
    assert labels(findings) == left
    assert suppressed == 3 - len(left)


@pytest.mark.parametrize(
    ("place", "codes", "message", "label"),
    [
        pytest.param(
            on_last, "KV003", "names `KV003`, which suppresses nothing", "last", id="on a node"
        ),
        pytest.param(
            on_function, "KV001", "names `KV001`, which suppresses nothing", None, id="once"
        ),
        pytest.param(
            on_model, "KV003, KV001", "names `KV001`, which suppresses nothing", None, id="a list"
        ),
        pytest.param(
            on_graph, "KV999", "names `KV999`, which is the code of no rule", None, id="no rule"
        ),
    ],
)
def test_what_suppresses_nothing_is_found(
    place: Callable[[ir.Model], dict[str, str]], codes: str, message: str, label: str | None
) -> None:
    one = model()
    place(one)[KEY] = codes
    (finding,) = (f for f in found(one)[0] if f.code == "MD410")
    assert message in finding.message
    assert finding.location.node_label == label
    assert finding.fix is not None
    finding.fix.apply()
    assert not [f for f in found(one)[0] if f.code == "MD410"]
    assert place(one).get(KEY) == ("KV003" if "," in codes else None)


@each(
    ("codes", "rules"),
    [
        pytest.param("KV001", ("KV003", "MD410"), id="a rule that is off"),
        pytest.param("KV0", ("KV003", "MD410"), id="a prefix with rules that are off"),
        pytest.param("KV001", ("KV001",), id="when nobody asks for MD410"),
        pytest.param("MD410", ("MD410",), id="the suppression of this very rule"),
    ],
)
def test_of_rules_that_did_not_run_nothing_is_said(codes: str, rules: tuple[str, ...]) -> None:
    one = model()
    on_last(one)[KEY] = codes
    assert not [f for f in found(one, *rules)[0] if f.code == "MD410"]


def test_an_unused_suppression_can_be_suppressed() -> None:
    one = model()
    on_last(one)[KEY] = "KV001"
    on_model(one)[KEY] = "MD410"
    findings, suppressed = found(one)
    assert {f.code for f in findings} == {"KV003"}
    assert suppressed == 1
