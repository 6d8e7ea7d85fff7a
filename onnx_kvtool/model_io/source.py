"""The bytes of a model file, and its protobuf message."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from typing import BinaryIO

import onnx

from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.storage import MAX_MESSAGE_BYTES
from onnx_kvtool.model_io.atomic import patient
from onnx_kvtool.model_io.places import check_source, reading, spoken_name
from onnx_kvtool.model_io.protobuf import DecodeError
from onnx_kvtool.model_io.wire import explain, recognise

EXTERNAL = "store the weights as external data, beside the model"
"""What to do about a model that is too large."""

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
        raise UnreadableModel(f"{name} is empty", help="copy or download it again")
    return data


def _read(file: BinaryIO, name: str) -> bytes:
    """Read to the end, but never more than one message can hold: a device may have no end."""
    with contextlib.suppress(io.UnsupportedOperation):  # a stream in memory in its place
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            if status.st_size > MAX_MESSAGE_BYTES:
                raise too_large(name)
            return file.read()
    chunks: list[bytes] = []
    total = 0
    while chunk := file.read(_CHUNK_BYTES):
        total += len(chunk)
        if total > MAX_MESSAGE_BYTES:
            raise too_large(name)
        chunks.append(chunk)
    return b"".join(chunks)


def too_large(name: str) -> UnreadableModel:
    """Return the error for a file that no message can have."""
    return UnreadableModel(
        f"{name} is larger than 2 GiB, which no protobuf message can be", help=EXTERNAL
    )


def parse(data: bytes, name: str) -> onnx.ModelProto:
    """Return the model message that `data` holds.

    Raises:
        UnreadableModel: If `data` is another kind of file, is truncated or nested too deeply, or
            parses but holds no graph, or neither an opset import nor an IR version.
    """
    message = onnx.ModelProto()
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise _no_model(data, name, None) from error
    if not message.HasField("graph"):
        raise _no_model(data, name, "graph")
    if not message.opset_import and not message.ir_version:
        raise _no_model(data, name, "IR version or an opset import")
    return message


def _no_model(data: bytes, name: str, missing: str | None) -> UnreadableModel:
    """Return the error for bytes that are another kind of file, damaged, or lack a part."""
    if found := recognise(data):
        return UnreadableModel(f"{name} {found.what}, expected an ONNX model", help=found.help)
    if missing is None:
        flaw = explain(data)
        return UnreadableModel(f"{name} {flaw.what}", help=flaw.help)
    return UnreadableModel(
        f"{name} is no ONNX model: it has no {missing}",
        help="check that this is a model and not, for example, a saved tensor",
    )
