"""Files that are no model: each is refused with its own reason, and nothing else comes out."""

from __future__ import annotations

import io
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnx_kvtool.core.errors import KvtoolError, UnreadableModel
from onnx_kvtool.model_io import source
from onnx_kvtool.model_io.model import origin, read, serialize
from tests.core.small import branched, external, plain, weighted, with_function
from tests.grids import each

MODEL = plain().SerializeToString()
GRAPH_BYTES = plain().graph.ByteSize()


def nested(depth: int) -> bytes:
    """A model of If nodes, each in a branch of the one before; protobuf would not write it."""

    def number(value: int) -> bytes:
        out = b""
        while value > 0x7F:
            out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
        return out + bytes([value])

    def field(tag: int, content: bytes) -> bytes:
        return number(tag << 3 | 2) + number(len(content)) + content

    graph = field(2, b"leaf")
    for _ in range(depth):
        attribute = field(1, b"then_branch") + b"\xa0\x01\x05" + field(6, graph)
        graph = field(1, field(4, b"If") + field(5, attribute)) + field(2, b"g")
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x12")


# What the file holds, and what the message says of it.
CONTENTS: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "is empty"),
    "a Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
        "is a Git LFS pointer",
    ),
    "a model cut off in its graph": (
        MODEL[:-90],
        f"is truncated: the field at byte 2 takes {GRAPH_BYTES} bytes, and {len(MODEL) - 95} are",
    ),
    "bytes that are no protobuf": (bytes(range(255, 0, -1)), "its bytes are no protobuf message"),
    "a field number of zero": (b"\x00\x00", "its bytes are no protobuf message"),
    "a number without an end": (b"\x08" + b"\xff" * 11, "its bytes are no protobuf message"),
    "a graph that does not parse": (
        b"\x08\x08\x3a\x02\x0f\x0f",
        "it is a protobuf message, but its parts do not parse",
    ),
    "graphs nested too deeply": (nested(40), "nested deeper than protobuf allows (100 messages)"),
    "a text file": (b"weights go here\n", "looks like a text file"),
    "a model in ONNX's text form": (b"<ir_version: 8>\nmain () => () {}", "ONNX's text form"),
    "a model in protobuf's text form": (b"ir_version: 8\ngraph {\n}\n", "protobuf's text form"),
    "a web page": (b"\n<!DOCTYPE html><html>Sign in</html>", "looks like a web page"),
    "OpenVINO's XML": (b"<?xml version='1.0'?><net/>", "looks like XML"),
    "JSON": (b'{"irVersion": "8"}', "looks like JSON"),
    "a zip archive": (b"PK\x03\x04" + bytes(40), "a PyTorch checkpoint"),
    "a pickle": (b"\x80\x02}q\x00.", "an old PyTorch checkpoint"),
    "safetensors": (b"\x02" + bytes(7) + b"{}", "looks like a safetensors file"),
    "GGUF": (b"GGUF\x03\x00\x00\x00", "looks like a GGUF file"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", "looks like an HDF5 file"),
    "gzip": (b"\x1f\x8b\x08\x00", "looks like a gzip archive"),
    "an ORT format model": (b"\x1c\x00\x00\x00ORTM", "looks like a model in ORT format"),
    "a TensorFlow Lite model": (b"\x1c\x00\x00\x00TFL3", "looks like a TensorFlow Lite model"),
    "a NumPy array": (b"\x93NUMPY\x01\x00", "looks like a NumPy array"),
    "a saved tensor": (
        helper.make_tensor("t", TensorProto.INT64, [2], [3, 5]).SerializeToString(),
        "no ONNX model",
    ),
    "a model without a graph": (b"\x08\x08\x42\x02\x10\x12", "it has no graph"),
    "a graph without versions": (b"\x3a\x00", "it has no IR version or an opset import"),
}


