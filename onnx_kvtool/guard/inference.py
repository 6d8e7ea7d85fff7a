"""onnx's inference with data propagation, past all of its faults that are known."""

from __future__ import annotations

import functools
from collections.abc import Set

import onnx
import onnx.shape_inference

from onnx_kvtool.guard.distinct_names import infer_with_distinct_names
from onnx_kvtool.guard.endless_equations import infer_past_endless_equations
from onnx_kvtool.guard.failed_allocation import bounded_memory, infer_in_subprocess
from onnx_kvtool.guard.last_windows import infer_past_last_windows
from onnx_kvtool.guard.long_vectors import makes_long_vector, may_run_out
from onnx_kvtool.guard.matrix_values import infer_past_matrix_values
from onnx_kvtool.guard.negative_sizes import infer_past_negative_sizes
from onnx_kvtool.guard.past_scores import infer_past_scores
from onnx_kvtool.guard.rounded_sizes import infer_past_rounded_sizes
from onnx_kvtool.guard.small_constants import op_types
from onnx_kvtool.guard.untyped_inputs import infer_past_untyped_inputs

_SPARE = 256 << 20
_SPARE_PER_BYTE = 32
"""Bytes that an inference may take, whatever the model and for each byte of it; a graph of 97,000
nodes and 12 MB took 200 MB."""


def infer_with_data(
    message: onnx.ModelProto, *, strict: bool = False, check_types: bool = False
) -> onnx.ModelProto:
    """Return a message with inferred types, the values of shape tensors taken into account.

    Where a vector would be too long, the values are left out of account; so is what may have a
    negative size, where it is sliced. Bodies may name their values alike. `guard.table` has the
    faults.

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
    operators = op_types(message)  # which no guard adds one to that another asks for

    def infer(given: onnx.ModelProto) -> onnx.ModelProto:
        return _infer(given, operators, strict, check_types)

    def past_negative(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_negative_sizes(given, operators, infer)

    def past_untyped(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_untyped_inputs(given, operators, past_negative)

    def past_matrices(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_matrix_values(given, operators, past_untyped)

    def past_scores(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_scores(given, operators, past_matrices)

    def past_windows(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_last_windows(given, operators, past_scores)

    def past_rounded(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_rounded_sizes(given, operators, past_windows)

    def past_equations(given: onnx.ModelProto) -> onnx.ModelProto:
        return infer_past_endless_equations(given, operators, past_rounded)

    return infer_with_distinct_names(message, operators, past_equations)


def _infer(
    message: onnx.ModelProto, operators: Set[str], strict: bool, check_types: bool
) -> onnx.ModelProto:
    infer = functools.partial(
        onnx.shape_inference.infer_shapes, check_type=check_types, strict_mode=strict
    )
    if makes_long_vector(message, operators):
        return infer(message)
    spare = _SPARE + _SPARE_PER_BYTE * message.ByteSize()
    if may_run_out(message, operators):
        return infer_in_subprocess(message, strict, spare, check_types) or infer(message)
    try:
        with bounded_memory(spare):
            return infer(message, data_prop=True)
    except MemoryError:
        return infer(message)
