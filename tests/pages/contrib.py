"""The page on operators of onnxruntime, as the table of their rules says."""

from __future__ import annotations

import inspect

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.contrib.without import WITHOUT_A_RULE
from onnx_kvtool.ops.contrib import published
from tests.pages.markdown import head, prose, table

__all__ = ["page"]


def page() -> str:
    """Return the page."""
    rows = []
    where = {key: "CPUs" if line["cpu"] else "none for CPUs" for key, line in published().items()}
    for key in sorted(CONTRIB_RULES):
        rule, name = CONTRIB_RULES[key], "::".join(filter(None, key))
        parts = (inspect.getdoc(rule.apply) or "").split("\n\n")
        said = " ".join(prose(part) for part in parts)
        text = " ".join(said.split())
        rows.append((f"`{name}`", rule.producer, where[key], f"`{rule.name}`", text))
    refused = [
        (f"`{'::'.join(filter(None, key))}`", where[key], f"It {why}.")
        for key, why in WITHOUT_A_RULE.items()
    ]
    known = table(("operator", "written by", "kernel", "rule", "what becomes of it"), rows)
    others = table(("operator", "kernel", "why it is refused"), refused)
    return f"{head('operators/contrib.md')}\n{known}\n\n## Refused\n\n{others}\n"
