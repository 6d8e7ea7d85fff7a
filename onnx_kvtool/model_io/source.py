"""The bytes of a model file, its protobuf message, and what is wrong with other bytes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from mmap import mmap
from typing import BinaryIO, NamedTuple

import onnx

from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.storage import MAX_MESSAGE_BYTES
from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.atomic import patient
from onnx_kvtool.model_io.places import check_source, reading, spoken_name
from onnx_kvtool.model_io.protobuf import DecodeError

__all__ = [
    "BYTES",
    "FIXED32",
    "FIXED64",
    "VARINT",
    "Flaw",
    "explain",
    "fields",
    "parse",
    "read_bytes",
    "recognise",
    "varint",
]


# Other kinds of files that people hand over as a model, known by their first bytes.


class Flaw(NamedTuple):
    """Why bytes are no model: `what` follows the name of the file, `help` is the remedy."""

    what: str
    help: str | None


_EXPORT = "export it to ONNX first"
_BINARY = "save it in the binary form, as `onnx.save(model, 'model.onnx')` does"

# Offset, bytes that stand there, what it is, remedy.
_MAGIC: tuple[tuple[int, bytes, str, str | None], ...] = (
    (
        0,
        b"version https://git-lfs.github.com/spec/",
        "is a Git LFS pointer, not the model itself",
        "run `git lfs pull` in its repository",
    ),
    (0, b"PK\x03\x04", "looks like a zip archive (a PyTorch checkpoint, or .npz)", _EXPORT),
    (0, b"\x80\x02", "looks like a Python pickle (an old PyTorch checkpoint)", _EXPORT),
    (0, b"\x93NUMPY", "looks like a NumPy array (.npy)", None),
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

# What a text starts with, after white space and in lower case.
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
    """Return what kind of file `data` is the content of; None when it is none that is known.

    Asked only about bytes that are no model: a few of these signs could also open a message.
    """
    for offset, magic, what, remedy in _MAGIC:
        if data.startswith(magic, offset):
            return Flaw(what, remedy)
    if _is_safetensors(data):
        return Flaw("looks like a safetensors file", "name the model, not its weights")
    head = data[:_LOOK_BYTES]
    if not _is_text(head):
        return None
    start = head.lstrip().lower()
    for sign, what, remedy in _TEXTS:
        if start.startswith(sign):
            return Flaw(what, remedy)
    return Flaw("looks like a text file", None)


def _is_safetensors(data: bytes) -> bool:
    """Tell the length of a JSON header, then the header."""
    return data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= len(data) - 8


def _is_text(head: bytes) -> bool:
    return bool(head.strip()) and all(byte >= 0x20 or byte in b"\t\n\r\f" for byte in head)


# Why bytes do not parse as a protobuf message, found by walking the wire format.


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# The fields through which graphs nest, by message: field number -> the message it holds.
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


def _too_deep(data: bytes) -> bool:
    # Depth first with a stack of its own, as the depth is what is in question.
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


# The bytes of a model file, and its protobuf message.


_EXTERNAL = "store the weights as external data, beside the model"
_CHUNK_BYTES = 1 << 24


def read_bytes(source: str) -> bytes:
    """Return the whole content of the file `source`, or of standard input for `-`.

    Raises:
        UnreadableModel: If there is no such file, it is a directory, the system refuses to read
            it, it is empty, or it is larger than a protobuf message can be (2**31 - 1 bytes).
    """
    name = spoken_name(source)
    if source == "-":
        with reading(source):
            data = _read(sys.stdin.buffer, name)
    else:
        check_source(source)
        with reading(source), open(source, "rb", opener=patient) as file:
            data = _read(file, name)
    if not data:
        raise UnreadableModel(f"{name} is empty")
    return data


def _read(file: BinaryIO, name: str) -> bytes:
    """Read to the end, but never more than one message can hold: a device may have no end."""
    size = os.fstat(file.fileno()) if _has_descriptor(file) else None
    if size is not None and stat.S_ISREG(size.st_mode):
        if size.st_size > MAX_MESSAGE_BYTES:
            raise _too_large(name)
        return file.read()
    chunks: list[bytes] = []
    total = 0
    while chunk := file.read(_CHUNK_BYTES):
        total += len(chunk)
        if total > MAX_MESSAGE_BYTES:
            raise _too_large(name)
        chunks.append(chunk)
    return b"".join(chunks)


def _has_descriptor(file: BinaryIO) -> bool:
    try:
        file.fileno()
    except OSError:  # a stream in memory that stands in for standard input
        return False
    return True


def _too_large(name: str) -> UnreadableModel:
    return UnreadableModel(
        f"{name} is larger than 2 GiB, which no protobuf message can be", help=_EXTERNAL
    )


def parse(data: bytes, name: str) -> onnx.ModelProto:
    """Return the model message that `data` holds.

    Args:
        data: Content of a model file.
        name: What to call the file in messages, backticks included.

    Raises:
        UnreadableModel: If `data` is another kind of file, is truncated or nested too deeply, or
            parses but holds no graph, or neither an opset import nor an IR version.
    """
    message = onnx.ModelProto()
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise _not_a_model(data, name) from error
    if not message.HasField("graph"):
        raise _no_model(data, name, "a graph")
    if not message.opset_import and not message.ir_version:
        raise _no_model(data, name, "an IR version or an opset import")
    return message


def _not_a_model(data: bytes, name: str) -> UnreadableModel:
    if foreign := recognise(data):
        return UnreadableModel(f"{name} {foreign.what}", help=foreign.help)
    flaw = explain(data)
    return UnreadableModel(f"{name} {flaw.what}", help=flaw.help)


def _no_model(data: bytes, name: str, missing: str) -> UnreadableModel:
    if foreign := recognise(data):
        return UnreadableModel(f"{name} {foreign.what}", help=foreign.help)
    return UnreadableModel(
        f"{name} is no ONNX model: it holds no {missing.removeprefix('a ').removeprefix('an ')}",
        help="check that this is a model and not, for example, a saved tensor",
    )
