"""Whether inferred shapes and types agree with values that were computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.shapes.inference import Inference
from onnx_kvtool.symbolic.dimensions import read_size, words
from onnx_kvtool.symbolic.expressions import Atom, Dimension, Expr, integer
from onnx_kvtool.symbolic.simplification import Facts, substitute

__all__ = ["bindings", "disagreements", "size_at"]


def bindings(model: ir.Model, feeds: Mapping[str, Any]) -> dict[str, int]:
    """Return the size of every name that is alone a dimension of an input."""
    found = {}
    for value in model.graph.inputs:
        array = feeds.get(value.name or "")
        if isinstance(array, np.ndarray):
            for dim, size in zip(value.shape or (), array.shape, strict=True):
                if isinstance(dim, ir.SymbolicDim) and dim.value:
                    found[dim.value] = size
    return found


def size_at(size: Expr, sizes: Mapping[str, int]) -> int | None:
    """Return what a size is where names have these values; None where it does not follow."""
    if words(size) is None:
        return None
    atoms: dict[Atom, Expr] = {Dimension(name): integer(n) for name, n in sizes.items()}
    return substitute(size, {}, Facts(), atoms).number


def disagreements(
    found: Inference, computed: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Yield each value whose known type or size is not that of the computed one."""
    # The text of an input's dimension stands for its size, too: `past + seq`.
    whole = {text: n for text, n in sizes.items() if read_size(text).atom is None}
    same = {read_size(text): n for text, n in whole.items()}
    knowledge = found.run.knowledge
    for value in found.run.values:
        array = computed.get(value.name or "")
        if not isinstance(array, np.ndarray):
            continue
        type_, shape = knowledge.types.get(value), knowledge.shapes.get(value)
        if type_ is not None and type_ != ir.TensorType(ir.DataType.from_numpy(array.dtype)):
            yield f"{value.name} is {array.dtype}, inferred {type_}"
        if shape is None:
            continue
        if len(shape) != array.ndim:
            yield f"{value.name} is {array.shape}, inferred rank {len(shape)}"
            continue
        for size, n in zip(shape, array.shape, strict=True):
            expected = same.get(size, size_at(size, sizes))
            if expected is not None and expected != n:
                yield f"{value.name} is {array.shape}, inferred {words(size)} = {expected}"
