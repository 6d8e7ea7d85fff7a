"""Sizes at which a source runs, for the comparison of both models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim
from onnx_kvtool.symbolic.expressions import Dimension, Expr

__all__ = ["dims_to_run", "implied"]

_SIZE = 2
"""Size of a dimension that only has to be equal to another."""

Pair = tuple[Dim, Dim]


def implied(sizes: Iterable[Iterable[Expr]]) -> Iterable[Pair]:
    """Yield the dimensions that are equal in every run, from what is known of each size."""
    for ways in sizes:
        dims = [dim for way in ways if (dim := _dim(way)) is not None]
        yield from ((dims[0], dim) for dim in dims[1:])


def dims_to_run(pairs: Iterable[Pair], chosen: Mapping[str, int]) -> dict[str, int]:
    """Return a size for each name that another name or a number must be equal to.

    A source fails where an operator wants two sizes to be equal that have different names, and so
    does a comparison that draws different ones; under an assumption nothing can be said there.

    Args:
        pairs: Dimensions that are equal in every run.
        chosen: Sizes that the user gave.

    Returns:
        Sizes by name; empty where the pairs contradict each other, since then nothing runs.
    """
    distinct = [(a, b) for a, b in pairs if a != b]
    try:
        equal = SizeEqualities([*distinct, *chosen.items()])
    except ValueError:
        return {}
    found: dict[str, int] = {}
    for name in {dim for pair in distinct for dim in pair if isinstance(dim, str)}:
        if name.isidentifier():
            known = equal.of_dim(name)
            number = None if known is None else known.number
            found[name] = _SIZE if number is None else number
    return found


def _dim(size: Expr) -> Dim:
    if size.number is not None:
        return size.number
    return size.atom.name if isinstance(size.atom, Dimension) else None
