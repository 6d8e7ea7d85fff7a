"""The pages under docs/rules, made of the docstrings and examples of the rules."""

from __future__ import annotations

from onnx_kvtool.lint.page import index, markdown
from onnx_kvtool.lint.table import RULES

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """Return the content of each page, by the name of its file."""
    files = {f"{rule.code}.md": f"{markdown(rule)}\n" for rule in RULES.values()}
    return {"index.md": f"{index(RULES.values())}\n", **files}
