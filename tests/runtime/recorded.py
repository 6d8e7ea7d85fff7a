"""Models for the tests of this folder: the fixtures with their recorded runs, and ONNX text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx import parser

from onnx_kvtool.core.model import read

NATIVE = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "native"

NAMES = sorted(path.stem for path in NATIVE.glob("*.onnx"))

HEADER = '<ir_version: 10, opset_import: ["": 24]>'


def native(name: str) -> ir.Model:
    """Return one of the fixtures."""
    return read(NATIVE / f"{name}.onnx")


def recorded_run(name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the inputs and the outputs of the recorded run of a fixture."""
    with np.load(NATIVE / f"{name}.npz") as arrays:
        inputs = {k[3:]: arrays[k] for k in arrays if k.startswith("in:")}
        outputs = {k[4:]: arrays[k] for k in arrays if k.startswith("out:")}
    return inputs, outputs


def serialized(text: str) -> bytes:
    """Return the model that `text` spells; a text without a header is of opset 24."""
    if not text.lstrip().startswith("<"):
        text = HEADER + text
    return parser.parse_model(text).SerializeToString()


def model(text: str) -> ir.Model:
    """Return the model that `text` spells, as it is edited."""
    return ir.from_proto(
        parser.parse_model(text if text.lstrip().startswith("<") else HEADER + text)
    )