@each(("content", "words"), CONTENTS)
def test_content_that_is_no_model(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(UnreadableModel) as caught:
        read(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message
    assert not caught.value.message.endswith(".")


def missing(directory: Path) -> Path:
    return directory / "none.onnx"


def directory(directory: Path) -> Path:
    return directory


def below_a_file(directory: Path) -> Path:
    (directory / "file").write_bytes(MODEL)
    return directory / "file" / "m.onnx"


def link_to_itself(directory: Path) -> Path:
    (directory / "m.onnx").symlink_to("m.onnx")
    return directory / "m.onnx"


def null_character(directory: Path) -> Path:
    return directory / "m\0.onnx"


def name_too_long(directory: Path) -> Path:
    return directory / ("m" * 5000)


def huge(directory: Path) -> Path:
    path = directory / "m.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)  # a hole, which takes no space
    return path


PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a file that is not there": (missing, "does not exist"),
    "a directory": (directory, "is a directory, not a model"),
    "a path through a file": (below_a_file, "cannot be read: Not a directory"),
    "a link to itself": (link_to_itself, "cannot be read: Too many levels of symbolic links"),
    "a name with a null character": (null_character, "cannot be the name of a file"),
    "a name that is too long": (name_too_long, "cannot be read: File name too long"),
    "a file of 2 GiB": (huge, "is larger than 2 GiB"),
}


@pytest.mark.parametrize(("make", "words"), PLACES.values(), ids=PLACES)
def test_place_that_holds_no_model(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    with pytest.raises(UnreadableModel) as caught:
        read(make(tmp_path))
    assert words in caught.value.message


def test_a_file_that_must_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(MODEL)
    path.chmod(0)
    if os.access(path, os.R_OK):  # the superuser reads everything

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(UnreadableModel, match="cannot be read: Permission denied"):
        read(path)


class FakeInput:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = weighted(external("w", [3, 5], location="w.bin"))
    monkeypatch.setattr(sys, "stdin", FakeInput(message.SerializeToString()))
    monkeypatch.chdir(tmp_path)
    model = read("-")
    assert origin(model).path == "-"
    assert origin(model).directory == str(tmp_path)
    assert model.graph.initializers["w"].const_value.base_dir == str(tmp_path)


def test_standard_input_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_MESSAGE_BYTES", 2**20)
    monkeypatch.setattr(source, "_CHUNK_BYTES", 2**16)
    with Path("/dev/zero").open("rb") as endless:
        stream = FakeInput(b"")
        stream.buffer = endless
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(UnreadableModel, match="standard input is larger than 2 GiB"):
            read("-")


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(MODEL,))
    writer.start()
    model = read(pipe)
    writer.join()
    assert serialize(model) == MODEL


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bit", "byte", "removal", "insertion", "cut"])
def test_damaged_models_are_read_or_refused(tmp_path: Path, kind: str) -> None:
    seed = f"24 {kind}"
    print(f"seed {seed!r}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    whole = _rich().SerializeToString(deterministic=True)
    path = tmp_path / "m.onnx"
    outcomes = set()
    for _ in range(150):
        path.write_bytes(_damaged(whole, kind, chance))
        try:
            serialize(read(path))
        except KvtoolError:  # and nothing else
            outcomes.add("refused")
        else:
            outcomes.add("read")
    assert "refused" in outcomes


def _damaged(whole: bytes, kind: str, chance: random.Random) -> bytes:
    data, at = bytearray(whole), chance.randrange(len(whole))
    if kind == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "byte":
        data[at] = chance.randrange(256)
    elif kind == "removal":
        del data[at : at + chance.randrange(1, 10)]
    elif kind == "insertion":
        data[at:at] = chance.randbytes(chance.randrange(1, 6))
    else:
        del data[at:]
    return bytes(data)


def _rich() -> onnx.ModelProto:
    message = branched()
    message.functions.extend(with_function().functions)
    message.opset_import.add(domain="my", version=1)
    sparse = message.graph.sparse_initializer.add(dims=[3, 5])
    sparse.values.CopyFrom(helper.make_tensor("s", TensorProto.FLOAT, [1], [7.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [4]))
    tensor = external("e", [2, 2], location="w.bin", offset=0, length=16, checksum="00")
    message.graph.initializer.append(tensor)
    message.graph.node.append(helper.make_node("Own", ["y"], ["o", ""], domain="d", s=[b"\xff"]))
    message.training_info.add().algorithm.name = "step"
    return message
