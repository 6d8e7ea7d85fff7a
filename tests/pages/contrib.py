"""The page on operators of onnxruntime, as the table of their rules says."""

from __future__ import annotations

import inspect

from onnx_kvtool.ops.contrib_schema import CONTRIB_SCHEMAS
from onnx_kvtool.rewrite.contrib.table import CONTRIB_RULES
from tests.pages.markdown import prose, table

__all__ = ["page"]

_TEXT = """\
# Operators of onnxruntime

onnxruntime's optimiser, its quantiser and the model builder of onnxruntime-genai write operators
that ONNX does not define: those of the domain `com.microsoft`, and a few in the default domain.
[`kvtool lower`](../commands/lower.md) and [`kvtool raise`](../commands/raise.md) write them with
operators of ONNX (`--contrib standard`) by one table of rules. A rule writes the newest form, that
of opset 24; lowering takes it from there to the opset that is asked for.

Each rule is held against the kernel of onnxruntime by property tests over its attributes and
optional inputs, at several opsets and element types; where onnxruntime has one on GPUs alone,
against the formula of its documentation. A node with something that has no standard form is refused
by its name, and so is an operator that is not in the list. The
[reference runtime](../reference-runtime.md) runs each of them by a kernel of its own, which shares
no arithmetic with the rule.

`python -m tests.pages` writes this page.
"""


def page() -> str:
    """Return the page."""
    rows = []
    for key in sorted(CONTRIB_SCHEMAS):
        rule, name = CONTRIB_RULES[key], "::".join(filter(None, key))
        text = inspect.getdoc(rule.apply) or ""
        said = " ".join(prose(part) for part in text.split("\n\n"))
        rows.append((f"`{name}`", f"`{rule.name}`", " ".join(said.split())))
    return f"{_TEXT}\n{table(('operator', 'rule', 'what becomes of it'), rows)}\n"
