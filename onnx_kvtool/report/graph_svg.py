"""The graph around a cache as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.analysis.caches.neighbourhood import Neighbourhood, Spot
from onnx_kvtool.report.layout import Placed, layered
from onnx_kvtool.report.markup import attribute, text

__all__ = ["graph_svg"]

_LETTER = 6.7  # pixels, of the 11px monospace font that the page sets
_LONGEST = 30
_MARGIN = 8.0


def graph_svg(graph: Neighbourhood, title: str) -> str:
    """Return an SVG element that draws `graph`; the page's style sheet colours it.

    Args:
        graph: What to draw.
        title: What it shows, for readers of the page who cannot see it.
    """
    spots = {spot.key: spot for spot in graph.spots}
    layout = layered(
        {key: _size(spot) for key, spot in spots.items()},
        [(edge.source, edge.target) for edge in graph.edges],
    )
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg class="graph" role="img" {size} xmlns="http://www.w3.org/2000/svg">',
        f"<title>{text(title)}</title>",
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">',
    ]
    for edge, points in zip(graph.edges, layout.lines, strict=True):
        name = "edge cache" if edge.is_cache else "edge"
        label = f"<title>{text(edge.label)}</title>" if edge.label else ""
        parts.append(f'<path class="{name}" d="{_curve(points)}">{label}</path>')
        parts.append(f'<path class="tip {name}" d="{_tip(points)}"/>')
    parts.extend(_box(spot, layout.boxes[key]) for key, spot in spots.items())
    return "\n".join((*parts, "</g>", "</svg>"))


def _lines(spot: Spot) -> list[str]:
    return [_short(line) for line in (spot.label, spot.name) if line]


def _short(line: str) -> str:
    """Leave out the middle of a long name, whose end tells the layers of a model apart."""
    if len(line) <= _LONGEST:
        return line
    half = (_LONGEST - 1) // 2
    return f"{line[:half]}…{line[-half:]}"


def _size(spot: Spot) -> tuple[float, float]:
    lines = _lines(spot) or [""]
    return max(48.0, max(len(line) for line in lines) * _LETTER + 20), 12.0 + 15 * len(lines)


def _box(spot: Spot, place: Placed) -> str:
    x, y = place.x - place.width / 2, place.y - place.height / 2
    radius = 5 if spot.kind in ("node", "update") else place.height / 2
    full = " ".join(filter(None, (spot.label, spot.name)))
    lines = _lines(spot)
    first = place.y + 4 - 7.5 * (len(lines) - 1)
    rows = "".join(
        f'<text class="{"op" if i == 0 else "name"}" x="{place.x:.1f}" y="{first + 15 * i:.1f}">'
        f"{text(line)}</text>"
        for i, line in enumerate(lines)
    )
    return (
        f'<g class="spot {attribute(spot.kind)}"><title>{text(full)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{place.width:.1f}" height="{place.height:.1f}"'
        f' rx="{radius:.1f}"/>{rows}</g>'
    )


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Return a path that leaves and enters every point vertically."""
    x, y = points[0]
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in points[1:]:
        middle = (y + to_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(path)


def _tip(points: Sequence[tuple[float, float]]) -> str:
    x, y = points[-1]
    back = -6 if y >= points[-2][1] else 6
    return f"M{x - 3.5:.1f} {y + back:.1f}L{x:.1f} {y:.1f}L{x + 3.5:.1f} {y + back:.1f}Z"
