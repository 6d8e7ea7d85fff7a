"""Names, types, attributes and contents of tensors in onnx's syntax, and digests."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.choices import PrintedWeights
from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.words import escape
from onnx_kvtool.model_io.external_data import ReferenceJudge
from onnx_kvtool.model_io.remote import RemoteFile, beside, is_remote
from onnx_kvtool.model_io.stored import digest, file_pieces
from onnx_kvtool.model_io.verbatim import SparseInitializer

# The syntax that `onnx.parser` reads. onnx's printer omits default values of function attributes,
# and all metadata below the model; it writes all values on one line, and fails for text that is not
# UTF-8.


_A = onnx.AttributeProto
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_TYPE_WORDS = frozenset(
    {name.lower() for name in onnx.TensorProto.DataType.keys()}  # noqa: SIM118  no mapping
    | {"seq", "map", "optional", "sparse_tensor", "opaque"}
)


def quoted(text: str | bytes) -> str:
    r"""Return text between quotes, with escapes for what is not printable (`\n`, `\xff`).

    Examples:
        >>> from onnx_kvtool.review.digests import quoted
        >>> print(quoted('say "hi"'))
        "say \"hi\""
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return escape('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')


def identifier(name: str) -> str:
    """Return the name of a value, node, graph or dimension, with quotes if it needs them."""
    if _NAME.fullmatch(name) and name not in _TYPE_WORDS:
        return name
    return quoted(name)


def word(text: str) -> str:
    """Return a domain, or the name of an operator or attribute.

    The syntax never quotes them. kvtool quotes an impossible name, so that it stays one word.
    """
    return text if _WORD.fullmatch(text) else quoted(text)


def number(value: float) -> str:
    """Return the shortest text for a float32."""
    return str(np.float32(value))


def attribute_head(attribute: onnx.AttributeProto) -> str:
    """Return the beginning of the text of an attribute: `axis: int = `."""
    kind = _A.AttributeType.Name(attribute.type).lower()
    return f"{word(attribute.name)}: {kind} = "


def scalar_attribute(attribute: onnx.AttributeProto) -> str | None:
    """Return an attribute in one line: `axis: int = 1`; None if it holds tensors or graphs.

    A reference to an attribute of the enclosing function is `axis: int = @axis`.
    """
    head, kind = attribute_head(attribute), _A.AttributeType.Name(attribute.type)
    if attribute.ref_attr_name:
        return f"{head}@{word(attribute.ref_attr_name)}"
    show = _SHOWN.get(kind.removesuffix("S"))
    if show is None:
        return None
    value = onnx.helper.get_attribute_value(attribute)
    return head + (f"[{', '.join(map(show, value))}]" if kind[-1] == "S" else show(value))


def type_text(type_: onnx.TypeProto) -> str:
    """Return the type of a value: `float[N,3]`, `float[]` for an unknown rank, `seq(float[N])`."""
    kind = type_.WhichOneof("value")
    if kind == "tensor_type":
        return _tensor_type(type_.tensor_type)
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({_tensor_type(type_.sparse_tensor_type)})"
    if kind == "sequence_type":
        return f"seq({type_text(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_text(type_.optional_type.elem_type)})"
    if kind == "map_type":
        key = onnx.TensorProto.DataType.Name(type_.map_type.key_type).lower()
        return f"map({key}, {type_text(type_.map_type.value_type)})"
    return f"opaque({escape(str(type_).strip())})" if kind else ""


def _tensor_type(type_: onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor) -> str:
    name = onnx.TensorProto.DataType.Name(type_.elem_type).lower()
    if not type_.HasField("shape"):
        return f"{name}[]"
    dims = [_dim(dim) for dim in type_.shape.dim]
    return f"{name}[{','.join(dims)}]" if dims else name


def _dim(dim: onnx.TensorShapeProto.Dimension) -> str:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return str(dim.dim_value)
    return identifier(dim.dim_param) if kind and dim.dim_param else "?"


_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "INT": str,
    "FLOAT": number,
    "STRING": quoted,
    "TYPE_PROTO": type_text,
}
"""Functions that make the text of attributes; those of lists have an S behind."""


# The content of a tensor in one line: a few values, or a digest.


