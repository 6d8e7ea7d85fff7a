"""The rules that kvtool has, in the order of their codes: one for each page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onnx_kvtool.core.table import Table
from onnx_kvtool.lint.rule import Rule

_GROUPS = ("KV", "MD", "XD", "ON")


def _rules() -> Iterator[Rule]:
    for page in Path(__file__).parent.glob("rules/pages/*.md"):
        yield Rule.of_page(page.read_text(encoding="utf-8"))


def _place(rule: Rule) -> tuple[int, str]:
    return _GROUPS.index(rule.code[:2]), rule.code


RULES: Table[str, Rule] = Table(
    "rule", ((rule.code, rule) for rule in sorted(_rules(), key=_place))
)
