"""Literal values, as JSON or as nested Python lists, and values in a `.npz` file."""

from __future__ import annotations

import json
import math
import os
import zipfile
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import UnwritableOutput, UsageError
from onnx_kvtool.model_io.atomic import replacing
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.kernels.conversion.cast import convert
from onnx_kvtool.runtime.kernels.conversion.rounding import INTEGER_RANGES, OVERFLOW, finfo
from onnx_kvtool.runtime.kernels.kernel import Array, Dtype, Named, Value

# Values in a `.npz` file.


_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every member, so that equal values give equal files."""


def save_values(target: str | os.PathLike[str], values: Named) -> None:
    """Write values as a `.npz` file that `numpy.load` reads without pickle, atomically.

    Types that numpy lacks are written as raw bytes (`V2` for bfloat16, `V1` for the narrower ones,
    one element to a byte): `load(...)[name].view(ml_dtypes.bfloat16)` reads them. Strings become
    numpy's fixed-width text. The elements of a sequence are named `name[0]`, `name[1]`, ...; an
    empty optional is omitted.

    Args:
        target: Path of the file; an existing file is replaced.
        values: By name, as an evaluator returns them.

    Raises:
        UnwritableOutput: If the system refuses, or a string ends in a null character, which
            numpy's text drops; nothing is left behind.
    """
    with replacing(target) as file, zipfile.ZipFile(file, "w") as archive:
        for name, value in values.items():
            for member, array in _members(name, value):
                # With a date of its own, which `writestr` takes from the clock.
                info = zipfile.ZipInfo(f"{member}.npy", date_time=_EPOCH)
                with archive.open(info, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, _plain(member, array), allow_pickle=False)


def _members(name: str, value: Value) -> list[tuple[str, Array]]:
    if isinstance(value, list):
        return [m for i, item in enumerate(value) for m in _members(f"{name}[{i}]", item)]
    return [] if value is None else [(name, np.asarray(value))]


def _plain(name: str, array: Array) -> Array:
    """Return an array in a dtype that numpy can write and read again."""
    if array.dtype == object:
        texts = [str(text) for text in array.ravel().tolist()]
        if any(text.endswith("\0") for text in texts):
            raise UnwritableOutput(
                f"a string of `{name}` ends in a null character, which no .npz file can store"
            )
        return np.array(texts, np.str_).reshape(array.shape)
    if array.dtype.isbuiltin != 2:
        return array
    raw: Dtype = np.dtype(f"V{array.dtype.itemsize}")
    return np.ascontiguousarray(array).reshape(array.shape).view(raw)


# Literal values, as JSON or as nested Python lists.


class Decimals(str):
    """A number with a fraction or an exponent, kept as it was written."""

    __slots__ = ()


_SPECIAL = {"nan", "inf", "-inf", "+inf", "infinity", "-infinity", "+infinity"}
_MAX_RANK = 32
"""Dimensions that every numpy can hold."""


def parse_json(text: str) -> Any:
    """Return JSON as nested lists of bool, int, str and `Decimals`, so that no digit is lost.

    `NaN`, `Infinity` and `-Infinity` are read as numbers.

    Raises:
        UsageError: If `text` is no JSON.
    """
    try:
        return json.loads(text, parse_float=Decimals, parse_constant=Decimals)
    # The last for nesting that is deeper than the interpreter's stack.
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(":")[0].lower()
        raise UsageError(f"`{_short(text)}` is no JSON: {reason}") from error


def natural_dtype(data: Any) -> ir.DataType:
    """Return the element type of a literal without other facts.

    Booleans are bool, text is string, integers are int64. Numbers are float32 if one has a
    fraction or an exponent; so is a literal without elements.

    Raises:
        UsageError: If numbers, booleans and text are mixed.
    """
    kinds = {_kind(leaf) for leaf in _flat(data)[0]}
    if kinds <= {"integer", "number"}:
        return ir.DataType.INT64 if kinds == {"integer"} else ir.DataType.FLOAT
    if len(kinds) > 1:
        raise UsageError(f"the literal mixes {' and '.join(sorted(kinds))}s")
    (kind,) = kinds
    if kind not in ("boolean", "string"):
        raise UsageError(f"the literal has {kind}, expected numbers, booleans or strings")
    return ir.DataType.BOOL if kind == "boolean" else ir.DataType.STRING


def literal_array(data: Any, dtype: ir.DataType) -> Array:
    """Return nested lists as an array.

    Numbers for floating-point types are rounded once, to the nearest, ties to even, from the
    decimals that were written; text `nan`, `inf` and `-inf` (any case) stands for those values.
    Complex numbers are numbers or text such as `1+2j`. Everything else must fit exactly: integers
    and whole numbers such as `2.0` for integer types; true, false, 1 and 0 for bool; text for
    string.

    Args:
        data: A leaf, or lists of equal lengths at each depth: bool, int, float, str, `Decimals`.
        dtype: The element type.

    Raises:
        UsageError: If the lists are ragged, or the type cannot represent a leaf: of another kind,
            out of range, or an infinity or NaN that the type does not have.
    """
    leaves, shape = _flat(data)
    target: Dtype = dtype.numpy()
    if dtype == ir.DataType.STRING:
        flat = np.empty(len(leaves), object)
        flat[:] = [_text(leaf) for leaf in leaves]
    elif dtype == ir.DataType.BOOL:
        flat = np.array([_flag(leaf) for leaf in leaves], np.bool_)
    elif target in INTEGER_RANGES:
        least, highest = INTEGER_RANGES[target]
        numbers = [_whole(leaf, least, highest, dtype) for leaf in leaves]
        # Through 64 bits: the types of ml_dtypes take no list of Python integers.
        wide = np.int64 if least < 0 else np.uint64
        flat = np.array(numbers, wide).astype(target)
    elif dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        flat = np.array([_complex(leaf) for leaf in leaves], np.complex128).astype(target)
    else:
        flat = _floats(leaves, dtype)
    return flat.reshape(shape)


def _flat(data: Any) -> tuple[list[Any], list[int]]:
    """Return the elements in order, and the shape.

    Raises:
        UsageError: If the lists are ragged, or too deep.
    """
    level: list[Any] = [data]
    shape: list[int] = []
    while lists := [item for item in level if isinstance(item, (list, tuple))]:
        lengths = {len(item) for item in lists}
        if len(lengths) > 1 or len(lists) < len(level):
            what = "lengths" if len(lengths) > 1 else "depths"
            raise UsageError(f"the lists of the literal have different {what}")
        shape += lengths
        if len(shape) > _MAX_RANK:
            raise UsageError(f"the literal has more than {_MAX_RANK} dimensions")
        level = [element for item in lists for element in item]
    return [leaf.item() if isinstance(leaf, np.generic) else leaf for leaf in level], shape


def _kind(leaf: Any) -> str:
    if isinstance(leaf, bool):
        return "boolean"
    if isinstance(leaf, int):
        return "integer"
    if isinstance(leaf, (Decimals, float)):
        return "number"
    return "string" if isinstance(leaf, str) else _spoken(leaf)


def _floats(leaves: list[Any], dtype: ir.DataType) -> Array:
    target: Dtype = dtype.numpy()
    texts = np.empty(len(leaves), object)
    texts[:] = [_decimals(leaf, dtype) for leaf in leaves]
    with np.errstate(all="ignore"):
        values = convert(texts, target, saturate=False, round_mode="nearest")
    wide = values.astype(np.float64)
    for text, value in zip(texts.tolist(), wide.tolist(), strict=True):
        meant = float(text)
        is_exact = math.isnan(value) if math.isnan(meant) else _holds(target, meant, value)
        if not is_exact or (math.isinf(value) and "inf" not in text.lower()):
            raise _out_of_range(text, dtype)
    return values


def _holds(target: Dtype, meant: float, value: float) -> bool:
    """Return whether `value` is `meant` rounded, and not the replacement of one out of range."""
    if math.isnan(value):
        return False
    if target == ml_dtypes.float8_e8m0fnu:
        return meant > 0  # neither zero nor a sign
    if OVERFLOW.get(target) == "largest":
        limits = finfo(target)
        step = 2.0 ** (limits.maxexp - 1 - limits.nmant)
        return bool(abs(meant) < float(limits.max) + step / 2)
    return not math.isinf(meant) or math.isinf(value)


def _decimals(leaf: Any, dtype: ir.DataType) -> str:
    kind = _kind(leaf)
    if kind == "integer" or isinstance(leaf, Decimals):
        text = str(leaf)
    elif kind == "number":
        text = repr(leaf)
    elif kind == "string" and leaf.strip().lower() in _SPECIAL:
        text = leaf.strip()
    else:
        raise _unfit(leaf, dtype)
    return text.lower().replace("infinity", "inf")


def _whole(leaf: Any, least: int, highest: int, dtype: ir.DataType) -> int:
    if _kind(leaf) not in ("integer", "number"):
        raise _unfit(leaf, dtype)
    # A decimal with a large exponent is compared without being written out.
    number = Decimal(repr(leaf) if isinstance(leaf, float) else leaf)
    if not number.is_finite():
        raise _out_of_range(leaf, dtype)
    if not least <= number <= highest:
        raise _out_of_range(leaf, dtype, f", expected {least} to {highest}")
    if number != int(number):
        raise UsageError(f"the literal has {leaf}, which is no integer, for {dtype_name(dtype)}")
    return int(number)


def _flag(leaf: Any) -> bool:
    if isinstance(leaf, bool) or (_kind(leaf) == "integer" and leaf in (0, 1)):
        return bool(leaf)
    raise _unfit(leaf, ir.DataType.BOOL)


def _text(leaf: Any) -> str:
    if _kind(leaf) != "string":
        raise _unfit(leaf, ir.DataType.STRING)
    return str(leaf)


def _complex(leaf: Any) -> complex:
    try:
        if isinstance(leaf, (str, int, float, complex)) and not isinstance(leaf, bool):
            return complex(leaf)
    except (ValueError, OverflowError):
        pass
    raise _unfit(leaf, ir.DataType.COMPLEX128)


def _unfit(leaf: Any, dtype: ir.DataType) -> UsageError:
    return UsageError(
        f"the literal has {_spoken(leaf)}, which {dtype_name(dtype)} cannot represent"
    )


def _out_of_range(leaf: Any, dtype: ir.DataType, expected: str = "") -> UsageError:
    return UsageError(
        f"the literal has {_spoken(leaf)}, which is out of the range of {dtype_name(dtype)}"
        f"{expected}"
    )


def _spoken(leaf: Any) -> str:
    """Return a leaf as the user wrote it."""
    if leaf is None:
        return "null"
    if isinstance(leaf, bool):
        return "true" if leaf else "false"
    if isinstance(leaf, dict):
        return "an object"
    if isinstance(leaf, str) and not isinstance(leaf, Decimals):
        return json.dumps(leaf)
    return _short(str(leaf))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