CHUNK = 1 << 22
"""Bytes of a tensor to read at a time; whole elements of each type."""

_SHOWN_WHOLE, _SHOWN_FLOATS = 16, 4
"""Up to so many elements are shown by value: sizes, axes and scalars."""
_DIGITS = 32
_UNREAD = '["sha256": "?"]'
_DIGESTED = frozenset({ir.DataType.UNDEFINED, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128})


class Digests:
    """Returns the contents of tensors, and reads each of them once.

    Args:
        weights: `digest` reads every tensor. `embedded` reads those in the model file, and returns
            the location of others. `none` reads only tensors that are shown by value.
        require: Whether a missing data file is an error.

    Attributes:
        missing: Messages about tensors whose data file is missing, and whose location stands in
            for the content.
    """

    def __init__(self, weights: PrintedWeights = "digest", *, require: bool = False) -> None:
        self.weights = weights
        self.missing: list[str] = []
        self._require = require
        self._judge = ReferenceJudge(need_bytes=True)
        self._known: dict[object, tuple[str, str]] = {}
        self._alive: list[ir.TensorProtocol] = []

    def content(self, tensor: ir.TensorProtocol) -> tuple[str, str]:
        """Return the content of a tensor in ONNX's syntax, and a remark for people.

        Two tensors of one type and shape have equal values if the first texts are equal.

        Raises:
            UnreadableModel: If external data is needed and cannot be trusted, or is missing with
                `require`.
        """
        key = self._key(tensor)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._content(tensor)
            self._alive.append(tensor)  # so that no other one gets its id
        return found

    def _key(self, tensor: ir.TensorProtocol) -> object:
        if isinstance(tensor, ir.ExternalTensor):
            try:
                path = os.path.realpath(tensor.path)
            except ValueError:  # a location with NUL, which names no file
                return id(tensor)
            shape = tuple(tensor.shape.numpy())
            return path, tensor.offset, tensor.length, tensor.dtype, shape, str(tensor.location)
        return id(tensor)

    def _content(self, tensor: ir.TensorProtocol) -> tuple[str, str]:
        if isinstance(tensor, ir.ExternalTensor):
            if self.weights == "none":
                return _UNREAD, ""
            if self.weights == "embedded":
                return _place(tensor), ""
            if problem := self._judge.judge(tensor):
                if self._require or problem.code != "external-missing":
                    raise UnreadableModel(f"`{tensor.name}`: {problem.message}", help=problem.help)
                self.missing.append(f"`{tensor.name}`: {problem.message}")
                return _place(tensor), ""
        if (shown := _by_value(tensor)) is not None:
            return shown
        if self.weights == "none":
            return _UNREAD, ""
        return f'["sha256": "{sha256(tensor)}"]', ""


def _place(tensor: ir.ExternalTensor) -> str:
    entries = [f'"location": {quoted(os.fspath(tensor.location))}']
    entries += [f'"offset": "{tensor.offset}"'] if tensor.offset else []
    entries += [f'"length": "{tensor.length}"'] if tensor.length is not None else []
    return f"[{', '.join(entries)}]"


def sha256(tensor: ir.TensorProtocol) -> str:
    """Return the first 128 bits of the SHA-256 of the values, in hexadecimal.

    It covers the bytes of `raw_data`, whatever field or file stores them; for strings, the lengths
    and the texts.
    """
    return digest(chunks(tensor))[:_DIGITS]


