"""Dimensions: a number, a name, or unknown. Unknown is a value, never a guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.symbolic.sizes import names_in

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Dim", "contradict", "dim_names", "dims_of", "merge", "product"]

Dim = int | str | None
"""A size, the name of a symbolic size, or None for a size of which nothing is known."""


def dims_of(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """Return the dimensions of `value`; None when its rank is unknown or there is no value.

    A negative number, with which some exporters mean a size that they do not know, is None.
    """
    if value is None or value.shape is None:
        return None
    dims = (d if isinstance(d, int) else d.value for d in value.shape)
    return tuple(None if isinstance(d, int) and d < 0 else d for d in dims)


def dim_names(model: ir.Model) -> set[str]:
    """Return the names in the symbolic dimensions of a model's inputs, to which sizes may be given.

    That of `past + 1` is `past`.
    """
    dims = (dim for value in model.graph.inputs for dim in dims_of(value) or ())
    return {name for dim in dims if dim is not None for name in names_in(dim)}


def contradict(a: Dim, b: Dim) -> bool:
    """Return whether the two are certainly different: two numbers that differ.

    Two names may stand for the same size, so different names do not contradict each other.
    """
    return isinstance(a, int) and isinstance(b, int) and a != b


def merge(a: Dim, b: Dim) -> Dim:
    """Return what is known of a size described twice: a number before a name before unknown."""
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    return a if a is not None else b


def product(dims: Sequence[Dim]) -> int | None:
    """Return the number of elements; None when a dimension is not a number. () gives 1."""
    return math.prod(d for d in dims if isinstance(d, int)) if _all_known(dims) else None


def _all_known(dims: Sequence[Dim]) -> bool:
    return all(isinstance(d, int) for d in dims)
