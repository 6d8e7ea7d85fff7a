"""Models written as ONNX text, for the tests of the reference runtime."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from onnx_kvtool.runtime.engine.evaluator import Evaluator, Run

__all__ = ["evaluator", "run"]

_HEADER = '<ir_version: 10, opset_import: ["": 24, "local": 1, "other": 1]>\n'


def evaluator(text: str) -> Evaluator:
    """Return an evaluator of a model; without a header it is one of opset 24."""
    full = text if text.lstrip().startswith("<") else _HEADER + text
    return Evaluator(ir.from_proto(onnx.parser.parse_model(full)))


def run(text: str, **inputs: Any) -> Run:
    """Run a model once."""
    return evaluator(text).run(inputs)
