"""The commands that write files, each with files to work on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.cache_models import model, tensor_scatter_node, value
from tests.faults.kvtool_process import Runner

__all__ = ["SCENARIOS", "Scenario", "Tree", "stage", "tree"]

Tree = Mapping[str, bytes | None]
"""Content of the files below a directory by relative path; None for a directory."""


@dataclass(frozen=True)
class Scenario:
    """A command that writes.

    Attributes:
        arguments: What `kvtool` is called with.
        model: Which of the models of `stage` lies there, as `m.onnx`.
        code: Exit code when nothing goes wrong.
        is_many: Whether it writes several files that have nothing to do with each other.
    """

    arguments: tuple[str, ...]
    model: str = "whole"
    code: int = 0
    is_many: bool = False


SCENARIOS: Mapping[str, Scenario] = {
    "lower in place": Scenario(("lower", "m.onnx", "--in-place")),
    "lower in place, with external data": Scenario(("lower", "m.onnx", "--in-place"), "external"),
    "lower beside the input": Scenario(("lower", "m.onnx"), "external"),
    "lower over another file": Scenario(("lower", "m.onnx", "-o", "other.onnx"), "external"),
    "lower into another directory": Scenario(("lower", "m.onnx", "-o", "away/m.onnx"), "external"),
    "lower into another directory, linking": Scenario(
        ("lower", "m.onnx", "-o", "away/m.onnx", "--external-data", "link"), "external"
    ),
    "raise in place": Scenario(("raise", "m.onnx", "--in-place"), "lowered"),
    "raise into another directory": Scenario(("raise", "m.onnx", "-o", "away/m.onnx"), "lowered"),
    "infer": Scenario(("infer", "m.onnx", "-o", "inferred.onnx"), "external"),
    "fix": Scenario(("check", "m.onnx", "--fix", "--isolated")),
    "fix two models": Scenario(
        ("check", "m.onnx", "other.onnx", "--fix", "--isolated"), is_many=True
    ),
    "write a report": Scenario(("check", "m.onnx", "--isolated", "--format", "sarif", "-o", "r")),
    "write a baseline": Scenario(("check", "m.onnx", "--isolated", "--write-baseline", "b.json")),
    "write a page": Scenario(("inspect", "m.onnx", "--format", "html", "-o", "page.html")),
    "save values": Scenario(("eval", "m.onnx", "--random", "--save", "values.npz")),
}


def _decoder() -> onnx.ModelProto:
    """A cache update whose rows are computed with two weights, and a weight that nobody reads."""
    draw = np.random.default_rng(0)
    weights = {"w": (300, 5), "v": (5,), "dead": (3,)}
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "v"], ["update"]),
            tensor_scatter_node(axis=2),
        ],
        [
            value("past_cache", TensorProto.FLOAT, [2, 3, 7, 5]),
            value("x", TensorProto.FLOAT, [2, 3, 1, 300]),
            value("write_indices", TensorProto.INT64, [2]),
        ],
        [value("present_cache", TensorProto.FLOAT, [2, 3, 7, 5])],
        initializers=[
            numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )


_FILES = {"w": "w.bin", "v": "sub/v.bin"}


def _save_external(message: onnx.ModelProto, directory: Path) -> None:
    """Write the model as `m.onnx` with two data files, one of them in a directory of its own."""
    for tensor in message.graph.initializer:
        if tensor.name in _FILES:
            path = directory / _FILES[tensor.name]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=_FILES[tensor.name])
    onnx.save(message, directory / "m.onnx")


def stage(runner: Runner, directory: Path) -> dict[str, Path]:
    """Make a directory for each kind of model, with all that the scenarios read.

    `m.onnx` is the decoder: `whole` in one file, `external` with data files, `lowered` with data
    files and for opset 18. `other.onnx` is a copy, and `away` an empty directory.

    Returns:
        The directories by the name of the model.
    """
    kinds = {kind: directory / kind for kind in ("whole", "external", "lowered")}
    for kind, path in kinds.items():
        (path / "away").mkdir(parents=True)
        if kind == "whole":
            onnx.save(_decoder(), path / "m.onnx")
        else:
            _save_external(_decoder(), path)
        if kind == "lowered":
            outcome = runner.run(["lower", "m.onnx", "--in-place"], path)
            assert outcome.code == 0, outcome.stderr
        shutil.copyfile(path / "m.onnx", path / "other.onnx")
    return kinds


def tree(directory: Path) -> Tree:
    """Return what is below a directory."""
    found: dict[str, bytes | None] = {}
    for path in sorted(directory.rglob("*")):
        name = os.fspath(path.relative_to(directory))
        found[name] = path.read_bytes() if path.is_file() else None
    return found
