"""The sources of the values of inputs and attributes: `NAME=SPEC`."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.core.words import (
    closest,
    counted,
    did_you_mean,
    enumerated,
    missing_file_help,
    unknown_name,
)
from onnx_kvtool.evaluation.literal import literal_array, natural_dtype, parse_json
from onnx_kvtool.model_io.atomic import is_pipe, patient
from onnx_kvtool.model_io.protobuf import DecodeError
from onnx_kvtool.model_io.source import read_bytes
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.ops.traits import DTYPE_NAMES, ELEMENT_TYPE_ATTRIBUTES, dtype_name, dtype_named
from onnx_kvtool.runtime.engine.arrays import text_objects
from onnx_kvtool.runtime.engine.borrowed import element_type
from onnx_kvtool.runtime.sessions import Array

# The source of the value of an input: `NAME=SPEC`.


_PREFIX = re.compile(r"([A-Za-z]\w*):(.*)", re.DOTALL | re.ASCII)
_JSON_START = (*'[{"-0123456789', "true", "false", "null", "NaN", "Infinity")


@contextmanager
def about(what: str) -> Iterator[None]:
    """Say in errors of wrong usage what the value is for."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", help=error.help) from error


class Given(NamedTuple):
    """A value from the command line; its element type may depend on the input that it is for.

    Attributes:
        text: The user's text, for messages.
        dtype: The element type that the user named; None if none.
        array: The content of a file; None for a literal.
        literal: Nested lists; None for a file.
    """

    text: str
    dtype: ir.DataType | None
    array: Array | None = None
    literal: Any = None

    @property
    def is_absent(self) -> bool:
        """Whether it is JSON's `null`, for an absent optional input."""
        return self.array is None and self.literal is None

    def natural(self) -> ir.DataType:
        """Return the element type of the value itself.

        Raises:
            UsageError: If a literal mixes kinds, or a file contains raw bytes or a type that ONNX
                does not have.
        """
        if self.dtype is not None:
            return self.dtype
        if self.array is None:
            return natural_dtype(self.literal)
        found = element_type(self.array.dtype)
        if found is None:
            raise UsageError(f"`{self.text}` contains {_content(self.array)}", help=_HELP_RAW)
        return found

    def value(self, declared: ir.DataType | None) -> Array:
        """Return the value as an array.

        The values of a file are never converted. Raw bytes (numpy saves bfloat16 as `V2`) get the
        element type that the user named, else the declared one. Unsigned integers are the bits of a
        floating-point type that numpy lacks, if the user named one.

        Args:
            declared: The element type of the input; None if unknown.

        Raises:
            UsageError: If a literal does not fit the type, or a file has another type than the
                user named.
        """
        target = self.dtype if self.dtype is not None else declared
        if self.array is None:
            return literal_array(self.literal, self.natural() if target is None else target)
        if self.array.dtype.kind == "V" and element_type(self.array.dtype) is None:
            if target is None or self.array.dtype.names is not None:
                raise UsageError(f"`{self.text}` contains {_content(self.array)}", help=_HELP_RAW)
            wanted = target.numpy()
            if not wanted.hasobject and wanted.itemsize == self.array.dtype.itemsize:
                return self.array.view(wanted)
            raise self._unfit(self.array, target)
        found = self.natural() if self.dtype is None else element_type(self.array.dtype)
        if self.dtype is None or found == self.dtype:
            return self.array
        if _stores_bits(self.array.dtype, self.dtype):
            return self.array.view(self.dtype.numpy())
        raise self._unfit(self.array, self.dtype)

    def _unfit(self, array: Array, expected: ir.DataType) -> UsageError:
        return UsageError(
            f"`{self.text}` contains {_content(array)}, expected {dtype_name(expected)}"
        )


_HELP_RAW = "put an element type that ONNX has in front, as in `bfloat16:cache.npy`"


def read_spec(text: str) -> Given:
    """Read the value of a `SPEC`: a file, or a literal.

    `x.npy`, `x.npz:key` and `x.pb` (a TensorProto) are files, everything else is JSON. An element
    type may stand in front of each, as in `float16:[1, 2]`.

    Raises:
        UsageError: If it is neither a file nor JSON, or a `.npz` has no such key.
        UnreadableModel: If a file cannot be read.
    """
    dtype, rest = _split(text)
    path, key = _file(rest)
    try:
        if key is not None:
            return Given(text, dtype, array=_from_npz(path, key))
        if path.lower().endswith(".npy"):
            with open(path, "rb", opener=patient) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            return Given(text, dtype, array=_checked_array(array, path))
        if path.lower().endswith(".pb"):
            return Given(text, dtype, array=_from_pb(path))
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error
    if path:
        raise UsageError(
            f"`{text}` names no array of the file", help=f"name one, as in `{rest}:KEY`"
        )
    if not rest.lstrip().startswith(_JSON_START):
        raise UsageError(
            f"`{text}` is neither a file (.npy, .npz:KEY, .pb) nor a JSON literal such as `[1, 2]`"
        )
    return Given(text, dtype, literal=parse_json(rest))


def spec_file(text: str) -> str | None:
    """Return the path of the file that a SPEC names; None for a literal."""
    return _file(_split(text)[1])[0] or None


def _file(rest: str) -> tuple[str, str | None]:
    """Return the path of a file, "" for a literal, and the key in an archive, None for none."""
    if rest.lstrip().startswith(("[", "{", '"')):
        return "", None  # a literal, whatever its text resembles
    path, is_archive, key = rest.partition(".npz:")
    if is_archive:
        return f"{path}.npz", key
    return (rest if rest.lower().endswith((".npy", ".npz", ".pb")) else ""), None


