"""onnx's inference with data propagation, kept from filling the memory."""

from __future__ import annotations

import onnx
import onnx.shape_inference

from onnx_kvtool.core.memory import bounded_memory

__all__ = ["infer_with_data"]

_SPARE = 256 << 20
_SPARE_PER_BYTE = 32
"""Bytes that an inference may take, whatever the model and for each byte of it; a graph of 97,000
nodes and 12 MB took 200 MB."""


def infer_with_data(message: onnx.ModelProto, *, strict: bool = False) -> onnx.ModelProto:
    """Return a message with inferred types, the values of shape tensors taken into account.

    onnx 1.23.2 writes down each element of a rank-1 value that Gather or Slice reads, also of one
    that is declared or computed to have 10^9 of them. Where that would take too much memory, the
    values are left out of account.

    Args:
        message: The model, without weights.
        strict: Whether the first contradiction is an error.

    Raises:
        onnx.shape_inference.InferenceError: If the model contradicts itself, and `strict`.
        onnx.checker.ValidationError: If functions call each other in a circle.
        RuntimeError: If inference cannot start.
        ValueError: If the message is too large.
    """
    infer = onnx.shape_inference.infer_shapes
    try:
        with bounded_memory(_SPARE + _SPARE_PER_BYTE * message.ByteSize()):
            return infer(message, strict_mode=strict, data_prop=True)
    except MemoryError:
        return infer(message, strict_mode=strict)
