"""The bytes of a model file, read without onnx: other kinds of files, the wire format, names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from typing import NamedTuple

from onnx_kvtool.core.words import counted

# Other kinds of files that users name as a model, recognised by their first bytes.


class Flaw(NamedTuple):
    """Why bytes are no model: `what` follows the name of the file; `help` is the remedy."""

    what: str
    help: str | None


_EXPORT = "export it to ONNX first"
_OTHER = "name an ONNX model"
_BINARY = "save it in the binary form, as `onnx.save(model, 'model.onnx')` does"

# Offset, bytes at the offset, kind of file, remedy.
_MAGIC: tuple[tuple[int, bytes, str, str | None], ...] = (
    (
        0,
        b"version https://git-lfs.github.com/spec/",
        "is a Git LFS pointer",
        "run `git lfs pull` in its repository",
    ),
    (0, b"PK\x03\x04", "looks like a zip archive (a PyTorch checkpoint, or .npz)", _EXPORT),
    (0, b"\x80\x02", "looks like a Python pickle (an old PyTorch checkpoint)", _EXPORT),
    (0, b"\x93NUMPY", "looks like a NumPy array (.npy)", _OTHER),
    (0, b"GGUF", "looks like a GGUF file", _EXPORT),
    (0, b"\x89HDF\r\n\x1a\n", "looks like an HDF5 file (a Keras model)", _EXPORT),
    (0, b"\x1f\x8b", "looks like a gzip archive", "unpack it first"),
    (0, b"BZh", "looks like a bzip2 archive", "unpack it first"),
    (0, b"\xfd7zXZ\x00", "looks like an xz archive", "unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "looks like a zstd archive", "unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "looks like a 7z archive", "unpack it first"),
    (4, b"ORTM", "looks like a model in ORT format", "use the ONNX model it was made from"),
    (4, b"TFL3", "looks like a TensorFlow Lite model", _EXPORT),
)

# The start of a text, after white space and in lower case.
_TEXTS: tuple[tuple[bytes, str, str | None], ...] = (
    (b"<!doctype html", "looks like a web page", "check what was downloaded"),
    (b"<html", "looks like a web page", "check what was downloaded"),
    (b"<?xml", "looks like XML (an OpenVINO model)", "use the ONNX model it was made from"),
    (b"{", "looks like JSON", _BINARY),
    (b"<", "looks like a model in ONNX's text form", _BINARY),
    (b"ir_version:", "looks like a model in protobuf's text form", _BINARY),
)

_LOOK_BYTES = 512


def recognise(data: bytes) -> Flaw | None:
    """Return the kind of file that `data` comes from; None if it is unknown.

    Asked only about bytes that are no model: a few of these signs could also open a message.
    """
    for offset, magic, what, remedy in _MAGIC:
        if data.startswith(magic, offset):
            return Flaw(what, remedy)
    # The length of a JSON header, then the header.
    if data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= len(data) - 8:
        return Flaw("looks like a safetensors file", "name the model, not its weights")
    head = data[:_LOOK_BYTES]
    start = head.lstrip().lower()
    if not start or any(byte < 0x20 and byte not in b"\t\n\r\f" for byte in head):
        return None  # no text
    for sign, what, remedy in _TEXTS:
        if start.startswith(sign):
            return Flaw(what, remedy)
    return Flaw("looks like a text file", _OTHER)


# Why bytes do not parse as a protobuf message, found by walking the wire format.


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# The fields that nest graphs, by message: field number -> the message it holds.
_NESTING: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}

# The fields of a model that are length-delimited. Where another field runs past the end, the bytes
# were never a model, and what looks like a length is noise.
_MODEL_FIELDS = frozenset({2, 3, 4, 6, 7, 8, 14, 20, 25, 26})

# Protobuf's own limit in every language, counted in messages.
_MAX_DEPTH = 100


_NO_MESSAGE = Flaw("is no ONNX model: its bytes are no protobuf message", None)


class _Corrupt(ValueError):
    """The bytes do not follow the wire format."""


class _Truncated(ValueError):
    """The bytes follow the wire format and end inside the field of this number."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def explain(data: bytes) -> Flaw:
    """Return why `data`, which protobuf refused, is no model.

    Tells apart data that ends too early, messages nested deeper than protobuf allows (about 33
    graphs, each inside the other), and bytes that are no protobuf message at all.
    """
    try:
        for _ in fields(data, 0, len(data)):
            pass
    except _Truncated as flaw:
        if flaw.number in _MODEL_FIELDS:
            return Flaw(f"is truncated: {flaw}", "copy or download it again")
        return _NO_MESSAGE
    except _Corrupt:
        return _NO_MESSAGE
    if _too_deep(data):
        return Flaw(
            f"has graphs nested deeper than protobuf allows ({_MAX_DEPTH} messages)",
            "flatten its If, Loop and Scan bodies in the exporter",
        )
    return Flaw(
        "is no ONNX model, or a damaged one: it is a protobuf message, but its parts do not parse",
        "check that this is a model and not, for example, a saved tensor",
    )


