"""The graph around the caches, in the language of Graphviz."""

from __future__ import annotations

from onnx_kvtool.analysis.inspection import InspectReport
from onnx_kvtool.core.words import escape
from onnx_kvtool.report.drawing import drawing

__all__ = ["to_dot"]

_SHAPES = {
    "input": "shape=oval",
    "initializer": "shape=oval, style=dashed",
    "output": "shape=oval, peripheries=2",
    "update": 'shape=box, style="bold,filled", fillcolor="#cfe3f7"',
    "node": "shape=box",
}


def to_dot(report: InspectReport) -> str:
    """Return a digraph of the nodes around each update, `kvtool ... | dot -Tsvg` draws it.

    Nodes that several updates have around them stand in it once, and so do layers that are alike.
    """
    drawn = drawing(report.caches, report.neighbourhoods)
    lines = [
        "digraph caches {",
        '  graph [rankdir=TB, fontname="sans-serif"];',
        '  node [fontname="sans-serif", fontsize=11, fontcolor="#000000"];',
        '  edge [fontname="sans-serif", fontsize=9, color="#555555"];',
    ]
    for number, spot in enumerate(drawn.spots):
        label = r"\n".join(_quoted(line) for line in (spot.label, spot.name) if line)
        lines.append(f'  n{number} [label="{label}", {_SHAPES[spot.kind]}];')
    for source, target, edge in drawn.edges:
        style = ', color="#1f6feb", penwidth=2' if edge.is_cache else ""
        lines.append(f'  n{source} -> n{target} [label="{_quoted(edge.label)}"{style}];')
    return "\n".join((*lines, "}"))


def _quoted(raw: str) -> str:
    return escape(raw).replace("\\", "\\\\").replace('"', '\\"')
