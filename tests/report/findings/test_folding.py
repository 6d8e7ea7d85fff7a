"""Findings that repeat from layer to layer are told once; data formats keep each with its group."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_kvtool.core.diagnostic import Diagnostic, Location, Severity
from onnx_kvtool.lint.finding import Finding, Fix
from onnx_kvtool.report.findings.writer import folded, others_in_words
from tests.grids import each

LAYERS = 30


def found(
    message: str = "it is wrong",
    node: str | None = "layer.3",
    *,
    code: str = "KV207",
    severity: Severity = "info",
    place: Location | None = None,
    help: str | None = None,
    fix: str | None = None,
) -> Finding:
    location = place or Location("main", node, 3, "Add")
    diagnostic = Diagnostic(code, severity, location, message, help)
    return Finding(diagnostic, "name", "", None if fix is None else Fix("safe", fix, lambda: None))


@each(
    ("one", "other"),
    [
        pytest.param(found(node="layer.0.k"), found(node="layer.29.k"), id="the node of a layer"),
        pytest.param(found(node="put"), found(node="put_1"), id="torch numbers all but the first"),
        pytest.param(
            found(place=Location("main", None, 7, "Add")),
            found(place=Location("main", None, 12, "Add")),
            id="nodes without names",
        ),
        pytest.param(
            found("of `past.0.key` and `past.0.value`"),
            found("of `past.1.key` and `past.1.value`"),
            id="names in the message",
        ),
        pytest.param(
            found(help="call it `a_0`", fix="rename `b_0`"),
            found(help="call it `a_1`", fix="rename `b_1`"),
            id="names in the remedy",
        ),
        pytest.param(
            found(place=Location("main/If_3.then_branch", "a", 0, "Add")),
            found(place=Location("main/If_9.then_branch", "a", 0, "Add")),
            id="in the bodies of layers",
        ),
    ],
)
def test_numbers_in_names_make_no_difference(one: Finding, other: Finding) -> None:
    assert one.group == other.group


@each(
    "other",
    [
        pytest.param(found(code="KV208"), id="another rule"),
        pytest.param(found(severity="warning"), id="another severity"),
        pytest.param(found(node="other.3"), id="another node"),
        pytest.param(found("it is not wrong"), id="another message"),
        pytest.param(found(help="do better"), id="another remedy"),
        pytest.param(found(fix="Do it"), id="a fix"),
        pytest.param(found(place=Location("main", "layer.3", 3, "Mul")), id="another operator"),
        pytest.param(found(place=Location("f", "layer.3", 3, "Add")), id="another graph"),
    ],
)
def test_everything_else_does(other: Finding) -> None:
    assert found().group != other.group


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("axis 2 of `x`", "axis 3 of `x`", id="a number in the sentence"),
        pytest.param("`axis` is `2`", "`axis` is `3`", id="a number in backticks"),
    ],
)
def test_numbers_that_are_no_part_of_a_name_do(one: str, other: str) -> None:
    assert found(one).group != found(other).group


@each(
    ("nodes", "expected"),
    [
        pytest.param(["k.1"], "1 more, main:k.1", id="one"),
        pytest.param([f"k.{i}" for i in range(1, 30)], "29 more, main:k.{1..29}", id="a range"),
        pytest.param(
            [f"n_{i * i}" for i in range(1, 30)],
            "29 more, the last at main:n_841",
            id="numbers without a pattern",
        ),
        pytest.param(
            ["a_1_2", "a_3_4"], "2 more, the last at main:a_3_4", id="two numbers that change"
        ),
    ],
)
def test_the_places_of_the_others(nodes: list[str], expected: str) -> None:
    assert others_in_words([found(node=node) for node in nodes]) == expected


def test_groups_come_in_the_order_of_their_first_findings() -> None:
    names = ["k.0", "v.0", "k.1", "other", "v.1", "k.2"]
    groups = folded(found(node=name) for name in names)
    got = [(first.location.node, [f.location.node for f in others]) for first, others in groups]
    assert got == [("k.0", ["k.1", "k.2"]), ("v.0", ["v.1"]), ("other", [])]


@pytest.fixture
def decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a decoder of 30 layers whose caches are updated by ScatterElements."""
    names = [f"{what}.{i}" for i in range(LAYERS) for what in ("key", "value")]
    declared = ", ".join(
        f'float[2, 3, 16, 5] "past.{n}", float[2, 3, 4, 5] "new.{n}"' for n in names
    )
    made = ", ".join(f'float[2, 3, 16, 5] "present.{n}"' for n in names)
    nodes = "\n".join(
        f'["scatter.{n}"] "present.{n}" = ScatterElements <axis = 2> ("past.{n}", index, "new.{n}")'
        for n in names
    )
    text = f"""<ir_version: 10, opset_import: ["": 18]>
        decoder ({declared}, int64[2] start) => ({made})
            <int64[3] axes = {{1, 2, 3}}, int64[1, 1, 4, 1] count = {{0, 1, 2, 3}},
             int64[4] shape = {{2, 3, 4, 5}}> {{
            first = Unsqueeze (start, axes)
            rows = Add (first, count)
            index = Expand (rows, shape)
            {nodes}
        }}"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    onnx.save(onnx.parser.parse_model(text), "decoder.onnx")
    return "decoder.onnx"


@pytest.mark.long
def test_thirty_layers_are_two_findings_in_text(kvtool, decoder: str) -> None:
    flags = ("check", decoder, "--isolated", "--select", "KV207")
    lines = kvtool(*flags).stdout.splitlines()
    assert lines[0] == "decoder.onnx: 60 findings"
    assert [line for line in lines if "KV207" not in line and "help" not in line][1:] == [
        "    alike: 29 more, decoder:scatter.key.{1..29}",
        "    alike: 29 more, decoder:scatter.value.{1..29}",
    ]
    assert len(lines) == 7
    assert kvtool(*flags, "--verbose").stdout.count("info KV207") == 60
    github = kvtool(*flags, "--format", "github").stdout.splitlines()
    assert len(github) == 2 and github[0].endswith("alike: 29 more, decoder:scatter.key.{1..29}")


@pytest.mark.long
def test_data_keeps_each_with_its_group(kvtool, decoder: str) -> None:
    flags = ("check", decoder, "--isolated", "--select", "KV207")
    (file,) = json.loads(kvtool(*flags, "--format", "json").stdout)["files"]
    (run,) = json.loads(kvtool(*flags, "--format", "sarif").stdout)["runs"]
    for groups in (
        [finding["group"] for finding in file["findings"]],
        [result["properties"]["group"] for result in run["results"]],
    ):
        assert len(groups) == 60 and sorted(groups.count(group) for group in {*groups}) == [30, 30]
    assert len({finding["fingerprint"] for finding in file["findings"]}) == 60
