"""Fingerprints survive what does not change a finding."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

import onnx_kvtool as kv
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import CheckReport, FileReport
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.report.findings.formats import SarifWriter
from tests.lint.cases import lint
from tests.report.findings.test_formats import rendered

BEGIN = """
    <ir_version: 10, opset_import: ["": 24]>
    decoder (bool full, float[2, 3, 7, 5] past, float[2, 3, 1, 5] update)
        => (float[2, 3, 7, 5] a, float[2, 3, 7, 5] b, float[2, 3, 7, 5] c) {
"""
NAMED = '[cache] a = TensorScatter <mode: string = "ring"> (past, update)'
UNNAMED = 'b = TensorScatter <mode: string = "wrap"> (past, update)'
NESTED = """
    c = If (full) <
        then_branch = one () => (float[2, 3, 7, 5] x) {
            x = TensorScatter <mode: string = "none"> (past, update)
        },
        else_branch = two () => (float[2, 3, 7, 5] y) { y = Identity (past) }
    >
"""
NOISE = "noise = Relu (update)"


def linted(nodes: str) -> list[Finding]:
    message = onnx.parser.parse_model(BEGIN + nodes + "}")
    return lint(deserialize(message.SerializeToString()), [RULES["KV003"]])


def fingerprints(*nodes: str) -> set[str]:
    found = linted("\n".join(nodes))
    marks = {finding.fingerprint for finding in found}
    assert len(marks) == len(found) == 3
    assert all(len(mark) == 32 for mark in marks)
    return marks


PLAIN = (NAMED, UNNAMED, NESTED)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param((NESTED, UNNAMED, NAMED), id="nodes in another order"),
        pytest.param((NOISE, *PLAIN), id="a node in front"),
        pytest.param((NAMED.replace('"ring"', '"loop"'), UNNAMED, NESTED), id="another message"),
    ],
)
def test_fingerprints_stay(nodes: tuple[str, ...]) -> None:
    assert fingerprints(*nodes) == fingerprints(*PLAIN)


def test_a_renamed_node_is_another() -> None:
    renamed = fingerprints(NAMED.replace("[cache]", "[layer]"), UNNAMED, NESTED)
    assert len(renamed & fingerprints(*PLAIN)) == 2


def test_findings_at_one_place_are_numbered() -> None:
    twice = (NAMED, UNNAMED.replace("b =", "[cache] b ="), NESTED)
    assert len(fingerprints(*twice) & fingerprints(*PLAIN)) == 2


def alerts(nodes: str) -> dict[str, str]:
    """Return what code scanning knows each finding by, by its message."""
    found = linted(nodes)
    report = CheckReport((FileReport("m.onnx", tuple(found)),))
    (run,) = json.loads(rendered(SarifWriter, report))["runs"]
    results = run["results"]
    known = {
        r["message"]["text"]: r["partialFingerprints"]["primaryLocationLineHash"] for r in results
    }
    assert len(known) == len(set(known.values())) == len(results)
    return known


def node(number: int, name: str, mode: str) -> str:
    """Return a node as exporters number it, with a mode that shows in the message."""
    label = f'["{name}"] ' if name else ""
    return f'{label}v_{number} = TensorScatter <mode: string = "{mode}"> (past, update) '


def branch(number: int, mode: str) -> str:
    inner = f'v_{number} = TensorScatter <mode: string = "{mode}"> (past, update) '
    return (
        f"[node_If_{number + 1}] o_{number} = If (full) <then_branch = one_{number} () => "
        f"(float[2, 3, 7, 5] v_{number}) {{ {inner} }}, else_branch = two_{number} () => "
        f"(float[2, 3, 7, 5] w_{number}) {{ w_{number} = Identity (past) }}>"
    )


EXPORTED = [
    node(8, "node_scatter_8", "p"),
    node(9, "node_scatter_9", "q"),
    node(10, "/layers.3/Scatter_10", "r"),
    node(11, "", "s"),
    node(12, "n12", "t"),
    branch(13, "u"),
]
AGAIN = [
    node(98, "node_scatter_98", "p"),
    node(99, "node_scatter_99", "q"),
    node(100, "/layers.3/Scatter_100", "r"),
    node(101, "", "s"),
    node(102, "n102", "t"),
    branch(103, "u"),
]


@pytest.mark.long
@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(EXPORTED[::-1], id="nodes in another order"),
        pytest.param([NOISE, *EXPORTED, "[n7] x = Relu (noise)"], id="more nodes"),
        pytest.param(AGAIN, id="other numbers"),
        pytest.param([NOISE, *AGAIN[::-1]], id="all three"),
        pytest.param(
            [EXPORTED[0].replace("(past, update)", "(a_, update)"), *EXPORTED[1:]],
            id="other inputs",
        ),
        pytest.param(
            [
                f"[extra] e_1 = Neg (past) {text}" if i == 2 else text
                for i, text in enumerate(AGAIN)
            ],
            id="a node between",
        ),
    ],
)
def test_alerts_stay_through_edits_of_the_model(nodes: list[str]) -> None:
    assert alerts("".join(nodes)) == alerts("".join(EXPORTED))


@pytest.mark.long
def test_another_export_of_a_decoder_has_the_same_alerts() -> None:
    """The two were exported one after the other: numbers in names differ by 2."""
    native = Path(__file__).resolve().parents[3] / "fixtures" / "models" / "native"
    reports = [kv.check(native / f"llama_static{end}.onnx", targets=["tensorrt"]) for end in ENDS]
    one, other = ({f.identity for f in report} for report in reports)
    assert one == other and len(one) == len(reports[0]) > 3
    assert {f.fingerprint for f in reports[0]} != {f.fingerprint for f in reports[1]}


ENDS = ("", "_fp16")


@pytest.mark.long
def test_one_more_finding_is_one_more_alert() -> None:
    before, after = (set(alerts("".join(nodes)).values()) for nodes in (EXPORTED[1:], EXPORTED))
    assert before < after and len(after) == len(before) + 1


@pytest.mark.long
def test_layers_keep_their_alerts_when_one_is_mended() -> None:
    layers = [node(n, f"/layers.{n}/Scatter_{n + 20}", f"m{n}") for n in range(12)]
    every = alerts("".join(layers))
    del layers[4]
    left = alerts("".join(layers))
    assert left == {text: mark for text, mark in every.items() if text in left}
