"""Repositories of models: many small ones, and large ones whose weights take no disk."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import onnx

from benchmarks.decoders import decoder
from benchmarks.real_models import CONFIGURATIONS, DATA, write

__all__ = [
    "LARGE",
    "large_models",
    "small_models",
    "with_weights_beside",
    "with_weights_in_it",
    "workplace",
]

LARGE = CONFIGURATIONS["llama-1b-fp16"]
"""What each large model is."""

_PER_DIRECTORY = 100


@cache
def workplace() -> Path:
    """Return a directory that is there until this process ends."""
    made = tempfile.mkdtemp(prefix="kvtool-repositories-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


@cache
def small_models(count: int) -> Path:
    """Return a directory with decoders of one layer, every fifth of two, no two of them alike."""
    root = workplace() / f"small-{count}"
    for number in range(count):
        directory = root / f"{number // _PER_DIRECTORY:03}"
        directory.mkdir(parents=True, exist_ok=True)
        hidden = 32 * (1 + number % 2)
        message = decoder(1 + (number % 5 == 0), hidden=hidden, capacity=64 + number)
        onnx.save(message, directory / f"{number:05}.onnx")
    return root


@cache
def large_models(count: int) -> Path:
    """Return a directory with decoders of real size, their external data in sparse files."""
    root = workplace() / f"large-{count}"
    first = write(LARGE, root / "000", sparse=True)
    size = (first.parent / DATA).stat().st_size
    message = onnx.load(first, load_external_data=False)
    for number in range(1, count):
        directory = root / f"{number:03}"
        directory.mkdir()
        message.doc_string = f"model {number}"
        onnx.save(message, directory / first.name)
        with (directory / DATA).open("wb") as file:
            file.truncate(size)  # a hole: no rule looks into it
    return root


def with_weights_beside(directory: Path, size: int) -> list[Path]:
    """Write a decoder with `size` bytes of external data, a hole; return both files."""
    directory.mkdir(parents=True)
    data = directory / "weights.data"
    path = directory / "model.onnx"
    onnx.save(decoder(16, data_file=data, weight_bytes=size), path)
    return [path, data]


def with_weights_in_it(directory: Path, size: int, count: int) -> list[Path]:
    """Write a decoder with `count` weights of `size` bytes in all, holes in the file."""
    directory.mkdir(parents=True)
    message = decoder(16)
    graph = message.graph.SerializeToString()
    message.ClearField("graph")
    elements = size // count // 4
    heads = []
    for number in range(count):
        name = f"layers.{number}.large"
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[elements])
        held = tensor.SerializeToString() + _RAW_DATA + _varint(4 * elements)
        heads.append(_INITIALIZER + _varint(len(held) + 4 * elements) + held)
    length = len(graph) + sum(map(len, heads)) + count * 4 * elements
    path = directory / "model.onnx"
    with path.open("wb") as file:
        file.write(message.SerializeToString() + _GRAPH + _varint(length) + graph)
        for head in heads:
            file.write(head)
            file.seek(4 * elements, os.SEEK_CUR)
        file.truncate()
    return [path]


_GRAPH, _INITIALIZER, _RAW_DATA = b"\x3a", b"\x2a", b"\x4a"
"""What stands in front of these fields on the wire, and of their length."""


def _varint(number: int) -> bytes:
    """Return a number as the wire format has it."""
    digits = []
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
