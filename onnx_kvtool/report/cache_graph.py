"""The graph around the caches: its layout, and its text for Graphviz and Mermaid."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from onnx_kvtool.analysis.caches.neighbourhood import Edge, Neighbourhood, Spot
from onnx_kvtool.analysis.inspection import InspectReport
from onnx_kvtool.core.words import escape
from onnx_kvtool.report.blocks import common, name_groups, without_numbers
from onnx_kvtool.report.blocks import joined as common_name

# The layout of a small graph: layers from top to bottom, few crossings.


_GAP_X = 20.0
_GAP_Y = 40.0
_SWEEPS = 6


class Placed(NamedTuple):
    """A box: its centre and its size, in pixels."""

    x: float
    y: float
    width: float
    height: float


class Layout(NamedTuple):
    """The places of boxes and lines.

    Attributes:
        width: Width of the whole, in pixels.
        height: Height of the whole.
        boxes: The place of each box.
        lines: The points of each edge, from the lower side of its source to the upper side of its
            target.
    """

    width: float
    height: float
    boxes: Mapping[str, Placed]
    lines: tuple[tuple[tuple[float, float], ...], ...]


def layered(sizes: Mapping[str, tuple[float, float]], edges: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes so that edges lead downwards.

    An edge that closes a cycle leads upwards. An edge over several layers has a point in each of
    them, so that it passes between the boxes.

    Args:
        sizes: Width and height of each box, by its key, in pixels.
        edges: Keys of the two ends of each edge; both are in `sizes`.
    """
    layer = _layers(sizes, edges)
    widths = {key: width for key, (width, _) in sizes.items()}
    chains = []
    near: defaultdict[str, list[str]] = defaultdict(list)
    for number, (source, target) in enumerate(edges):
        step = 1 if layer[target] >= layer[source] else -1
        crossed = range(layer[source] + step, layer[target], step)
        points = {f"\0{number}/{between}": between for between in crossed}
        layer |= points
        widths |= dict.fromkeys(points, 8.0)
        chain = [source, *points, target]
        chains.append(chain)
        for one, other in pairwise(chain):
            near[one].append(other)
            near[other].append(one)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for key, place in layer.items():
        rows[place].append(key)
    for sweep in range(_SWEEPS):
        for before, row in pairwise(rows if sweep % 2 == 0 else rows[::-1]):
            _order(row, before, near)
    x = _columns(rows, near, widths)
    heights = [max((sizes[k][1] for k in row if k in sizes), default=0.0) for row in rows]
    y = [sum(heights[:i]) + heights[i] / 2 + _GAP_Y * i for i in range(len(rows))]
    left = min((x[k] - widths[k] / 2 for k in x), default=0.0)
    boxes = {k: Placed(x[k] - left, y[layer[k]], *sizes[k]) for k in sizes}
    lines = []
    for chain in chains:
        first, last = boxes[chain[0]], boxes[chain[-1]]
        down = 0.5 if last.y >= first.y else -0.5
        lines.append(
            (
                (first.x, first.y + down * first.height),
                *((x[k] - left, y[layer[k]]) for k in chain[1:-1]),
                (last.x, last.y - down * last.height),
            )
        )
    right = max((x[k] + widths[k] / 2 for k in x), default=0.0)
    height = sum(heights) + _GAP_Y * max(0, len(rows) - 1)
    return Layout(right - left, height, boxes, tuple(lines))


