"""The table of kernels: which function computes which version of which operator."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
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
from onnx_kvtool.runtime.kernels.kernel import KernelFunction, Lines

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


KERNELS: Lines = Table("kernel", [line for family in FAMILIES for line in family.LINES.items()])
"""Kernels of the default domain by operator, the oldest first."""


def find_kernel(op_type: str, version: int) -> KernelFunction | None:
    """Return the kernel of a version of an operator; None when there is none of our own.

    Args:
        op_type: An operator of the default domain.
        version: The version of the operator (`since_version` of its schema), not an opset.
    """
    found = None
    for since, kernel in KERNELS.get(op_type, {}).items():
        if since <= version:
            found = kernel
    return found