def _split(text: str) -> tuple[ir.DataType | None, str]:
    """Split off the element type in front, if there is one."""
    match = _PREFIX.fullmatch(text)
    if match is None:
        return None, text
    name, rest = match.groups()
    dtype = dtype_named(name)
    if dtype is not None:
        return dtype, rest
    if not rest.lstrip().startswith(_JSON_START):
        return None, text  # part of a path, such as a drive
    raise UsageError(
        f"there is no element type `{name}`",
        help=did_you_mean(name, DTYPE_NAMES, f"there are {', '.join(DTYPE_NAMES)}"),
    )


def _from_npz(path: str, key: str) -> Array:
    if is_pipe(path):
        raise OSError("an archive cannot be read from a pipe")
    with np.load(path, allow_pickle=False) as arrays:
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise UnreadableModel(f"`{path}` is no archive of arrays")
        if key in arrays.files:
            return _checked_array(arrays[key], f"{path}:{key}")
        names = list(arrays.files)
    near = closest(key, names)
    known = f"it contains {enumerated(names, 8)}" if names else "it is empty"
    raise UsageError(
        f"`{path}` contains no array `{key}`",
        help=f"did you mean `{path}:{near}`?" if near else known,
    )


_UNREADABLE: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    MemoryError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy raises for damaged files, and `to_array` for types and values that do not fit."""


def _from_pb(path: str) -> Array:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(read_bytes(path))
    except DecodeError as error:
        raise UnreadableModel(f"`{path}` is no TensorProto") from error
    if not tensor.data_type:
        raise UnreadableModel(f"`{path}` is no TensorProto: it has no element type")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise UnreadableModel(
            f"`{path}` refers to another file for its values",
            help="save the values in the TensorProto itself",
        )
    return _checked_array(numpy_helper.to_array(tensor), path)


def _unreadable(path: str, error: Exception) -> UnreadableModel:
    if isinstance(error, FileNotFoundError):
        suffix = os.path.splitext(path)[1]
        return UnreadableModel(f"`{path}` does not exist", help=missing_file_help(path, suffix))
    if isinstance(error, IsADirectoryError):
        return UnreadableModel(f"`{path}` is a directory, not a file of values")
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()
    return UnreadableModel(f"`{path}` cannot be read: {reason[0].rstrip('.')}")


def _checked_array(array: Any, where: str) -> Array:
    """Return an array as kernels take it: native byte order, strings as objects."""
    checked: np.ndarray[Any, Any] = np.asarray(array)
    if checked.dtype.kind in "US" or checked.dtype == object:
        try:
            return text_objects(checked)
        except UnicodeDecodeError as error:
            raise UnreadableModel(f"`{where}` contains text that is not UTF-8") from error
    return checked if checked.dtype.isnative else checked.astype(checked.dtype.newbyteorder("="))


def _stores_bits(stored: np.dtype[Any], wanted: ir.DataType) -> bool:
    """Return whether unsigned integers may be the bits of a type that numpy lacks."""
    return (
        stored.kind == "u"
        and wanted.is_floating_point()
        and wanted.numpy().isbuiltin == 2  # one of ml_dtypes
        and wanted.bitwidth == 8 * stored.itemsize
    )


def _content(array: Array) -> str:
    if array.dtype.names is not None:
        return "records"
    if array.dtype.kind == "V" and element_type(array.dtype) is None:
        return f"raw elements of {array.dtype.itemsize} bytes"
    found = element_type(array.dtype)
    return str(array.dtype) if found is None else dtype_name(found)


# Attributes as text, typed by the schema.


_TYPES = ir.AttributeType

_ELEMENTS = {
    _TYPES.INT: ir.DataType.INT64,
    _TYPES.INTS: ir.DataType.INT64,
    _TYPES.FLOAT: ir.DataType.FLOAT,
    _TYPES.FLOATS: ir.DataType.FLOAT,
    _TYPES.STRINGS: ir.DataType.STRING,
}


def attribute(facts: OpFacts, name: str, text: str) -> ir.Attr:
    """Return an attribute of an operator from its value as text.

    Args:
        facts: The operator.
        name: The attribute.
        text: A number for an integer or a float (for an element type, its name too); the text
            itself for a string; a JSON list for lists; a SPEC, as for inputs, for a tensor.

    Raises:
        UsageError: If the operator has no such attribute, it is a graph or a type, or the text is
            no value of its type.
        UnreadableModel: If the file of a tensor cannot be read.
    """
    declared = facts.attributes.get(name)
    if declared is None:
        raise unknown_name(
            f"{facts.op_type} has no attribute `{name}`", name, sorted(facts.attributes)
        )
    kind = _TYPES(declared.type)
    with about(f"attribute `{name}`"):
        return ir.Attr(name, kind, _value(name, kind, text))


def _value(name: str, kind: ir.AttributeType, text: str) -> Any:
    if kind is _TYPES.STRING:
        return text
    if kind is _TYPES.TENSOR:
        return ir.tensor(np.asarray(read_spec(text).value(None)), name=name)
    element = _ELEMENTS.get(kind)
    if element is None:
        raise UsageError(
            f"a {kind.name.lower().replace('_', ' ')} cannot be given on the command line",
            help="evaluate a model that contains the node",
        )
    if (
        kind is _TYPES.INT
        and name in ELEMENT_TYPE_ATTRIBUTES
        and (named := dtype_named(text)) is not None
    ):
        return int(named)
    values = literal_array(parse_json(text), element)
    expected = 0 if kind in (_TYPES.INT, _TYPES.FLOAT) else 1
    if values.ndim != expected:
        wanted = "a list" if expected else "a single value"
        raise UsageError(f"`{text}` has {counted(values.ndim, 'dimension')}, expected {wanted}")
    return values.tolist()
