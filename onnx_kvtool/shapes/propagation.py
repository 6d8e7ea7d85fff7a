"""onnx's inference with data propagation, kept from filling the memory and from aborting."""

from __future__ import annotations

import functools

import onnx
import onnx.shape_inference

from onnx_kvtool.core.memory import bounded_memory
from onnx_kvtool.core.messages.distinct_names import infer_with_distinct_names
from onnx_kvtool.core.messages.matrix_values import infer_past_matrix_values
from onnx_kvtool.core.messages.negative_sizes import infer_past_negative_sizes
from onnx_kvtool.core.messages.untyped_inputs import infer_past_untyped_inputs
from onnx_kvtool.shapes.large_sizes import may_run_out
from onnx_kvtool.shapes.long_vectors import makes_long_vector
from onnx_kvtool.shapes.subprocess_inference import infer_in_subprocess

__all__ = ["infer_with_data"]

_SPARE = 256 << 20
_SPARE_PER_BYTE = 32
"""Bytes that an inference may take, whatever the model and for each byte of it; a graph of 97,000
nodes and 12 MB took 200 MB."""


def infer_with_data(
    message: onnx.ModelProto, *, strict: bool = False, check_types: bool = False
) -> onnx.ModelProto:
    """Return a message with inferred types, the values of shape tensors taken into account.

    onnx 1.23.2 writes down each element of a rank-1 value that Add, Gather or Slice reads, also of
    one that is declared or computed to have 10^9 of them. Where that would take too much memory,
    the values are left out of account; so is what may have a negative size, where it is sliced.
    Bodies may name their values alike.

    Args:
        message: The model, without weights.
        strict: Whether the first contradiction is an error.
        check_types: Whether types are held against the schemas.

    Raises:
        onnx.shape_inference.InferenceError: If the model contradicts itself, and `strict`; if a
            type is not one of the schema, and `check_types`.
        onnx.checker.ValidationError: If functions call each other in a circle.
        RuntimeError: If inference cannot start.
        ValueError: If the message is too large.
    """

    def infer(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_negative_sizes(given, lambda spared: _infer(spared, strict, check_types))

    def past_untyped(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_untyped_inputs(given, infer)

    def past_matrices(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_matrix_values(given, past_untyped)

    return infer_with_distinct_names(message, past_matrices)


def _infer(message: onnx.ModelProto, strict: bool, check_types: bool) -> onnx.ModelProto:
    infer = functools.partial(
        onnx.shape_inference.infer_shapes, check_type=check_types, strict_mode=strict
    )
    if makes_long_vector(message):
        return infer(message)
    spare = _SPARE + _SPARE_PER_BYTE * message.ByteSize()
    if may_run_out(message):
        return infer_in_subprocess(message, strict, spare, check_types) or infer(message)
    try:
        with bounded_memory(spare):
            return infer(message, data_prop=True)
    except MemoryError:
        return infer(message)
