"""The page on operators of onnxruntime, as the table of their rules says."""

from __future__ import annotations

import inspect

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.contrib.without import WITHOUT_A_RULE
from onnx_kvtool.ops.contrib_schema import published
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
against the formula of its documentation. A rule has a producer: an exporter, optimiser or builder
that writes the operator today. A node with something that has no standard form is refused
by its name, and so is an operator without a rule: those that onnxruntime 1.32 registers stand in
the second list, with the reason. Those of its layouts (`com.microsoft.nchwc`,
`com.ms.internal.nhwc`), which stand in graphs that it saved after it had laid them out for one
device, are refused as well, and so are names of `com.microsoft` in the default domain, where
onnxruntime itself knows no such operator. The [reference runtime](../reference-runtime.md) runs
each that has a rule by a kernel of its own, which shares no arithmetic with the rule.

`python -m tests.pages` writes this page.
"""


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
    return f"{_TEXT}\n{known}\n\n## Refused\n\n{others}\n"
