"""Several neighbourhoods as one graph, its nodes numbered."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.analysis.caches.neighbourhood import Edge, Neighbourhood, Spot
from onnx_kvtool.report.cache_groups import common, name_groups, without_numbers
from onnx_kvtool.report.cache_groups import joined as common_name

__all__ = ["Drawing", "drawing", "joined"]


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


def drawing(caches: Sequence[Cache], neighbourhoods: Sequence[Neighbourhood]) -> Drawing:
    """Return the graphs around all caches as one, its nodes numbered.

    Layers that are alike, caches and all around them, stand in it once: with a name for all of
    them, and their number at the node that updates the cache.

    Args:
        caches: The caches.
        neighbourhoods: The graph around each of them, in their order.
    """
    named = [
        (cache.past or cache.present or "", (cache.dtype, cache.shape, _form(graph)))
        for cache, graph in zip(caches, neighbourhoods, strict=False)
    ]
    groups = name_groups(named)
    whole = joined([_folded([neighbourhoods[place] for place in group]) for _, group in groups])
    numbers = {spot.key: number for number, spot in enumerate(whole.spots)}
    return Drawing(
        whole.spots, tuple((numbers[e.source], numbers[e.target], e) for e in whole.edges)
    )


def _form(graph: Neighbourhood) -> Hashable:
    """Return what the graphs of like layers have in common: all but numbers in names."""
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
        spots.append(replace(spot, label=label, name=name))
    edges = [
        replace(alike[0], label=_common(e.label for e in alike))
        for alike in zip(*(graph.edges for graph in graphs), strict=True)
    ]
    return Neighbourhood(tuple(spots), tuple(edges))


def _common(names: Iterable[str]) -> str:
    """Return one name for several that differ in numbers: `{0..29}` for one, `{}` for more."""
    listed = list(names)
    return common_name(listed) or common(listed)
