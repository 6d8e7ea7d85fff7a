"""Values held against what a graph declares of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.schema import tensor_type
from onnx_kvtool.runtime.engine.type_check import element_type
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["declared_mismatch"]


def declared_mismatch(declared: ir.Value, value: Value) -> str | None:
    """Return how a value contradicts its declaration, got and expected; None if it does not.

    Element type, rank and the sizes that are numbers are compared. What is not declared, what is
    declared as no tensor, and an absent value contradict nothing.
    """
    if not isinstance(declared.type, ir.TensorType) or value is None:
        return None
    if not isinstance(value, np.ndarray):
        return f"`{declared.name}` is a {type(value).__name__}, expected an array"
    got, expected = element_type(value.dtype), declared.type.dtype
    if expected not in (got, ir.DataType.UNDEFINED):
        name = str(value.dtype) if got is None else tensor_type(got)
        return f"`{declared.name}` is {name}, expected {tensor_type(expected)}"
    if declared.shape is None:
        return None
    shape = ", ".join(str(dim) for dim in declared.shape)
    if len(declared.shape) != value.ndim:
        return (
            f"`{declared.name}` has rank {value.ndim}, expected {len(declared.shape)}: "
            f"shape {value.shape} for ({shape})"
        )
    dims = zip(declared.shape, value.shape, strict=True)
    if all(not isinstance(dim, int) or dim == size for dim, size in dims):
        return None
    return f"`{declared.name}` has shape {value.shape}, expected ({shape})"
