"""Memory of the caches against sequence length, one line per batch size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx_kvtool.analysis.caches.footprint import Footprint
from onnx_kvtool.core.quantity import binary_bytes

__all__ = ["Axes", "axes_of", "memory_svg"]

_WIDTH, _HEIGHT = 680, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 92, 14, 40
_SVG = "http://www.w3.org/2000/svg"
_BATCHES = (1, 2, 4, 8)
_LONG_SEQUENCE = 4096
"""Tokens up to which a cache without a capacity is drawn."""


@dataclass(frozen=True, slots=True)
class Axes:
    """What a plot spans.

    Attributes:
        batches: Batch sizes, one line each; one alone where the model fixes the batch.
        tokens: Tokens of a sequence at the right end.
        most_bytes: Bytes at the top.
    """

    batches: tuple[int, ...]
    tokens: int
    most_bytes: float

    def x(self, tokens: float) -> float:
        """Return the pixel column of a number of tokens."""
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * tokens / self.tokens

    def y(self, number: float) -> float:
        """Return the pixel row of a number of bytes."""
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * number / self.most_bytes


def axes_of(cost: Footprint) -> Axes | None:
    """Return what to plot; None when the cost of a token is known for no cache."""
    if not any(share.bytes_per_token for share in cost.shares):
        return None
    fixed = {share.batch for share in cost.shares}
    batches = _BATCHES if None in fixed else (max(b for b in fixed if b is not None),)
    capacities = [share.capacity for share in cost.shares if share.capacity]
    # Where no cache limits the length there is nothing to end the axis at.
    tokens = max(capacities) if capacities else _LONG_SEQUENCE
    most = cost.allocated(batches[-1], tokens)
    return Axes(batches, tokens, most) if most > 0 else None


def memory_svg(cost: Footprint, axes: Axes) -> str:
    """Return the plot: solid lines for rows that tokens fill, dashed ones for what is allocated.

    A cache that grows allocates what it fills, so that its two lines are one.
    """
    parts = [
        f'<svg class="plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" xmlns="{_SVG}">',
        "<title>Memory of the caches against the length of a sequence</title>",
        *_grid(axes),
    ]
    for order, batch in enumerate(axes.batches):
        end = cost.allocated(batch, axes.tokens)
        parts.append(f'<g class="batch{order}">')
        if any(share.capacity is not None for share in cost.shares):
            start = axes.y(cost.allocated(batch, 0))
            points = f"{axes.x(0):.1f},{start:.1f} {axes.x(axes.tokens):.1f},{axes.y(end):.1f}"
            parts.append(f'<polyline class="allocated" points="{points}"/>')
        points = " ".join(
            f"{axes.x(tokens):.1f},{axes.y(_filled(cost, batch, tokens)):.1f}"
            for tokens in _corners(cost, axes)
        )
        parts.append(f'<polyline class="filled" points="{points}"/>')
        label = f"batch {batch}"
        parts.append(
            f'<text x="{axes.x(axes.tokens) + 8:.1f}" y="{axes.y(end) + 4:.1f}">{label}</text></g>'
        )
    parts.append('<circle id="marker" r="5" cx="-20" cy="-20"/>')
    return "\n".join((*parts, "</svg>"))


def _filled(cost: Footprint, batch: int, tokens: int) -> float:
    """Return the bytes of the rows that `tokens` tokens fill."""
    total = 0.0
    for share in cost.shares:
        rows = tokens if share.capacity is None else min(tokens, share.capacity)
        total += share.bytes_per_token * rows * (batch if share.batch is None else share.batch)
    return total


def _corners(cost: Footprint, axes: Axes) -> list[int]:
    """Return the lengths at which a line bends: where a cache is full."""
    bends = {share.capacity for share in cost.shares if share.capacity is not None}
    return sorted({0, axes.tokens, *bends})


def _grid(axes: Axes) -> Iterator[str]:
    left, right = axes.x(0), axes.x(axes.tokens)
    for number in _ticks(axes.most_bytes, 1024):
        y = axes.y(number)
        yield f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _tick(left - 8, y + 4, "end", binary_bytes(number))
    for tokens in _ticks(axes.tokens, 1):
        yield _tick(axes.x(tokens), _HEIGHT - _BOTTOM + 18, "middle", f"{int(tokens):,}")
    yield _tick((left + right) / 2, _HEIGHT - 4, "middle", "tokens of a sequence")


def _tick(x: float, y: float, anchor: str, label: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{label}</text>'


def _ticks(most: float, base: int) -> Sequence[float]:
    """Return a few round numbers from 0 to `most`: a power of two apart.

    Args:
        most: The largest number that may be among them.
        base: What a unit has of the next smaller one: 1024 for bytes, 1 for a plain count.
    """
    unit = 1.0
    if base > 1:
        while unit * base <= most:
            unit *= base
    step = unit
    while most / step > 5:
        step *= 2
    while most / step < 2.5 and step > 1:
        step /= 2
    return [step * i for i in range(int(most / step) + 1)]