def _layers(
    sizes: Mapping[str, tuple[float, float]], edges: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Return the layer of each box: below its sources; a box without any is above its first use."""
    after: defaultdict[str, list[str]] = defaultdict(list)
    before: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        after[source].append(target)
        before[target].append(source)
    layer: dict[str, int] = {}
    active: set[str] = set()

    def depth(key: str) -> int:
        if key in layer or key in active:
            return layer.get(key, 0)
        active.add(key)
        layer[key] = max((depth(k) + 1 for k in before[key] if k not in active), default=0)
        active.discard(key)
        return layer[key]

    for key in sizes:
        depth(key)
    for key in sizes:
        if not before[key] and after[key]:
            layer[key] = max(0, min(layer[k] for k in after[key]) - 1)
    return layer


def _order(row: list[str], before: Sequence[str], near: Mapping[str, list[str]]) -> None:
    """Sort a row by the mean place of the neighbours in the row before it."""
    at, own = ({k: (i + 0.5) / len(keys) for i, k in enumerate(keys)} for keys in (before, row))
    means = {k: _mean([at[n] for n in near.get(k, ()) if n in at], own[k]) for k in row}
    row.sort(key=means.__getitem__)


def _columns(
    rows: Sequence[Sequence[str]], near: Mapping[str, list[str]], widths: Mapping[str, float]
) -> dict[str, float]:
    """Return the centre of each box: near its neighbours, and clear of the boxes beside it."""
    x: dict[str, float] = {}
    for row in rows:
        total = sum(widths[k] for k in row) + _GAP_X * (len(row) - 1)
        edge = -total / 2
        for key in row:
            x[key] = edge + widths[key] / 2
            edge += widths[key] + _GAP_X
    for sweep in range(2 * _SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([x[n] for n in near.get(k, ())], x[k]) for k in row]
            gaps = [(widths[a] + widths[b]) / 2 + _GAP_X for a, b in pairwise(row)]
            # Boxes that overlap move to both sides.
            rightwards = _pushed(wanted, gaps)
            leftwards = _pushed([-place for place in reversed(wanted)], gaps[::-1])
            for key, a, b in zip(row, rightwards, reversed(leftwards), strict=True):
                x[key] = (a - b) / 2
    return x


def _pushed(wanted: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Return places at or behind the wanted ones, with gaps between them."""
    steps = zip(wanted, (0.0, *gaps), strict=False)
    found = accumulate(steps, lambda at, step: max(step[0], at + step[1]), initial=-math.inf)
    return list(found)[1:]


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


# Several neighbourhoods as one graph, its nodes numbered.


def joined(neighbourhoods: Sequence[Neighbourhood]) -> Neighbourhood:
    """Merge several graphs into one; common parts appear once."""
    spots: dict[str, Spot] = {}
    edges: dict[tuple[str, str, str], Edge] = {}
    for graph in neighbourhoods:
        for spot in graph.spots:
            known = spots.setdefault(spot.key, spot)
            if spot.kind == "update" and known.kind == "node":
                spots[spot.key] = known._replace(kind="update")
        for edge in graph.edges:
            key = edge.source, edge.target, edge.label
            if key not in edges or edge.is_cache:
                edges[key] = edge
    return Neighbourhood(tuple(spots.values()), tuple(edges.values()))


def drawing(report: InspectReport) -> tuple[Neighbourhood, dict[str, str]]:
    """Return the graphs around all caches as one, and the names of its nodes by their keys.

    Layers with the same caches and surroundings appear once, with a common name, and with their
    number at the node that updates the cache.
    """
    graphs = report.neighbourhoods
    named = [
        (cache.past or cache.present or "", (cache.dtype, cache.shape, _form(graph)))
        for cache, graph in zip(report.caches, graphs, strict=False)
    ]
    groups = name_groups(named)
    whole = joined([_folded([graphs[place] for place in group]) for _, group in groups])
    return whole, {spot.key: f"n{number}" for number, spot in enumerate(whole.spots)}


def _form(graph: Neighbourhood) -> Hashable:
    """Return a key that the graphs of similar layers share: all but the numbers in names."""
    places = {spot.key: place for place, spot in enumerate(graph.spots)}
    spots = ((s.kind, without_numbers(s.label), without_numbers(s.name)) for s in graph.spots)
    edges = (
        (places[e.source], places[e.target], without_numbers(e.label), e.is_cache)
        for e in graph.edges
    )
    return tuple(spots), tuple(edges)


def _folded(graphs: Sequence[Neighbourhood]) -> Neighbourhood:
    """Return graphs of one form as one."""
    first = graphs[0]
    if len(graphs) == 1:
        return first
    spots = []
    for alike in zip(*(graph.spots for graph in graphs), strict=True):
        spot = alike[0]
        label, name = _common(s.label for s in alike), _common(s.name for s in alike)
        if spot.kind == "update":
            label += f" x{len({s.key for s in alike})}"
        spots.append(spot._replace(label=label, name=name))
    edges = [
        alike[0]._replace(label=_common(e.label for e in alike))
        for alike in zip(*(graph.edges for graph in graphs), strict=True)
    ]
    return Neighbourhood(tuple(spots), tuple(edges))


def _common(names: Iterable[str]) -> str:
    """Return one name for names that differ in numbers: `{0..29}` for one number, `{}` for more."""
    listed = list(names)
    return common_name(listed) or common(listed)


# The graph around the caches, in the language of Graphviz.


_DOT_SHAPES = {
    "input": "shape=oval",
    "initializer": "shape=oval, style=dashed",
    "output": "shape=oval, peripheries=2",
    "update": 'shape=box, style="bold,filled", fillcolor="#cfe3f7"',
    "node": "shape=box",
}


def to_dot(report: InspectReport) -> str:
    """Return a digraph of the nodes around each update; `kvtool ... | dot -Tsvg` draws it.

    Nodes near several updates appear once, and so do similar layers.
    """
    drawn, names = drawing(report)
    lines = [
        "digraph caches {",
        '  graph [rankdir=TB, fontname="sans-serif"];',
        '  node [fontname="sans-serif", fontsize=11, fontcolor="#000000"];',
        '  edge [fontname="sans-serif", fontsize=9, color="#555555"];',
    ]
    for spot in drawn.spots:
        label = r"\n".join(_dot_quoted(line) for line in (spot.label, spot.name) if line)
        lines.append(f'  {names[spot.key]} [label="{label}", {_DOT_SHAPES[spot.kind]}];')
    for edge in drawn.edges:
        style = ', color="#1f6feb", penwidth=2' if edge.is_cache else ""
        ends = f"{names[edge.source]} -> {names[edge.target]}"
        lines.append(f'  {ends} [label="{_dot_quoted(edge.label)}"{style}];')
    return "\n".join((*lines, "}"))


def _dot_quoted(raw: str) -> str:
    return escape(raw).replace("\\", "\\\\").replace('"', '\\"')


# The graph around the caches as a Mermaid flowchart.


_MERMAID_SHAPES = {
    "input": ("([", "])"),
    "initializer": ("([", "])"),
    "output": ("([", "])"),
    "update": ("[[", "]]"),
    "node": ("[", "]"),
}


def to_mermaid(report: InspectReport) -> str:
    """Return a flowchart of the nodes around each update, as GitHub and GitLab draw it.

    Nodes near several updates appear once, and so do similar layers. Thick lines are the caches.
    """
    drawn, names = drawing(report)
    lines = ["flowchart TB"]
    for spot in drawn.spots:
        opening, closing = _MERMAID_SHAPES[spot.kind]
        label = "<br>".join(_mermaid_quoted(line) for line in (spot.label, spot.name) if line)
        lines.append(f'  {names[spot.key]}{opening}"{label}"{closing}')
    for edge in drawn.edges:
        arrow = "==>" if edge.is_cache else "-->"
        label = f'|"{_mermaid_quoted(edge.label)}"|' if edge.label else ""
        lines.append(f"  {names[edge.source]} {arrow}{label} {names[edge.target]}")
    return "\n".join(lines)


def _mermaid_quoted(raw: str) -> str:
    """Return `raw` with each character that Mermaid may read as markup as an entity code."""
    return "".join(c if c.isalnum() or c in " ._-:/" else f"#{ord(c)};" for c in escape(raw))
