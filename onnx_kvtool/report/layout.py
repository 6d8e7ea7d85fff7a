"""Places for the boxes of a small graph: layers from top to bottom, few crossings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Layout", "Placed", "layered"]

_GAP_X = 20.0
_GAP_Y = 40.0
_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Placed:
    """A box: its centre and its size, in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """A drawing without its ink.

    Attributes:
        width: Width of the whole, in pixels.
        height: Height of the whole.
        boxes: Where each box is.
        lines: For each edge the points that it goes through, from the lower side of the box it
            leaves to the upper side of the one it reaches.
    """

    width: float
    height: float
    boxes: Mapping[str, Placed]
    lines: tuple[tuple[tuple[float, float], ...], ...]


def layered(sizes: Mapping[str, tuple[float, float]], edges: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes so that edges lead downwards.

    An edge that would close a cycle leads upwards. An edge over several layers goes through a
    point in each of them, so that it passes between the boxes.

    Args:
        sizes: Width and height of each box, by its key, in pixels.
        edges: Keys of the two ends of each edge; both are in `sizes`.
    """
    layer = _layers(sizes, edges)
    chains, widths, layer = _with_points(sizes, edges, layer)
    rows = _rows(layer)
    near = _neighbours(chains)
    for sweep in range(_SWEEPS):
        _order(rows, near, downwards=sweep % 2 == 0)
    x = _columns(rows, near, widths)
    heights = [max((sizes[k][1] for k in row if k in sizes), default=0.0) for row in rows]
    y = [sum(heights[:i]) + heights[i] / 2 + _GAP_Y * i for i in range(len(rows))]
    left = min((x[k] - widths[k] / 2 for k in x), default=0.0)
    boxes = {k: Placed(x[k] - left, y[layer[k]], *sizes[k]) for k in sizes}
    lines = tuple(_line(chain, boxes, x, y, layer, left) for chain in chains)
    right = max((x[k] + widths[k] / 2 for k in x), default=0.0)
    return Layout(right - left, sum(heights) + _GAP_Y * max(0, len(rows) - 1), boxes, lines)


def _layers(
    sizes: Mapping[str, tuple[float, float]], edges: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Give each box the layer below all that lead to it, and a source that above its first use."""
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


def _with_points(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str]],
    layer: dict[str, int],
) -> tuple[list[list[str]], dict[str, float], dict[str, int]]:
    """Return each edge as a chain with one point in every layer that it crosses."""
    widths = {key: size[0] for key, size in sizes.items()}
    layer = dict(layer)
    chains = []
    for number, (source, target) in enumerate(edges):
        step = 1 if layer[target] >= layer[source] else -1
        chain = [source]
        for between in range(layer[source] + step, layer[target], step):
            point = f"\0{number}/{between}"
            layer[point], widths[point] = between, 8.0
            chain.append(point)
        chains.append([*chain, target])
    return chains, widths, layer


def _rows(layer: Mapping[str, int]) -> list[list[str]]:
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for key, place in layer.items():
        rows[place].append(key)
    return rows


def _neighbours(chains: Sequence[Sequence[str]]) -> Mapping[str, list[str]]:
    near: defaultdict[str, list[str]] = defaultdict(list)
    for chain in chains:
        for one, other in pairwise(chain):
            near[one].append(other)
            near[other].append(one)
    return near


def _order(rows: list[list[str]], near: Mapping[str, list[str]], *, downwards: bool) -> None:
    """Sort each row by the mean place of its neighbours in the row before it."""
    order = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
    for place in order:
        fixed = rows[place - 1 if downwards else place + 1]
        at = {key: (i + 0.5) / len(fixed) for i, key in enumerate(fixed)}
        own = {key: (i + 0.5) / len(rows[place]) for i, key in enumerate(rows[place])}
        means = {
            key: _mean([at[n] for n in near.get(key, ()) if n in at], own[key])
            for key in rows[place]
        }
        rows[place].sort(key=means.__getitem__)


def _columns(
    rows: list[list[str]], near: Mapping[str, list[str]], widths: Mapping[str, float]
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
            _settle(row, wanted, widths, x)
    return x


def _settle(
    row: Sequence[str], wanted: Sequence[float], widths: Mapping[str, float], x: dict[str, float]
) -> None:
    """Put the boxes of a row where they want to be, half of the push to either side."""
    rightwards = list(wanted)
    leftwards = list(wanted)
    for i in range(1, len(row)):
        apart = (widths[row[i - 1]] + widths[row[i]]) / 2 + _GAP_X
        rightwards[i] = max(rightwards[i], rightwards[i - 1] + apart)
    for i in range(len(row) - 2, -1, -1):
        apart = (widths[row[i]] + widths[row[i + 1]]) / 2 + _GAP_X
        leftwards[i] = min(leftwards[i], leftwards[i + 1] - apart)
    for key, a, b in zip(row, rightwards, leftwards, strict=True):
        x[key] = (a + b) / 2


def _line(
    chain: Sequence[str],
    boxes: Mapping[str, Placed],
    x: Mapping[str, float],
    y: Sequence[float],
    layer: Mapping[str, int],
    left: float,
) -> tuple[tuple[float, float], ...]:
    first, last = boxes[chain[0]], boxes[chain[-1]]
    down = 1 if last.y >= first.y else -1
    inner = ((x[k] - left, y[layer[k]]) for k in chain[1:-1])
    return (
        (first.x, first.y + down * first.height / 2),
        *inner,
        (last.x, last.y - down * last.height / 2),
    )


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise
