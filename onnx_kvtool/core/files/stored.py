"""Converted weights in a data file of their own, beside the model that is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx_ir as ir

from onnx_kvtool.core.files.atomic import replacing
from onnx_kvtool.core.files.converted import ConvertedTensor
from onnx_kvtool.core.files.external_data import external_files
from onnx_kvtool.core.files.places import is_same
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import graphs

__all__ = ["stored"]

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
