"""Groups of element types, and their names as people write them."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.core.misdeclared import held, is_misdeclared
from onnx_kvtool.core.record import Form, Misfit
from onnx_kvtool.ops.traits import traits

__all__ = [
    "DTYPE_FORM",
    "DTYPE_NAMES",
    "ELEMENT_TYPE_ATTRIBUTES",
    "EXACT",
    "FLOAT_TYPES",
    "SIZE_TYPES",
    "WHOLE_TYPES",
    "contradiction",
    "dtype_name",
    "dtype_named",
    "given_type",
]

ELEMENT_TYPE_ATTRIBUTES = frozenset(
    {
        "dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type",
        "to",
    }
)  # fmt: skip
"""Attributes whose integer is the number of an element type, in every operator that has them."""

SIZE_TYPES = frozenset({ir.DataType.INT64, ir.DataType.INT32})
"""Types of sizes and indices."""

WHOLE_TYPES = SIZE_TYPES | {ir.DataType.BOOL}
"""Types of what graphs compute sizes and indices with."""

FLOAT_TYPES = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)
"""Types that models compute in."""

EXACT = 256
"""Up to this size integers are exact in each of `FLOAT_TYPES`, and so are sums that stay below."""


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


def _read(name: str) -> ir.DataType:
    found = dtype_named(name)
    if found is None:
        raise Misfit(f"is {name!r}, expected the name of an element type")
    return found


DTYPE_FORM = Form(str, dtype_name, _read)
"""How reports have an element type."""


_CONSTANTS = {
    "value_float": ir.DataType.FLOAT,
    "value_floats": ir.DataType.FLOAT,
    "value_int": ir.DataType.INT64,
    "value_ints": ir.DataType.INT64,
    "value_string": ir.DataType.STRING,
    "value_strings": ir.DataType.STRING,
}
"""Attributes of Constant that have one element type each."""


def given_type(node: ir.Node) -> ir.DataType | int | None:
    """Return the element type of an output that stands in an attribute, as that of Cast does.

    Returns:
        The type; or the position of the input that has the same one, as EyeLike says by leaving the
        attribute out; None for all other operators, and where the attribute is that of a function's
        caller or names no type.
    """
    source = traits(node).element_type
    if source is None:
        return None
    attribute = node.attributes.get(source.attribute)
    if attribute is None:
        known = (dtype for name, dtype in _CONSTANTS.items() if name in node.attributes)
        return next(known, source.otherwise) if node.op_type == "Constant" else source.otherwise
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        dtype: ir.DataType = attribute.value.dtype  # `as_tensor()` asks for the size
        return dtype
    if attribute.type != ir.AttributeType.INT:
        return None
    try:
        return ir.DataType(attribute.as_int())
    except ValueError:
        return None


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
