"""Attention in branches, loops and model-local functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.runtime.engine.evaluator import Evaluator

B, H, L, S, D = 2, 3, 5, 11, 7

ATTENTION = """
    t = Transpose <perm = [0, 1, 3, 2]> (k)
    s = MatMul (q, t)
    p = Softmax <axis = -1> (s)
    y = MatMul (p, v)
"""
INPUTS = f"float[B, {H}, L, {D}] q, float[B, {H}, S, {D}] k, float[B, {H}, S, {D}] v"
OUTPUT = f"float[B, {H}, L, {D}]"


def model(nodes: str, functions: str = "", inputs: str = INPUTS, opset: int = 18) -> ir.Model:
    text = f"""<ir_version: 8, opset_import: ["": {opset}, "own": 1]>
    m ({inputs}) => ({OUTPUT} z) {{ {nodes} }} {functions}"""
    source = onnx.parser.parse_model(text)
    onnx.checker.check_model(source, full_check=True)
    return ir.from_proto(source)


def function(name: str, body: str, inputs: str = "q, k, v", opset: int = 18) -> str:
    imports = f'<domain: "own", opset_import: ["": {opset}, "own": 1]>'
    return f"{imports} {name} ({inputs}) => (y) {{ {body} }}"


def feeds() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    shapes = {"q": (B, H, L, D), "k": (B, H, S, D), "v": (B, H, S, D)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


ATTEND = function("attend", ATTENTION)

PLACES = {
    "in a branch": (
        f"""z = If (c) <
            then_branch = yes () => ({OUTPUT} y) {{ {ATTENTION} }},
            else_branch = no () => ({OUTPUT} other) {{ other = Identity (q) }}
        >""",
        "",
        ["m/#0.then_branch"],
    ),
    "in a loop": (
        f"""z = Loop (n, c, q) <
            body = again (int64 i, bool on, {OUTPUT} q) => (bool off, {OUTPUT} y) {{
                off = Identity (on) {ATTENTION} }}
        >""",
        "",
        ["m/#0.body"],
    ),
    "in a function": ("z = own.attend (q, k, v)", ATTEND, ["own::attend"]),
    "in a function called twice": (
        "a = own.attend (q, k, v) z = own.attend (a, k, v)",
        ATTEND,
        ["own::attend", "own::attend"],
    ),
    "in a function of a function": (
        "z = own.layer (q, k, v)",
        ATTEND + function("layer", "a = own.attend (q, k, v) y = Relu (a)"),
        ["own::attend"],
    ),
    "in a function of an older opset": (
        "z = own.attend (q, k, v)",
        function("attend", ATTENTION, opset=13),
        ["own::attend"],
    ),
    "in a branch of a function": (
        "z = own.either (q, k, v, c)",
        function(
            "either",
            f"""y = If (c) <
                then_branch = yes () => (float[a, b, c, d] y) {{ {ATTENTION} }},
                else_branch = no () => (float[a, b, c, d] n) {{ n = Identity (q) }}
            >""",
            "q, k, v, c",
        ),
        ["own::either/#0.then_branch"],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("body", "functions", "graphs"), PLACES.values(), ids=PLACES)
def test_it_becomes_one_attention_where_it_stands(
    body: str, functions: str, graphs: list[str]
) -> None:
    source = model(body, functions, f"{INPUTS}, bool c, int64 n")
    raised, report = kv.raise_(source, verify=False)

    assert not report.refused
    # A function is one place, however often it is called.
    assert [done.location.graph for done in report.attention] == list(dict.fromkeys(graphs))
    ops = [node.op_type for _, _, node in nodes(raised)]
    assert ops.count("Attention") == len(graphs) and "Softmax" not in ops
    assert all(not node.metadata_props for _, _, node in nodes(raised))
    onnx.checker.check_model(ir.to_proto(raised), full_check=True)
    for chosen in (True, False):
        inputs = {**feeds(), "c": np.array(chosen), "n": np.array(3)}
        wanted, got = (Evaluator(m).run(inputs).values["z"] for m in (source, raised))
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)


def test_a_function_stays_whose_attention_is_refused() -> None:
    factor = ATTENTION.replace("(s)", "(x)").replace("p =", "x = Mul (s, w) p =")
    source = model(
        "a = own.attend (q, k, v, w) z = own.attend (a, k, v, w)",
        function("attend", factor, "q, k, v, w"),
        f"{INPUTS}, float w",
    )
    raised, report = kv.raise_(source, verify=False)
    assert [(one.location.graph, one.code) for one in report.refused] == [
        ("own::attend", "unknown-scale")
    ]
    assert ir.to_proto(raised) == ir.to_proto(source)


def test_a_function_is_inlined_if_one_of_its_calls_is_proven() -> None:
    source = model(
        "a = own.attend (q, x, v) b = own.attend (q, k, v) z = Add (a, b)",
        ATTEND,
        f"{INPUTS}, float[C, {H}, T, {D}] x",
    )
    raised, report = kv.raise_(source, verify=False)
    assert len(report.attention) == 1
    assert [one.location.graph for one in report.refused] == ["own::attend"]
    assert report.notes == ["function `own::attend` is inlined, because it contains attention"]
    assert not raised.functions


def test_functions_beside_it_stay() -> None:
    source = model(
        "a = own.twice (q) b = own.attend (a, k, v) z = own.twice (b)",
        ATTEND + function("twice", "y = Add (q, q)", "q"),
    )
    raised, _ = kv.raise_(source, verify=False)
    assert [name for _, name, _ in raised.functions] == ["twice"]


@pytest.mark.parametrize(
    ("test", "refused"),
    [
        pytest.param("c = Equal (b, one)", ["m/#4.else_branch"], id="one sequence"),
        pytest.param("c = Equal (one, b)", ["m/#4.else_branch"], id="the other way round"),
        pytest.param("c = Equal (b, two)", ["m/#4.then_branch", "m/#4.else_branch"], id="two"),
        pytest.param(
            "c = LessOrEqual (b, one)", ["m/#4.then_branch", "m/#4.else_branch"], id="one or none"
        ),
    ],
)
def test_a_branch_knows_the_size_for_which_it_is_taken(test: str, refused: list[str]) -> None:
    """Keys and values are those of one sequence, which more of them would share."""
    turned = "t{0} = Transpose <perm = [0, 1, 3, 2]> (k) s{0} = MatMul (q, t{0})"
    branch = f"{turned} p{{0}} = Softmax <axis = -1> (s{{0}}) y{{0}} = MatMul (p{{0}}, v)"
    source = model(
        f"""one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
        b = Shape <end = 1> (q) {test}
        z = If (c) <
            then_branch = yes () => ({OUTPUT} y1) {{ {branch.format(1)} }},
            else_branch = no () => ({OUTPUT} y2) {{ {branch.format(2)} }}
        >""",
        inputs=f"float[B, {H}, L, {D}] q, float[1, {H}, S, {D}] k, float[1, {H}, S, {D}] v",
    )
    raised, report = kv.raise_(source, verify=False)
    assert [(one.location.graph, one.code) for one in report.refused] == [
        (graph, "other-layout") for graph in refused
    ]
    assert len(report.attention) == 2 - len(refused)
    for batch in (1, 3):
        inputs = feeds()
        inputs["q"] = np.resize(inputs["q"], (batch, H, L, D))
        inputs |= {name: inputs[name][:1] for name in "kv"}
        wanted, got = (Evaluator(m).run(inputs).values["z"] for m in (source, raised))
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)
