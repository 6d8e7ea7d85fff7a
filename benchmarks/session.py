"""Sessions of onnxruntime, all of them alike."""

from __future__ import annotations

from typing import Any

import onnxruntime as ort

__all__ = ["session"]


def session(model: bytes | str) -> Any:
    """Return an onnxruntime session on one thread, of a model or of the path of one."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
