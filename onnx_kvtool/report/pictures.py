"""The graph around a cache and the memory of the caches as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from onnx_kvtool.analysis.caches.cache import Cache, kept
from onnx_kvtool.analysis.caches.neighbourhood import Neighbourhood, Spot
from onnx_kvtool.analysis.caches.whatif import is_window
from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.report.cache_graph import Placed, layered
from onnx_kvtool.report.page import attribute, text

# The graph around a cache as a picture.


_LETTER = 6.7  # pixels, of the 11px monospace font that the page sets
_LONGEST = 30
_MARGIN = 8.0


def graph_svg(graph: Neighbourhood, title: str) -> str:
    """Return an SVG element that draws `graph`; the page's style sheet colours it."""
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


# Memory of the caches against sequence length, one line per batch size.


_WIDTH, _HEIGHT = 680, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 92, 14, 40
_SVG = "http://www.w3.org/2000/svg"
_BATCHES = (1, 2, 4, 8)
_LONG_SEQUENCE = 4096
"""Tokens drawn of a cache without a capacity."""

_SIZES = sorted({2**n for n in range(9)} | {3 * 2**n for n in range(7)})
"""Batches that the slider offers, besides that of the model."""

_LENGTHS = sorted({2**n for n in range(4, 21)} | {3 * 2**n for n in range(4, 19)})
"""Capacities that the slider offers, besides that of the model."""


class Piece(NamedTuple):
    """What one or several caches of one kind cost; the script of the page reads it by these names.

    Attributes:
        size: Bytes of one row of one sequence, of all these caches together.
        bits: Bits of an element.
        rows: Rows of each sequence that are allocated; None where their number is unknown.
        grows: Whether as many rows are allocated as tokens fill.
        window: Whether more rows than these are of no use.
    """

    size: float
    bits: int
    rows: int | None
    grows: bool
    window: bool

    def allocated(self, capacity: int, tokens: int) -> float:
        """Return the bytes of one sequence of `tokens` tokens."""
        return self.size * (tokens if self.grows else capacity if self.rows is None else self.rows)


