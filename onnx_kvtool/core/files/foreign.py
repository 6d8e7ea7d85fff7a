"""Other kinds of files that people hand over as a model, known by their first bytes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Flaw", "recognise"]


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
        "is a Git LFS pointer, not the model it stands for",
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