def fields(data: bytes | mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of every length-delimited field in `data[start:end]`.

    Raises:
        ValueError: If the bytes do not follow the wire format, or end inside a field.
    """
    position = start
    while position < end:
        at = position
        tag, position = varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise _Corrupt
        if kind == VARINT:
            _, position = varint(data, position, end)
            continue
        if kind == BYTES:
            length, position = varint(data, position, end)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise _Corrupt
        if position + length > end:
            raise _Truncated(
                number,
                f"the field at byte {at} takes {counted(length, 'byte')}, and {end - position:,} "
                "are left",
            )
        if kind == BYTES:
            yield number, position, position + length
        position += length


def varint(data: bytes | mmap, position: int, end: int) -> tuple[int, int]:
    """Return the number that starts at `position`, and where it ends.

    Raises:
        ValueError: If it has more than ten bytes, or does not end before `end`.
    """
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift >= 70:
            raise _Corrupt
    raise _Truncated(0, "it ends inside a number")


def encoded(number: int) -> bytes:
    """Return the bytes of a number, as `varint` reads them."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + encoded(rest) if rest else bytes([low])


def _too_deep(data: bytes) -> bool:
    # Depth first with an explicit stack, because the depth may be too large.
    pending = [("model", 0, len(data), 1)]
    while pending:
        kind, start, end, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return True
        inner = _NESTING[kind]
        try:
            pending += [
                (inner[number], first, last, depth + 1)
                for number, first, last in fields(data, start, end)
                if number in inner
            ]
        except (_Corrupt, _Truncated):
            continue
    return False


# The names in a model file, read without loading the model or importing onnx.
#
# For the completion of words in a shell, where a tenth of a second is long. Weights are skipped.


# Numbers of fields in onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INPUT = 1, 11
_NODE_OUTPUT, _NODE_NAME = 2, 3
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_DIM, _DIM_PARAM = 1, 2, 1, 2


@dataclass(frozen=True, slots=True)
class Outline:
    """Names of the main graph, each in the order of the file.

    Attributes:
        inputs: Names of the graph inputs.
        values: Names of the inputs and of what the nodes make.
        nodes: Names of the nodes that have one.
        dims: Names of the dimensions of the inputs.
    """

    inputs: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)


def outline(path: str) -> Outline:
    """Return the names in a model file, as far as it can be read; none where it cannot."""
    found = Outline()
    try:
        with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            for start, end in _inner(data, 0, len(data), (_MODEL_GRAPH,)):
                _graph(data, start, end, found)
    except (OSError, ValueError):
        pass  # completion shows no errors
    return found


def _graph(data: mmap, start: int, end: int, found: Outline) -> None:
    made: list[str] = []
    for number, first, last in fields(data, start, end):
        if number == _GRAPH_NODE:
            for inner, one, other in fields(data, first, last):
                if inner == _NODE_OUTPUT and one < other:
                    made.append(_text(data, one, other))
                elif inner == _NODE_NAME and one < other:
                    found.nodes.append(_text(data, one, other))
        elif number == _GRAPH_INPUT:
            names = [_text(data, *place) for place in _inner(data, first, last, (_VALUE_NAME,))]
            found.inputs.extend(names[-1:])
            found.dims.extend(name for name in _dims(data, first, last) if name not in found.dims)
    found.values.extend((*found.inputs, *made))


def _dims(data: mmap, start: int, end: int) -> Iterator[str]:
    way = (_VALUE_TYPE, _TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_DIM, _DIM_PARAM)
    for first, last in _inner(data, start, end, way):
        yield from re.findall(r"[^\W\d]\w*", _text(data, first, last))


def _inner(data: mmap, start: int, end: int, way: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each field that is reached through fields of these numbers."""
    for number, first, last in fields(data, start, end):
        if number == way[0]:
            if len(way) == 1:
                yield first, last
            else:
                yield from _inner(data, first, last, way[1:])


def _text(data: mmap, start: int, end: int) -> str:
    return data[start:end].decode("utf-8", "replace")
