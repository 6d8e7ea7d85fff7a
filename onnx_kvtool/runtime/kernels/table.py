"""The table of kernels: which function computes which version of which operator."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib import OperatorName
from onnx_kvtool.runtime.kernels import (
    activation,
    attention,
    control,
    conversion,
    elementwise,
    gather,
    linear,
    movement,
    normalization,
    picture,
    reduction,
    scatter,
    sequence,
)
from onnx_kvtool.runtime.kernels.contrib import CONTRIB_LINES
from onnx_kvtool.runtime.kernels.kernel import Kernel

FAMILIES = (
    scatter,
    gather,
    movement,
    elementwise,
    reduction,
    conversion,
    linear,
    normalization,
    activation,
    attention,
    control,
    sequence,
    picture,
)
"""The families, each a package whose `LINES` are lines of the table."""


def _lines() -> Iterator[tuple[str, tuple[Kernel, ...]]]:
    for family in FAMILIES:
        yield from family.LINES


KERNELS: Table[str, tuple[Kernel, ...]] = Table("kernel", _lines())
"""Kernels of the default domain by operator, the oldest first."""

CONTRIB_KERNELS: Table[OperatorName, Kernel] = Table("kernel of onnxruntime", CONTRIB_LINES)
"""Kernels of operators that onnx does not define, by domain and name."""


def find_kernel(op_type: str, version: int) -> Kernel | None:
    """Return the kernel of a version of an operator; None when there is none of our own.

    Args:
        op_type: An operator of the default domain.
        version: The version of the operator (`since_version` of its schema), not an opset.
    """
    found = None
    for kernel in KERNELS.get(op_type, ()):
        if kernel.since <= version:
            found = kernel
    return found
