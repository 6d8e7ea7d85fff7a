"""The models that commands are run on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.decoders import decoder, scatter_bank

__all__ = ["MODELS", "Model", "written"]


@dataclass(frozen=True, slots=True)
class Model:
    """A model as it lies on disk.

    Attributes:
        name: One of `MODELS`.
        path: The native model, at opset 24.
        exported: The same with its caches updated by ScatterND, which `raise` starts from.
        data: The file of weights; None where the weights are in the model.
    """

    name: str
    path: Path
    exported: Path
    data: Path | None


MODELS = ("one node", "2,000 nodes", "20,000 nodes", "3 GB of weights")
"""What the columns of the tables are called."""


def written(name: str, directory: Path) -> Model:
    """Write the model of this name into a directory of its own; `exported` is not written yet."""
    data = None
    if name == "one node":
        message = scatter_bank(1, (2, 4, 16, 8), 1, symbolic=True, mode="linear")
    elif name == "2,000 nodes":
        message = decoder(16, filler=109)
    elif name == "20,000 nodes":
        message = decoder(64, filler=298)
    elif name == "3 GB of weights":
        data = directory / "weights.data"
        message = decoder(16, data_file=data, weight_bytes=3 << 30)
    else:
        raise ValueError(f"no model is called `{name}`")
    path = directory / "model.onnx"
    onnx.save(message, path)
    return Model(name, path, directory / "exported.onnx", data)
