"""Whether what a tensor message claims about itself can be true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import onnx

from onnx_kvtool.core.errors import MalformedModel
from onnx_kvtool.core.judging.judgement import Judgement, require_text
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.quantity import counted
from onnx_kvtool.core.storage import ELEMENT_TYPES, element_count, stored_bytes

__all__ = ["judge_tensor", "unknown_type"]

_EXTERNAL = onnx.TensorProto.EXTERNAL
_NUMBER = re.compile(r"[0-9]{1,19}")
_CARRIED_KEYS = frozenset({"location", "offset", "length"})

# Field with typed data -> elements that one entry stands for, by element type; 1 when not listed.
# `TensorProto` of onnx: complex numbers take two entries, packed types share one.
_COMPLEX64, _COMPLEX128 = onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128
_T = onnx.TensorProto
_FIELDS = ("float_data", "int32_data", "int64_data", "string_data", "double_data", "uint64_data")
# The field for the elements of a type; the types that are not listed stand in `int32_data`.
_FIELD_OF: dict[int, str] = {
    **dict.fromkeys((_T.FLOAT, _T.COMPLEX64), "float_data"),
    **dict.fromkeys((_T.DOUBLE, _T.COMPLEX128), "double_data"),
    **dict.fromkeys((_T.UINT32, _T.UINT64), "uint64_data"),
    _T.INT64: "int64_data",
    _T.STRING: "string_data",
}
_PER_ENTRY: dict[int, int] = {
    onnx.TensorProto.UINT4: 2,
    onnx.TensorProto.INT4: 2,
    onnx.TensorProto.FLOAT4E2M1: 2,
    onnx.TensorProto.UINT2: 4,
    onnx.TensorProto.INT2: 4,
}


def unknown_type(dtype: int, location: Location) -> MalformedModel:
    """Return the error for an element type that neither onnx nor onnx_ir knows."""
    return MalformedModel(
        f"{location}: element type {dtype} is unknown to onnx {onnx.__version__}",
        help="install newer versions of onnx and onnx-ir, or export with a released type",
    )


def judge_tensor(tensor: onnx.TensorProto, found: Judgement, location: Location) -> bool:
    """Judge one tensor message without looking at its values; return whether it is external.

    Raises:
        MalformedModel: If its element type is unknown, or the numbers that say where its
            external data lies are none.
    """
    if tensor.data_type not in ELEMENT_TYPES:
        raise unknown_type(tensor.data_type, location)
    if tensor.metadata_props:
        found.keys(tensor.metadata_props, location)
    found.fields(tensor, location)
    external = tensor.data_location == _EXTERNAL
    try:
        if external:
            stored_bytes(tensor.dims, tensor.data_type)
        else:
            for problem in _length_problems(tensor):
                found.add("tensor-data-length", location, problem)
        if misplaced := _misplaced_data(tensor, external):
            found.add("tensor-data-field", location, misplaced)
    except ValueError as flaw:
        found.add("bad-dims", location, f"has shape {list(tensor.dims)[:8]}, but {flaw}")
    if external:
        _external_entries(tensor, found, location)
    return external


def _length_problems(tensor: onnx.TensorProto) -> Iterator[str]:
    """Yield at most one sentence: data that does not fit the shape and the element type."""
    dims, dtype = tensor.dims, tensor.data_type
    shape = f"shape {list(dims)[:8]}"
    if tensor.HasField("raw_data"):
        wanted = stored_bytes(dims, dtype)
        if wanted is None:
            yield f"has raw data, which element type {dtype} cannot have"
        elif (got := len(tensor.raw_data)) != wanted:
            yield f"has {counted(got, 'byte')} of data, but {shape} takes {wanted:,}"
        return
    wanted = _entries(element_count(dims), dtype)
    got = sum(len(values) for values in _typed(tensor))
    if got != wanted:
        yield f"has {got} entries of data, but {shape} takes {wanted:,}"


def _misplaced_data(tensor: onnx.TensorProto, external: bool) -> str | None:
    """Return what is wrong with the fields in which the data stands; None for one right field.

    Readers look into one field, and not all into the same; the data in others is lost.
    """
    raw = tensor.HasField("raw_data")
    filled = [name for name, values in zip(_FIELDS, _typed(tensor), strict=True) if values]
    if external:
        if raw and tensor.raw_data:
            filled.insert(0, "raw_data")
        return f"is external and has data in `{filled[0]}` as well" if filled else None
    if raw:
        return f"has data in `raw_data` and in `{filled[0]}`" if filled else None
    wanted = _FIELD_OF.get(tensor.data_type, "int32_data")
    if len(filled) > 1:
        return f"has data in `{filled[0]}` and in `{filled[1]}`"
    if filled and filled[0] != wanted:
        name = onnx.TensorProto.DataType.Name(tensor.data_type)
        return f"has data in `{filled[0]}`, and elements of type {name} stand in `{wanted}`"
    return None


def _typed(tensor: onnx.TensorProto) -> tuple[Any, ...]:
    return (
        tensor.float_data,
        tensor.int32_data,
        tensor.int64_data,
        tensor.string_data,
        tensor.double_data,
        tensor.uint64_data,
    )


def _entries(count: int, dtype: int) -> int:
    if dtype in (_COMPLEX64, _COMPLEX128):
        return 2 * count
    per_entry = _PER_ENTRY.get(dtype, 1)
    return (count + per_entry - 1) // per_entry


def _external_entries(tensor: onnx.TensorProto, found: Judgement, location: Location) -> None:
    """Refuse entries that two readers would read differently, or that onnx_ir cannot hold.

    Python's `int` accepts signs, blanks, underscores and other alphabets, C++ readers do not; of
    two entries with one key some take the first and some the last.
    """
    seen: set[str] = set()
    for entry in tensor.external_data:
        key = entry.key
        require_text((key, entry.value), location.graph)
        if key in seen and key in _CARRIED_KEYS:
            raise MalformedModel(f"{location}: external data has two entries `{key}`")
        seen.add(key)
        if key in ("offset", "length") and not _NUMBER.fullmatch(entry.value):
            raise MalformedModel(
                f"{location}: the {key} of its external data is {entry.value[:40]!r}, "
                "not a decimal number of bytes",
                help="write it again with `onnx.save_model(..., save_as_external_data=True)`",
            )
    if not seen <= _CARRIED_KEYS:
        found.external.append(tensor)
