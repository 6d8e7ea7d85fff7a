"""Reports outside of a terminal: as text for `print`, as HTML for a notebook, as a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.report.blocks import Block, Grid, Line
from onnx_kvtool.report.page import attribute, table, whole_page
from onnx_kvtool.report.page import text as escaped

if TYPE_CHECKING:
    from onnx_kvtool.decoding.report import BenchReport
    from onnx_kvtool.report.json import JsonReport


_STREAMS = {
    "BenchReport": ("inspect_text:bench_blocks",),
    "CheckReport": ("findings.writer:blocks", "findings.writer:remarks", "findings.writer:closing"),
    "DiffReport": ("diff_text:blocks",),
    "EvalReport": ("eval_text:blocks", "eval_text:remarks"),
    "InferReport": ("facts_text:infer_blocks",),
    "InspectReport": ("inspect_text:inspect_blocks",),
    "LowerReport": ("proof_text:lower_blocks",),
    "OpsReport": ("facts_text:ops_blocks",),
    "RaiseReport": ("proof_text:raise_blocks",),
    "TargetsReport": ("facts_text:targets_blocks",),
    "VerifyReport": ("proof_text:comparison_blocks", "proof_text:remarks"),
}
"""The functions that make the text of each report: for standard output, then standard error."""

_RENDERED = {
    ("BenchReport", "html"): "shown:bench_page",
    ("DiffReport", "html"): "diff_text:to_html",
    ("DiffReport", "markdown"): "diff_text:to_markdown",
    ("InspectReport", "dot"): "cache_graph:to_dot",
    ("InspectReport", "html"): "html:to_html",
    ("InspectReport", "mermaid"): "cache_graph:to_mermaid",
}
"""The function that makes another format of a report."""

_LABEL_COLORS = {"green": "#1a7f37", "red": "#cf222e", "yellow": "#9a6700", "cyan": "#1b7c83"}
"""Colours of labels, readable on light and dark pages, by rich's names."""


def text(report: JsonReport) -> str:
    """Return what the command of a report prints in a pipe, on both streams."""
    from onnx_kvtool.report.text import text_of_blocks

    return text_of_blocks(_blocks(report)).rstrip("\n")


def rendered(report: JsonReport, output_format: str) -> str:
    """Return a report in another format than JSON."""
    name = _RENDERED.get((type(report).__name__, output_format))
    return str(_function(name)(report)) if name else text(report)


def streams(report: JsonReport, **how: bool) -> Iterator[Iterable[Block]]:
    """Yield what the command of a report prints on standard output, then on standard error."""
    for name in _STREAMS[type(report).__name__]:
        yield _function(name)(report, **how)


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(f"onnx_kvtool.report.{module}"), function)


def html(report: Shown) -> str:
    """Return a report as HTML for another page, such as a notebook.

    A report of `inspect` is its own page in a frame, which keeps its style and script; the others
    are the lines and tables that the command prints.
    """
    if type(report).__name__ == "InspectReport":
        page = attribute(rendered(report, "html"), lines=True)
        style = "width: 100%; height: 42rem; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'
    return f"<div>\n{''.join(_markup(_blocks(report)))}</div>"


_TABLES = {
    "BenchReport": "runs",
    "CheckReport": "findings",
    "DiffReport": "nodes.changed",
    "EvalReport": "outputs",
    "InferReport": "unknown",
    "InspectReport": "caches",
    "LowerReport": "lowered",
    "RaiseReport": "raised",
    "VerifyReport": "outputs",
}
"""The main table of each report."""


def frame(report: Shown, table: str | None) -> Any:
    """Return a table of a report as a `pandas.DataFrame`; see `Shown.to_frame`."""
    try:
        import pandas as pd
    except ImportError as error:
        help = "install it with `pip install pandas`, or use `to_dict`"
        raise KvtoolError("`to_frame` needs pandas, and it is not installed", help=help) from error
    tables = dict(_tables(report.to_json()))
    name = _TABLES[type(report).__name__] if table is None else table
    if name not in tables:
        raise unknown_name(f"`{type(report).__name__}` has no table `{name}`", name, tables)
    return pd.json_normalize(tables[name])


def _tables(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for key, value in data.items():
        if key == "files" and isinstance(value, list):
            rows = [{"path": f["path"], **found} for f in value for found in f["findings"]]
            yield "findings", rows
        if key == "ops":
            yield (
                "operators",
                [
                    {"op": op, **(count if isinstance(count, dict) else {"count": count})}
                    for op, count in value.items()
                ],
            )
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            yield f"{prefix}{key}", value
        elif isinstance(value, dict):
            yield from _tables(value, f"{prefix}{key}.")


def _blocks(report: JsonReport) -> Iterator[Block]:
    return itertools.chain.from_iterable(streams(report))


_ROOM = 0.12
"""Share of a bar that has room for its label."""


def bench_page(report: BenchReport) -> str:
    """Return the times of models as one page, with a bar for the parts of a step of each."""
    longest = max((sum(part.seconds for part in p.parts) for p in report.profile), default=0) or 1
    bars = [
        f'<p class="soft end">{escaped(p.model)}: where a step goes</p>\n<div class="bar">'
        + "".join(
            f'<span style="background: {color}; width: {100 * part.seconds / longest:.2f}%"'
            f' title="{part.part}: {part.share:.0%}">{part.part * (part.share > _ROOM)}</span>'
            for part, color in zip(p.parts, _LABEL_COLORS.values(), strict=True)
        )
        + "</div>\n"
        for p in report.profile
    ]
    return whole_page("kvtool bench", ["<h1>kvtool bench</h1>", *bars, html(report)])


def _markup(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Line):
            color = _LABEL_COLORS.get(block.style.removeprefix("bold "))
            style = f' style="color: {color}"' if color else ""
            indent = len(block.label) - len(block.label.lstrip())
            place = f' style="margin-left: {indent}ch"' if indent else ""
            label = f"<b{style}>{escaped(block.label.lstrip())}:</b>"
            yield f"<div{place}>{label} {escaped(block.text)}</div>\n"
        elif isinstance(block, Grid):
            yield f"{table(block)}\n"
        else:
            yield f"<pre>{escaped(block.text)}</pre>\n"
