"""The committed pages are those that would be generated now; the made ones lead somewhere."""

from __future__ import annotations

import posixpath
import re
import struct
from pathlib import Path

import pytest

from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.targets.target import find_target
from tests.grids import each
from tests.pages.markdown import DOCS, prose
from tests.pages.operator_facts import element_types, fates, versions
from tests.pages.screenshots import HEIGHTS, IMAGES
from tests.pages.table import COMMITTED, MADE, documents, made
from tests.pages.targets import span

REMEDY = "run `python -m tests.pages`"


@pytest.mark.long
@pytest.mark.parametrize("name", COMMITTED)
def test_there_is_each_page_and_no_other(name: str) -> None:
    there = {path.name for path in (DOCS / name).iterdir() if path.is_file()}
    assert there - {path.name for path in IMAGES.glob("*.png")} == set(COMMITTED[name]()), REMEDY


@pytest.mark.parametrize("name", COMMITTED)
def test_pages_are_current(name: str) -> None:
    stale = [
        file
        for file, text in COMMITTED[name]().items()
        if (DOCS / name / file).read_text(encoding="utf-8") != text
    ]
    assert stale == [], REMEDY


@pytest.mark.parametrize("name", MADE)
def test_of_a_page_that_is_made_only_the_part_by_hand_is_committed(name: str) -> None:
    pages = MADE[name]()
    assert "index.md" in pages
    for path in (DOCS / name).iterdir():
        by_hand = path.read_text(encoding="utf-8").splitlines()
        whole = pages[path.name].splitlines()
        left_out = [line for line in by_hand if line not in whole]
        assert len(whole) > len(by_hand) and all("the site shows" in line for line in left_out)


@pytest.mark.long
def test_every_page_that_is_made_has_a_title_and_leads_somewhere() -> None:
    there = documents()
    for name, text in made().items():
        assert re.match(r"# \S", text) and text.endswith("\n")
        assert len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in link:
                path = posixpath.normpath(f"docs/{name}/../{link}")
                assert path in there or (DOCS.parent / path).exists(), f"{name}: {link}"


def test_links_to_the_source_of_a_rule_lead_to_its_page() -> None:
    hook = pytest.importorskip("tests.pages.hook", reason="needs mkdocs, of the group `docs`")
    source = "../../onnx_kvtool/lint/rules/pages"
    assert hook.on_page_markdown(f"[a]({source}/KV001.md) [b]({source}) [c](../x.md)") == (
        "[a](../rules/KV001.md) [b](../rules/index.md) [c](../x.md)"
    )


def test_every_command_has_a_page() -> None:
    assert {f"{name}.md" for name in COMMANDS} < set(MADE["commands"]())


@pytest.mark.long
def test_the_index_of_the_operators_leads_to_each() -> None:
    pages = MADE["operators"]()
    linked = re.findall(r"^\| \[\w+\]\((\w+\.md)\)", pages["index.md"], re.MULTILINE)
    assert sorted(linked) == sorted(set(pages) - {"index.md", "contrib.md"})
    assert "(contrib.md)" in pages["index.md"]


def test_every_target_of_the_pages_can_be_asked_for() -> None:
    named = re.findall(r"`(\w+@[\d.]+)`", MADE["targets"]()["index.md"])
    assert len(named) > 25
    named.remove("opencv@4.12.0")  # is listed with the reason why it is none
    # One whose highest opset is unknown has the limits of the one below it.
    assert {find_target(name).asked for name in named} == {name.replace("@", " ") for name in named}


@each(
    ("op", "expected"),
    [
        pytest.param(
            "TensorScatter", [("23 to 9", "rule `tensor_scatter`, else refused")], id="a rule"
        ),
        pytest.param(
            "Trilu",
            [("23 to 14", "stays"), ("13 to 9", "rule `trilu`, else refused")],
            id="a rule below an opset",
        ),
        pytest.param(
            "Gelu",
            [("23 to 20", "stays"), ("19 to 9", "the function body of the schema, else refused")],
            id="a function body",
        ),
        pytest.param("ImageDecoder", [("23 to 20", "stays"), ("19 to 9", "refused")], id="neither"),
        pytest.param(
            "Shape",
            [
                ("23", "stays where version 23 means the same, else refused"),
                ("22 to 21", "stays where version 21 means the same, else refused"),
                ("20 to 19", "stays where version 19 means the same, else refused"),
                ("18 to 15", "stays where version 15 means the same, else refused"),
                (
                    "14 to 13",
                    "stays where version 13 means the same, else rule `shape`, else refused",
                ),
                (
                    "12 to 9",
                    "stays where version 1 means the same, else rule `shape`, else refused",
                ),
            ],
            id="older versions",
        ),
    ],
)
def test_what_becomes_of_an_operator(op: str, expected: list[tuple[str, str]]) -> None:
    assert fates(op) == expected


def test_types_are_told_from_the_version_that_brought_them() -> None:
    types = dict(element_types(versions("ScatterND")))
    assert types["`indices`"] == "int64"
    assert types["`data`, `updates`, `output`"].endswith("bool, string; from 13: bfloat16")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        pytest.param(["1.16.3", "1.17.3", "1.18.1"], "1.16.3 to 1.18.1", id="in a row"),
        pytest.param(["1.16.3", "1.18.1"], "1.16.3, 1.18.1", id="one between them is free of it"),
        pytest.param(["1.31.1"], "1.31.1", id="one"),
    ],
)
def test_releases_are_gathered(numbers: list[str], text: str) -> None:
    assert span("onnxruntime", numbers) == text


def test_prose_keeps_formulas_and_drawings_as_they_are() -> None:
    assert prose("Take it. 2 ** 3 of `a*b`.\n\n    y = x * 2\n\nz = f(x * y, w)") == (
        "Take it. 2 \\*\\* 3 of `a*b`.\n\n```text\ny = x * 2\n```\n\n```text\nz = f(x * y, w)\n```"
    )


def test_there_is_a_small_picture_of_each_html_report(root: Path) -> None:
    pages = "".join(path.read_text("utf-8") for path in (root / "docs").rglob("*.md"))
    assert {path.stem for path in IMAGES.glob("*.png")} == {f"report-{name}" for name in HEIGHTS}
    for name, height in HEIGHTS.items():
        data = (IMAGES / f"report-{name}.png").read_bytes()
        assert f"](../images/report-{name}.png)" in pages
        assert len(data) < 150_000
        assert data[16:24] == struct.pack(">II", 1000, height)