def chunks(tensor: ir.TensorProtocol, size: int = CHUNK) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a tensor as `raw_data` has them, `size` at a time but for the last.

    Reading external data is safe only if `ReferenceJudge` accepts it.

    Raises:
        UnreadableModel: If the file ends early or cannot be read.
    """
    if isinstance(tensor, ir.ExternalTensor):
        yield from _from_file(tensor, size)
    elif isinstance(tensor, SparseInitializer):
        for part in (tensor.raw.indices, tensor.raw.values):
            yield str(list(part.dims)).encode()
            yield from chunks(ir.TensorProtoTensor(part), size)
    else:
        yield from _sliced(_stored_bytes(tensor), size)


def _sliced(data: bytes, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), size):
        yield view[start : start + size]


def _from_file(tensor: ir.ExternalTensor, size: int) -> Iterator[bytes]:
    left = tensor_bytes(tensor)
    base, start = os.fspath(tensor.base_dir), tensor.offset or 0
    if is_remote(base):
        remote = RemoteFile(beside(base, os.fspath(tensor.location)))
        try:
            for piece in remote.pieces(start, start + left):
                yield from map(bytes, _sliced(piece, size))
        finally:
            remote.close()
        return
    try:
        for piece in file_pieces(os.path.realpath(tensor.path), start, size):
            yield piece[:left]
            left -= min(len(piece), left)
            if not left:
                return
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableModel(f"the data of `{tensor.name}` cannot be read: {reason}") from error
    if left:
        raise UnreadableModel(f"the data file of `{tensor.name}` ends early")


def _stored_bytes(tensor: ir.TensorProtocol) -> bytes:
    if tensor.dtype == ir.DataType.STRING:
        texts = _texts(tensor)
        return b"".join(len(text).to_bytes(8, "little") + text for text in texts)
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, onnx.TensorProto) and raw.HasField("raw_data"):
        data: bytes = raw.raw_data
        return data
    try:
        return tensor.tobytes()
    except (ValueError, TypeError, AssertionError, AttributeError):
        if isinstance(raw, onnx.TensorProto):  # data that does not fit its shape
            return bytes(raw.SerializeToString(deterministic=True))
        raise


def is_whole(tensor: ir.TensorProtocol) -> bool:
    """Return whether a tensor has as many bytes as its shape takes; external ones count as such."""
    if isinstance(tensor, ir.ExternalTensor):
        return True
    if isinstance(tensor, SparseInitializer):
        return False
    return len(_stored_bytes(tensor)) == tensor_bytes(tensor)


def _texts(tensor: ir.TensorProtocol) -> list[bytes]:
    # Not through numpy, which fails if there are fewer texts than elements.
    raw = getattr(tensor, "raw", None)
    stored = raw.string_data if isinstance(raw, onnx.TensorProto) else None
    if stored is None and isinstance(tensor, ir.StringTensor):
        stored = tensor.string_data()
    values = list(stored) if stored is not None else tensor.numpy().reshape(-1).tolist()
    return [value if isinstance(value, bytes) else str(value).encode() for value in values]


def _by_value(tensor: ir.TensorProtocol) -> tuple[str, str] | None:
    """Return the values of a small tensor in ONNX's syntax; None for others."""
    if isinstance(tensor, SparseInitializer):
        return None
    dtype, shape = tensor.dtype, tensor.shape.numpy()
    # ONNX text writes floats of 8 and 16 bits as integers with the same bits, and none of fewer.
    width = dtype.bitwidth if dtype.is_floating_point() else 0
    if dtype in _DIGESTED or 0 < width < 8:
        return None
    count = math.prod(shape)
    if not 0 <= count <= (_SHOWN_FLOATS if width else _SHOWN_WHOLE):
        return None
    if dtype == ir.DataType.STRING:
        texts = _texts(tensor)
        return ("{" + ", ".join(map(quoted, texts)) + "}", "") if len(texts) == count else None
    data = b"".join(map(bytes, chunks(tensor)))
    if len(data) != tensor_bytes(tensor):
        return None
    values = decoded(data, dtype, count)
    if width in (8, 16):
        bits = np.frombuffer(data, f"<u{len(data) // count}") if data else ()
        return _listed(map(str, bits)), ", ".join(str(float(v)) for v in values)
    if width:
        return None if np.isnan(values).any() else (_listed(map(str, values)), "")
    return _listed(str(int(v)) for v in values), ""


def _listed(texts: Iterator[str]) -> str:
    return "{" + ",".join(texts) + "}"


def decoded(data: bytes | memoryview, dtype: ir.DataType, count: int) -> np.ndarray[Any, Any]:
    """Return `count` elements from bytes as in `raw_data`, flat."""
    message = onnx.TensorProto(data_type=int(dtype), dims=[count], raw_data=bytes(data))
    values: np.ndarray[Any, Any] = ir.TensorProtoTensor(message).numpy()
    return values
