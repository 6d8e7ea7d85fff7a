"""Names of element types as people write them."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.core.misdeclared import held, is_misdeclared

__all__ = [
    "DTYPE_NAMES",
    "ELEMENT_TYPE_ATTRIBUTES",
    "contradiction",
    "dtype_name",
    "dtype_named",
]

ELEMENT_TYPE_ATTRIBUTES = frozenset(
    {
        "dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type",
        "to",
    }
)  # fmt: skip
"""Attributes whose integer is the number of an element type, in every operator that has them."""


def dtype_name(dtype: ir.DataType) -> str:
    """Return the name of an element type: that of numpy, else that of ONNX in lower case.

    `float32`, `float64`, `bfloat16`, `float8e4m3fn`, `int4`, `string`.
    """
    name = dtype.name.lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


_TYPES = tuple(dtype for dtype in ir.DataType if dtype != ir.DataType.UNDEFINED)

DTYPE_NAMES: tuple[str, ...] = tuple(dtype_name(dtype) for dtype in _TYPES)
"""The names of all element types, in the order of their numbers."""

_BY_SPELLING: dict[str, ir.DataType] = {
    spelling: dtype
    for dtype in _TYPES
    for spelling in (
        dtype_name(dtype),
        dtype.name.lower(),
        *(() if dtype == ir.DataType.STRING else (dtype.numpy().name.replace("_", ""),)),
    )
}


def dtype_named(name: str) -> ir.DataType | None:
    """Return the element type of that name; None when there is none.

    Case and underscores do not matter, and the names of ONNX (`float`, `DOUBLE`) and of ml_dtypes
    (`float8_e4m3fn`) are understood too.
    """
    return _BY_SPELLING.get(name.lower().replace("_", ""))


def contradiction(value: ir.Value) -> str | None:
    """Return what a constant is declared as and what it holds; None where the two agree.

    Returns:
        A clause: `is declared as float32[4, 3], and holds int64[4, 3]`.
    """
    tensor = held(value)
    if tensor is None or not is_misdeclared(value):
        return None
    declared = "no tensor" if value.dtype is None and value.type else _shaped(value)
    return f"is declared as {declared}, and holds {_shaped(tensor)}"


def _shaped(given: ir.Value | ir.TensorProtocol) -> str:
    dtype = "a tensor" if given.dtype is None else dtype_name(given.dtype)
    if given.shape is None:
        return dtype
    dims = (dim if isinstance(dim, int) else dim.value or "?" for dim in given.shape)
    return f"{dtype}[{', '.join(map(str, dims))}]"
