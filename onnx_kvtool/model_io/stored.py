"""Weights that are converted and stored beside the model, and digests of files."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.model_io.atomic import replacing
from onnx_kvtool.model_io.external_data import array, external_files
from onnx_kvtool.model_io.places import is_same

__all__ = ["ConvertedTensor", "digest", "file_digest", "file_pieces", "stored"]


# Digests of files and of what comes in pieces.


_PIECE = 1 << 20


def digest(pieces: Iterable[bytes | memoryview], algorithm: str = "sha256") -> str:
    """Return the digest of all pieces together, in hexadecimal.

    It tells one content from another, and is no proof against somebody who wants two to be alike
    unless the algorithm is.
    """
    found = hashlib.new(algorithm, usedforsecurity=False)
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str | None:
    """Return the digest of the bytes of a file; None where it cannot be read.

    A device or a pipe may have no end, and is not read.
    """
    try:
        return digest(file_pieces(path)) if os.path.isfile(path) else None
    except OSError:
        return None


def file_pieces(
    path: str | os.PathLike[str], start: int = 0, size: int = _PIECE
) -> Iterator[bytes]:
    """Yield the bytes of a file from `start` on, `size` at a time but for the last.

    Raises:
        OSError: If it cannot be read.
    """
    with open(path, "rb") as file:
        file.seek(start)
        while piece := file.read(size):
            yield piece


# Weights in another element type than the one in which the source holds them.


_CHUNK = 1 << 22
"""Elements that are converted at a time."""


class ConvertedTensor(ir.LazyTensor):
    """A tensor whose values are those of another one, converted when they are asked for.

    Nothing is kept: each reader reads the source again, and a file is written chunk by chunk.

    Args:
        source: Where the values come from; external ones stay in their file.
        dtype: The element type of this tensor.

    Attributes:
        source: As above.
    """

    def __init__(self, source: ir.TensorProtocol, dtype: ir.DataType) -> None:
        super().__init__(
            self._whole,
            dtype,
            ir.Shape(source.shape.numpy()),
            name=source.name,
            doc_string=source.doc_string,
            metadata_props=dict(source.metadata_props),
        )
        self.source = source

    def _whole(self) -> ir.TensorProtocol:
        return ir.Tensor(array(self.source).astype(self.dtype.numpy()), dtype=self.dtype)

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the values in order, flat, some at a time.

        Raises:
            UnreadableModel: If those of the source cannot be read.
        """
        flat, dtype = array(self.source).reshape(-1), self.dtype.numpy()
        for start in range(0, flat.size, _CHUNK):
            yield flat[start : start + _CHUNK].astype(dtype)

    def tofile(self, file: BinaryIO) -> None:
        """Write the values as `raw_data` of a tensor holds them: little-endian, without gaps."""
        for chunk in self.chunks():
            little = chunk.astype(chunk.dtype.newbyteorder("<"), copy=False)
            file.write(little.tobytes())


# Converted weights in a data file of their own, beside the model that is written.


_ALIGNMENT = 4096
"""Bytes; readers map files into memory by pages."""


@contextlib.contextmanager
def stored(model: ir.Model, output: str) -> Iterator[Callable[[], list[str]]]:
    """Let the converted weights of external ones stand in a file beside `output` in the block.

    The model refers to `<output>.data` there, and holds the converted weights again afterwards. A
    file of that name with weights that the model reads is not touched; another name is taken then.
    Where nothing is converted, or `output` is standard output, nothing happens.

    Args:
        model: The model that is written.
        output: Path of its file, or `-`.

    Yields:
        Writes the file, and returns what was written, for people.

    Raises:
        UnreadableModel: If the values of the source cannot be read.
        UnwritableOutput: If the system refuses. Nothing is left behind, then or when the block
            fails, unless a file of that name was there before.
    """
    found = [
        (value, value.const_value)
        for _, graph in graphs(model)
        for value in graph.initializers.values()
        if isinstance(value.const_value, ConvertedTensor)
        and isinstance(value.const_value.source, ir.ExternalTensor)
    ]
    if not found or output == "-":
        yield list
        return
    path = _free_path(model, [t.source for _, t in found], output)
    is_new = not os.path.exists(path)
    offset, placed = 0, []
    for value, tensor in found:
        offset = -(-offset // _ALIGNMENT) * _ALIGNMENT
        placed.append((value, tensor, offset))
        offset += tensor_bytes(tensor)

    def write() -> list[str]:
        with replacing(path) as file:
            for _, tensor, start in placed:
                file.write(bytes(start - file.tell()))
                tensor.tofile(file)
        return [f"wrote the weights in their new type to `{path}`"]

    try:
        for value, tensor, start in placed:
            value.const_value = _reference(tensor, path, start)
        yield write
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    finally:
        for value, tensor, _ in placed:
            value.const_value = tensor


def _reference(tensor: ConvertedTensor, path: str, offset: int) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        os.path.basename(path),
        offset,
        tensor_bytes(tensor),
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
        base_dir=os.path.dirname(os.path.abspath(path)),
    )


def _free_path(model: ir.Model, sources: list[ir.TensorProtocol], output: str) -> str:
    """Return a path beside `output` at which there is no data file that the model reads."""
    read = {os.fspath(file.path) for file in external_files(model)}
    read |= {os.fspath(s.path) for s in sources if isinstance(s, ir.ExternalTensor)}
    target = Path(output)
    number = 0
    while True:
        path = target.with_name(f"{target.name}{f'.{number}' if number else ''}.data")
        if not any(is_same(path, one) for one in read):
            return str(path)
        number += 1
