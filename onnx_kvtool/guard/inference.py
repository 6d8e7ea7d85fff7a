"""onnx's inference with data propagation, past all of its faults that are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Set

import onnx
import onnx.shape_inference

from onnx_kvtool.guard.copied_scopes import infer_past_copied_scopes
from onnx_kvtool.guard.distinct_names import infer_with_distinct_names
from onnx_kvtool.guard.endless_equations import infer_past_endless_equations
from onnx_kvtool.guard.failed_allocation import bounded_memory, infer_in_subprocess
from onnx_kvtool.guard.last_windows import POOLS, infer_past_last_windows
from onnx_kvtool.guard.long_vectors import makes_long_vector, may_run_out
from onnx_kvtool.guard.matrix_values import infer_past_matrix_values
from onnx_kvtool.guard.negative_sizes import infer_past_negative_sizes
from onnx_kvtool.guard.past_scores import infer_past_scores
from onnx_kvtool.guard.rounded_sizes import SCALED, infer_past_rounded_sizes
from onnx_kvtool.guard.small_constants import HOLDERS, Contents
from onnx_kvtool.guard.untyped_inputs import CRASHING, infer_past_untyped_inputs

_Infer = Callable[[Contents], onnx.ModelProto]
_Way = Callable[..., onnx.ModelProto]

_SPARE = 256 << 20
_SPARE_PER_BYTE = 32
"""Bytes that an inference may take, whatever the model and for each byte of it; a graph of 97,000
nodes and 12 MB took 200 MB."""

_PAST: tuple[tuple[Set[str], _Way], ...] = (
    ({"Slice"}, infer_past_negative_sizes),
    (CRASHING, infer_past_untyped_inputs),
    ({"Unsqueeze"}, infer_past_matrix_values),
    ({"Attention"}, infer_past_scores),
    (POOLS, infer_past_last_windows),
    (SCALED, infer_past_rounded_sizes),
    ({"Einsum"}, infer_past_endless_equations),
    (HOLDERS, infer_with_distinct_names),
)
"""The operators that each fault is about, and the way past it; the innermost one first. A way takes
the contents of a model and what infers one. It leaves the contents as they were, and returns the
model with inferred types."""


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
    infer: _Infer = functools.partial(_infer, strict=strict, check_types=check_types)

    contents = Contents(message)
    for operators, past in _PAST:
        if not contents.operators.isdisjoint(operators):
            infer = functools.partial(past, infer=infer)
    return infer(contents)


def _infer(contents: Contents, strict: bool, check_types: bool) -> onnx.ModelProto:
    message = contents.message
    infer = functools.partial(
        onnx.shape_inference.infer_shapes, check_type=check_types, strict_mode=strict
    )
    if makes_long_vector(contents):
        return infer(message)
    spare = _SPARE + _SPARE_PER_BYTE * message.ByteSize()
    if may_run_out(contents):
        return infer_in_subprocess(message, strict, spare, check_types) or infer(message)
    try:
        with bounded_memory(spare):
            return infer_past_copied_scopes(contents, functools.partial(infer, data_prop=True))
    except MemoryError:
        return infer(message)
