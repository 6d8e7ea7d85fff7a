"""Single numbers of a graph: scales, caps, masked values; constants, or computed from sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.sight import Sight
from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.ops.element_type import SIZE_TYPES
from onnx_kvtool.symbolic.stored import elements

__all__ = ["number_of"]

_DEEPEST = 16
"""Most nodes in a row that compute a number."""

_UNARY: dict[str, Callable[[float], float]] = {
    "Identity": lambda a: a,
    "Neg": lambda a: -a,
    "Reciprocal": lambda a: 1 / a,
    "Reshape": lambda a: a,
    "Sqrt": math.sqrt,
    "Squeeze": lambda a: a,
    "Unsqueeze": lambda a: a,
}
_BINARY: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Div": lambda a, b: a / b,
    "Mul": lambda a, b: a * b,
    "Pow": lambda a, b: a**b,
    "Sub": lambda a, b: a - b,
}


def number_of(value: ir.Value | None, sight: Sight, depth: int = 0) -> float | None:
    """Return the only element of a float value, the same in every run; None where it is not known.

    Every step is rounded to its element type, as a runtime rounds it.
    """
    if value is None or depth > _DEEPEST:
        return None
    shape = sight.shape(value)
    if shape is None or any(size.number != 1 for size in shape):
        return None
    if value.dtype in SIZE_TYPES:
        scalar = sight.maps.of(value).scalar()
        return None if scalar is None or scalar.number is None else float(scalar.number)
    tensor = None if value.is_graph_input() else const_tensor(value)
    if tensor is not None:
        held = elements(tensor)
        return None if held is None or held.size != 1 else float(held.ravel()[0])
    return _computed(value, sight, depth)


def _computed(value: ir.Value, sight: Sight, depth: int) -> float | None:
    node = value.producer()
    if node is None or node.domain != "" or value.dtype is None:
        return None
    if node.op_type in _BINARY and len(node.inputs) == 2:
        operands = [number_of(operand, sight, depth + 1) for operand in node.inputs]
        compute: Callable[..., float] = _BINARY[node.op_type]
    elif node.op_type in _UNARY or node.op_type in ("Cast", "CastLike"):
        operands = [number_of(node.inputs[0], sight, depth + 1)]
        compute = _UNARY.get(node.op_type, _UNARY["Identity"])
    else:
        return None
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    try:
        with np.errstate(over="ignore"):
            result = float(np.asarray(compute(*known)).astype(value.dtype.numpy()))
    except (ArithmeticError, ValueError, TypeError):
        return None
    return None if math.isnan(result) else result
