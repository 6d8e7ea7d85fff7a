"""The graph around the caches as a Mermaid flowchart."""

from __future__ import annotations

from onnx_kvtool.analysis.inspection import InspectReport
from onnx_kvtool.core.words import escape
from onnx_kvtool.report.drawing import drawing

__all__ = ["to_mermaid"]

_SHAPES = {
    "input": ("([", "])"),
    "initializer": ("([", "])"),
    "output": ("([", "])"),
    "update": ("[[", "]]"),
    "node": ("[", "]"),
}


def to_mermaid(report: InspectReport) -> str:
    """Return a flowchart of the nodes around each update, as GitHub and GitLab draw it.

    Nodes that several updates have around them stand in it once, and so do layers that are alike.
    The way of the caches is drawn with thick lines.
    """
    drawn = drawing(report.caches, report.neighbourhoods)
    lines = ["flowchart TB"]
    for number, spot in enumerate(drawn.spots):
        opening, closing = _SHAPES[spot.kind]
        label = "<br>".join(_quoted(line) for line in (spot.label, spot.name) if line)
        lines.append(f'  n{number}{opening}"{label}"{closing}')
    for source, target, edge in drawn.edges:
        arrow = "==>" if edge.is_cache else "-->"
        label = f'|"{_quoted(edge.label)}"|' if edge.label else ""
        lines.append(f"  n{source} {arrow}{label} n{target}")
    return "\n".join(lines)


def _quoted(raw: str) -> str:
    """Return `raw` with each character that Mermaid may read as markup as an entity code."""
    return "".join(c if c.isalnum() or c in " ._-:/" else f"#{ord(c)};" for c in escape(raw))
