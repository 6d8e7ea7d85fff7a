"""The faults of other libraries that kvtool works around."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
from onnx_kvtool.guard import (
    copied_scopes,
    distinct_names,
    early_sympy,
    endless_equations,
    failed_allocation,
    known_wrong,
    last_windows,
    left_out_inputs,
    long_vectors,
    matrix_values,
    names_for_zero,
    negative_sizes,
    nested_calls,
    past_scores,
    rounded_sizes,
    untyped_inputs,
)
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.model_io import message

_WRITER = Fault(
    library="onnx-ir",
    seen="1.1.0",
    what="drops sparse initializers and the empty outputs at the end of a node when it writes a"
    " model, doubles metadata of tensors and quantization annotations of outputs, and refuses maps"
    " and sparse attributes",
    instead="carries around it what it cannot hold, and writes models itself",
)
"""Works below this package: `onnx_kvtool.core` reads and writes by it."""

_SYMPY = Fault(
    library="onnx-ir",
    seen="1.1.0",
    what="imports sympy, which takes longer than the rest of it, and 34 MB, and uses it for"
    " arithmetic on sizes alone",
    instead="lets its command line import sympy when something asks for it, which nothing does",
)
"""Stands here because its file is imported by what must import nothing."""

FAULTS: Table[str, Fault] = Table(
    "fault",
    [
        (module.__name__.replace(".", "/") + ".py", fault)
        for module, fault in (
            (negative_sizes, negative_sizes.FAULT),
            (untyped_inputs, untyped_inputs.FAULT),
            (long_vectors, long_vectors.FAULT),
            (endless_equations, endless_equations.FAULT),
            (failed_allocation, failed_allocation.FAULT),
            (nested_calls, nested_calls.FAULT),
            (left_out_inputs, left_out_inputs.FAULT),
            (distinct_names, distinct_names.FAULT),
            (matrix_values, matrix_values.FAULT),
            (names_for_zero, names_for_zero.FAULT),
            (past_scores, past_scores.FAULT),
            (last_windows, last_windows.FAULT),
            (rounded_sizes, rounded_sizes.FAULT),
            (known_wrong, known_wrong.FAULT),
            (message, _WRITER),
            (copied_scopes, copied_scopes.FAULT),
            (early_sympy, _SYMPY),
        )
    ],
)
"""The faults by the file that works around each; first those that end the process or take all of
its memory or time, then those that give wrong answers; last those that only take time."""
