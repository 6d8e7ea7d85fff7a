"""The page of a rule, in Markdown and as plain text."""

from __future__ import annotations

import re

from onnx_kvtool.lint.rule import RULES, facts, markdown, plain


def test_a_page_begins_with_what_counts() -> None:
    page = markdown(RULES["KV003"]).splitlines()
    assert page[:5] == [
        "# KV003 bad-mode",
        "",
        "The mode of a TensorScatter is neither linear nor circular.",
        "",
        "Severity error; rests on values in the file; has no fix.",
    ]
    headings = [line for line in page if line.startswith("## ")]
    assert headings == [
        "## What it does",
        "## Why is this bad?",
        "## Example",
        "## Use instead",
        "## References",
    ]


def test_facts_name_the_fix() -> None:
    assert facts(RULES["MD410"]) == "severity warning; rests on values in the file; has a safe fix"


def test_plain_text_has_no_marks() -> None:
    text = plain(markdown(RULES["MD410"]))
    assert not re.search(r"^(#|```)", text, re.MULTILINE)
    assert "\n    <ir_version: 12" in text
