"""What writes a model: a fixture as it is, after a tool of onnxruntime, or made at a small size."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import onnx

from benchmarks.real_models.configuration import CONFIGURATIONS, tiny
from benchmarks.real_models.writer import write
from tests.rewrite.test_converted_encoders import TOOLS

__all__ = ["Maker", "copied", "fused", "small", "tool"]

Maker = Callable[[Path], None]


def copied(source: Path) -> Maker:
    """Return what writes a model as it is."""

    def make(path: Path) -> None:
        path.write_bytes(source.read_bytes())

    return make


def tool(source: Path, name: str) -> Maker:
    """Return what writes a model after one of `TOOLS`."""

    def make(path: Path) -> None:
        logging.disable(logging.INFO)  # a line for each node
        try:
            TOOLS[name](source, path)
        finally:
            logging.disable(logging.NOTSET)

    return make


def fused(source: Path, kind: str, *, is_half: bool = False) -> Maker:
    """Return what writes a model after the fusions of the scripts for transformers."""

    def make(path: Path) -> None:
        from onnxruntime.transformers.optimizer import optimize_model

        made = optimize_model(str(source), model_type=kind, opt_level=0)
        if is_half:
            made.convert_float_to_float16(keep_io_types=True)
        made.save_model_to_file(str(path))

    return make


def small(configuration: str) -> Maker:
    """Return what writes one of `CONFIGURATIONS` with few weights, which stand in the file."""

    def make(path: Path) -> None:
        written = write(tiny(CONFIGURATIONS[configuration]), path.parent / configuration)
        onnx.save(onnx.load(written), path)

    return make
