"""The pages of the rules: an index with a table for each group, and the page of each."""

from __future__ import annotations

import re

from onnx_kvtool.lint.rule import RULES, markdown
from tests.pages.markdown import head, table

__all__ = ["pages"]

_GROUP = re.compile(r"^\| ([A-Z]{2}\d) \| (.*) \|$", re.MULTILINE)
"""A line of the table in `docs/rules/index.md`, which gives the groups their headings."""


def pages() -> dict[str, str]:
    """Return the content of each page, by the name of its file."""
    text = head("rules/index.md")
    parts = [part for group in _GROUP.findall(text) for part in _group(*group)]
    # Links to docs lead there from the folder of the sources.
    files = {r.code: markdown(r).replace("](../../../../docs/", "](../") for r in RULES.values()}
    return {
        "index.md": "\n".join([text, *parts]),
        **{f"{code}.md": f"{page}\n" for code, page in files.items()},
    }


def _group(prefix: str, title: str) -> tuple[str, str]:
    rows = [
        (f"[{r.code}]({r.code}.md)", r.name, r.severity, r.fix or "-", r.summary)
        for r in RULES.values()
        if r.code.startswith(prefix)
    ]
    return f"## {prefix}: {title}\n", f"{table(('code', 'name', 'severity', 'fix', ''), rows)}\n"
