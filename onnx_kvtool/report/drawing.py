"""Several neighbourhoods as one graph, its nodes numbered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx_kvtool.analysis.caches.neighbourhood import Edge, Neighbourhood, Spot

__all__ = ["Drawing", "joined", "joined_drawing"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """One graph.

    Attributes:
        spots: Its nodes; the number of one is its position.
        edges: Numbers of the ends of each edge, and the edge.
    """

    spots: tuple[Spot, ...]
    edges: tuple[tuple[int, int, Edge], ...]


def joined(neighbourhoods: Sequence[Neighbourhood]) -> Neighbourhood:
    """Return several graphs as one, in which what they have in common stands once."""
    spots: dict[str, Spot] = {}
    edges: dict[tuple[str, str, str], Edge] = {}
    for graph in neighbourhoods:
        for spot in graph.spots:
            known = spots.setdefault(spot.key, spot)
            if spot.kind == "update" and known.kind == "node":
                spots[spot.key] = replace(known, kind="update")
        for edge in graph.edges:
            key = edge.source, edge.target, edge.label
            if key not in edges or edge.is_cache:
                edges[key] = edge
    return Neighbourhood(tuple(spots.values()), tuple(edges.values()))


def joined_drawing(neighbourhoods: Sequence[Neighbourhood]) -> Drawing:
    """Return several graphs as one, its nodes numbered."""
    whole = joined(neighbourhoods)
    numbers = {spot.key: number for number, spot in enumerate(whole.spots)}
    return Drawing(
        whole.spots, tuple((numbers[e.source], numbers[e.target], e) for e in whole.edges)
    )