class CostModel(NamedTuple):
    """What the caches of a model cost, by batch, capacity and tokens.

    Attributes:
        pieces: The caches, equal ones added up.
        batch: Sequences of a batch; None where neither the model nor `--dim` says how many.
        capacity: The most rows that a cache has, or a long sequence where none says.
    """

    pieces: tuple[Piece, ...]
    batch: int | None
    capacity: int

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes, one line each; one alone where the batch is fixed."""
        return _BATCHES if self.batch is None else (self.batch,)

    @property
    def offered_batches(self) -> list[int]:
        """What the slider offers."""
        return sorted({*_SIZES, self.batch or 1})

    @property
    def offered_capacities(self) -> list[int]:
        """What the slider offers."""
        return sorted({*_LENGTHS, self.capacity})

    @property
    def has_allocation(self) -> bool:
        """Whether a cache takes more rows than tokens fill."""
        return any(not piece.grows for piece in self.pieces)

    def allocated(self, batch: int, tokens: int) -> float:
        """Return the bytes for `batch` sequences of `tokens` tokens each."""
        return batch * sum(piece.allocated(self.capacity, tokens) for piece in self.pieces)

    def filled(self, batch: int, tokens: int) -> float:
        """Return the bytes of the rows that these tokens fill."""
        each = (min(p.size * tokens, p.allocated(self.capacity, tokens)) for p in self.pieces)
        return batch * sum(each)

    def to_json(self) -> dict[str, Any]:
        """Return what the script of the page computes with; see `onnx_kvtool.report.page`."""
        return {
            "pieces": [piece._asdict() for piece in self.pieces],
            "capacity": self.capacity,
            "capacities": self.offered_capacities,
            "batches": self.offered_batches,
        }


def cost_model(caches: Sequence[Cache]) -> CostModel | None:
    """Return what the caches of a model cost; None when the cost of a token is known for none."""
    sizes: dict[tuple[int, int | None, bool, bool], float] = {}
    batches: set[int | None] = set()
    for cache in kept(caches):
        size = cache.bytes_per_token
        if not size:
            continue
        assert cache.shape is not None and cache.batch_axis is not None and cache.dtype is not None
        rows = cache.capacity if isinstance(cache.capacity, int) else None
        rows = None if cache.is_growing else rows
        key = (int(cache.dtype.bitwidth), rows, cache.is_growing, is_window(cache))
        sizes[key] = sizes.get(key, 0) + size
        batch = cache.shape[cache.batch_axis]
        batches.add(batch if isinstance(batch, int) else None)
    if not sizes:
        return None
    pieces = tuple(Piece(size, *key) for key, size in sizes.items())
    known = [batch for batch in batches if batch is not None]
    capacities = [piece.rows for piece in pieces if piece.rows]
    return CostModel(
        pieces=pieces,
        batch=None if None in batches else max(known),
        # Where no cache limits the length there is nothing to end the axis at.
        capacity=max(capacities) if capacities else _LONG_SEQUENCE,
    )


def memory_svg(cost: CostModel) -> str:
    """Return the plot: solid lines for rows that tokens fill, dashed ones for what is allocated.

    A cache that grows allocates what it fills, so that its two lines are one. The script of the
    page draws the same plot anew, as wide as it is shown and for what its reader chooses.
    """
    x = _Scale(_LEFT, _WIDTH - _RIGHT, cost.capacity)
    y = _Scale(_HEIGHT - _BOTTOM, _TOP, cost.allocated(cost.batches[-1], cost.capacity))
    parts = [
        f'<svg class="plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" xmlns="{_SVG}">',
        "<title>Memory of the caches against the length of a sequence</title>",
        *_grid(x, y),
    ]
    for order, batch in enumerate(cost.batches):
        parts.append(f'<g class="batch{order}">')
        if cost.has_allocation:
            ends = [(t, cost.allocated(batch, t)) for t in (0, cost.capacity)]
            parts.append(f'<polyline class="allocated" points="{_points(ends, x, y)}"/>')
        bends = sorted({0, cost.capacity, *(p.rows for p in cost.pieces if p.rows is not None)})
        filled = [(tokens, cost.filled(batch, tokens)) for tokens in bends]
        parts.append(f'<polyline class="filled" points="{_points(filled, x, y)}"/>')
        end = y(cost.allocated(batch, cost.capacity))
        parts.append(
            f'<text x="{x(cost.capacity) + 8:.1f}" y="{end + 4:.1f}">batch {batch}</text></g>'
        )
    return "\n".join((*parts, "</svg>"))


class _Scale(NamedTuple):
    """Where numbers from 0 to `most` stand between two pixels."""

    first: float
    last: float
    most: float

    def __call__(self, number: float) -> float:
        return self.first + (self.last - self.first) * number / self.most


def _points(places: Sequence[tuple[float, float]], x: _Scale, y: _Scale) -> str:
    return " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in places)


def _grid(x: _Scale, y: _Scale) -> Iterator[str]:
    left, right = x.first, x.last
    for number in _ticks(y.most, 1024):
        row = y(number)
        yield f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{row:.1f}" y2="{row:.1f}"/>'
        yield _tick(left - 8, row + 4, "end", binary_bytes(number))
    for tokens in _ticks(x.most, 1):
        yield _tick(x(tokens), _HEIGHT - _BOTTOM + 18, "middle", f"{int(tokens):,}")
    yield _tick((left + right) / 2, _HEIGHT - 4, "middle", "tokens of a sequence")


def _tick(x: float, y: float, anchor: str, label: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{label}</text>'


def _ticks(most: float, base: int) -> Sequence[float]:
    """Return a few round numbers from 0 to `most`: a power of two apart.

    Args:
        most: The largest number that may be among them.
        base: What a unit has of the next smaller one: 1024 for bytes, 1 for a plain count.
    """
    step = 1.0
    while base > 1 and step * base <= most:
        step *= base
    while most / step > 5:
        step *= 2
    while most / step < 2.5 and step > 1:
        step /= 2
    return [step * i for i in range(int(most / step) + 1)]
