"""Save: write a model and what belongs to it."""

from __future__ import annotations

import os

import onnx_ir as ir

from onnx_kvtool.commands.rewriting import ExternalData
from onnx_kvtool.core.files.external_data import place_external_data
from onnx_kvtool.core.held import ModelSource, held
from onnx_kvtool.core.model import serialize, write

__all__ = ["save"]


def save(
    model: ModelSource, path: str | os.PathLike[str], *, external_data: ExternalData | None = None
) -> None:
    """Write a model as the commands do: whole or not at all, its data files beside it.

    Everything that `load` read is written, also what `onnx_ir.save` refuses or drops: sparse
    constants and initializers, maps, training information, empty outputs at the end of a node.

    Args:
        model: A model, which is not changed, or the path of one.
        path: Path of the file; one that is there is replaced.
        external_data: How the data files of the model reach another directory: `copy`, `link` for
            hard links, `reference` to refuse what would have to be moved; None for what every
            reader accepts, which is a copy.

    Raises:
        UnreadableModel: If `model` is a path and cannot be read, or a data file is not there.
        KvtoolError: If the model has no written form or is larger than 2 GiB, or the system
            refuses; then nothing is left behind.

    Examples:
        >>> lowered, _ = kv.lower("decoder.onnx", opset=18, verify=False)
        >>> kv.save(lowered, "saved.onnx")
        >>> kv.load("saved.onnx").opset_imports[""]
        18
    """
    work = model if isinstance(model, ir.Model) else held(model)
    data = serialize(work)
    target = os.fspath(path)
    place_external_data(
        work, os.path.dirname(target), external_data, then=lambda: write(work, target, data=data)
    )
