"""Models for the tests of this folder: the fixtures with their recorded runs, and ONNX text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from onnx_kvtool.model_io.model import read
from onnx_kvtool.runtime import onnxruntime
from onnx_kvtool.runtime.sessions import RuntimeName

NATIVE = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "native"

NAMES = sorted(path.stem for path in NATIVE.glob("*.npz"))

RELEASE = tuple(int(part) for part in onnxruntime.VERSION.split(".")[:2])

HAS_24 = RELEASE >= (1, 28)
"""Whether the installed onnxruntime is right at opset 24; the last for Python 3.10 is too old."""

needs_24 = pytest.mark.skipif(not HAS_24, reason="needs onnxruntime 1.28, right for opset 24")

ORACLE: RuntimeName = "onnxruntime" if HAS_24 else "reference"
"""The runtime that verification takes for models at opset 24."""


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
    """Return the model that `text` spells.

    A text without a header is of opset 21, or 24 if it has operators that came with it.
    """
    return _proto(text).SerializeToString()


def model(text: str) -> ir.Model:
    """Return the model that `text` spells, as it is edited."""
    return ir.from_proto(_proto(text))


def _proto(text: str) -> onnx.ModelProto:
    if not text.lstrip().startswith("<"):
        opset = 24 if "TensorScatter" in text or "Attention" in text else 21
        text = f'<ir_version: 10, opset_import: ["": {opset}]> {text}'
    return parser.parse_model(text)
