"""Converted weights in a data file beside the model, and digests of files."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.model_io.atomic import replacing
from onnx_kvtool.model_io.external_data import array, external_files
from onnx_kvtool.model_io.places import is_same
from onnx_kvtool.model_io.verbatim import SparseInitializer

# Digests of files and of pieces.


_PIECE = 1 << 20


def digest(pieces: Iterable[bytes | memoryview], algorithm: str = "sha256") -> str:
    """Return the digest of all pieces together, in hexadecimal.

    It tells contents apart; it resists forgery only if the algorithm does.
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


# Weights in another element type than in the source.


_CHUNK = 1 << 22
"""Elements that are converted at a time."""


class ConvertedTensor(ir.LazyTensor):
    """A tensor with the values of another one, converted on access.

    Nothing is cached: each reader reads the source again, and a file is written chunk by chunk.

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


def stored(
    model: ir.Model, output: str
) -> contextlib.AbstractContextManager[Callable[[], list[str]]]:
    """Store converted external weights in a file beside `output`, within the block.

    Within the block the model refers to `<output>.data`; afterwards it has the converted weights
    again. If the model reads weights from a file of that name, another name is chosen. Nothing
    happens if nothing is converted, or if `output` is standard output.

    Args:
        model: The model that is written.
        output: Path of its file, or `-`.

    Returns:
        A context whose value is a function: it writes the file and returns notes for people.

    Raises:
        UnreadableModel: If the values of the source cannot be read.
        UnwritableOutput: If the system refuses. Nothing is left behind, then or when the block
            fails, unless a file of that name was there before.
    """
    found = [
        (value, tensor)
        for value, tensor in _weights(model)
        if isinstance(tensor, ConvertedTensor) and isinstance(tensor.source, ir.ExternalTensor)
    ]
    if not found or output == "-":
        return contextlib.nullcontext(list)
    sources = [tensor.source for _, tensor in found]
    return _stored([*found], free_path([model], output, sources), "the weights in their new type")


def stored_once(
    models: Iterable[ir.Model], path: str
) -> contextlib.AbstractContextManager[Callable[[], list[str]]]:
    """Store the larger weights of models in the file `path`, each content once, within the block.

    Returns:
        As `stored`, which see for errors.
    """
    found = [
        (value, tensor)
        for model in models
        for value, tensor in _weights(model)
        if tensor is not None
        and not isinstance(tensor, SparseInitializer)
        and tensor.dtype != ir.DataType.STRING
        and tensor_bytes(tensor) >= _LEAST
    ]
    return _stored(found, path, "the weights of all models")


_LEAST = 1024
"""Size in bytes of the smallest weight that models share."""


def _weights(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol | None]]:
    for _, graph in graphs(model):
        yield from ((value, value.const_value) for value in graph.initializers.values())


@contextlib.contextmanager
def _stored(
    found: list[tuple[ir.Value, ir.TensorProtocol]], path: str, what: str
) -> Iterator[Callable[[], list[str]]]:
    is_new = not os.path.exists(path)
    placed: dict[Hashable, tuple[int, ir.TensorProtocol]] = {}
    offset, references = 0, []
    for value, tensor in found:
        key = _content(tensor)
        if key not in placed:
            placed[key] = -(-offset // _ALIGNMENT) * _ALIGNMENT, tensor
            offset = placed[key][0] + tensor_bytes(tensor)
        references.append((value, tensor, placed[key][0]))

    def write() -> list[str]:
        if not placed:
            return []
        with replacing(path) as file:
            for start, tensor in placed.values():
                file.write(bytes(start - file.tell()))
                if isinstance(tensor, ConvertedTensor):
                    tensor.tofile(file)
                else:
                    file.write(tensor.tobytes())
        return [f"wrote {what} to `{path}`"]

    try:
        for value, tensor, start in references:
            value.const_value = _reference(tensor, path, start)
        yield write
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    finally:
        for value, tensor, _ in references:
            value.const_value = tensor


def _content(tensor: ir.TensorProtocol) -> Hashable:
    """Return a key that is equal for tensors with the same bytes; external ones by place."""
    if isinstance(tensor, ConvertedTensor):
        return tensor.dtype, _content(tensor.source)
    if isinstance(tensor, ir.ExternalTensor):
        return os.fspath(tensor.path), tensor.offset or 0, tensor_bytes(tensor)
    return digest([tensor.tobytes()])


def _reference(tensor: ir.TensorProtocol, path: str, offset: int) -> ir.ExternalTensor:
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


def free_path(
    models: Iterable[ir.Model], output: str, sources: Iterable[ir.TensorProtocol] = ()
) -> str:
    """Return a path `<output>.data` that is no data file of the models."""
    read = {os.fspath(file.path) for model in models for file in external_files(model)}
    read |= {os.fspath(s.path) for s in sources if isinstance(s, ir.ExternalTensor)}
    target = Path(output)
    number = 0
    while True:
        path = target.with_name(f"{target.name}{f'.{number}' if number else ''}.data")
        if not any(is_same(path, one) for one in read):
            return str(path)
        number += 1
