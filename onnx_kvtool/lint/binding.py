"""Giving symbolic dimensions a size, for as long as a model is looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.core.walk import values
from onnx_kvtool.symbolic.dimensions import bind_dim

__all__ = ["bound"]


@contextlib.contextmanager
def bound(model: ir.Model, dims: Mapping[str, int]) -> Iterator[None]:
    """Put sizes in the place of names, in the shapes of all values, for the block.

    After the block, values that still have the shape they got here have the one they had before.

    Args:
        model: The model.
        dims: Sizes by name, each at least 1.
    """
    changed: list[tuple[ir.Value, ir.Shape, ir.Shape]] = []
    if dims:
        for value in values(model):
            if value.shape is not None and (shape := _bind(value.shape, dims)) is not None:
                changed.append((value, value.shape, shape))
                value.shape = shape
    try:
        yield
    finally:
        for value, before, during in changed:
            if value.shape is during:
                value.shape = before


def _bind(shape: ir.Shape, dims: Mapping[str, int]) -> ir.Shape | None:
    """Return a shape with sizes for names; None when it has none of the names."""
    found = [d.value if isinstance(d, ir.SymbolicDim) else d for d in shape]
    sizes = [bind_dim(d, dims) for d in found]
    if sizes == found:
        return None
    return ir.Shape(sizes, denotations=[shape.get_denotation(i) for i in range(len(shape))])
