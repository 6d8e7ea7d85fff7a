"""The table of kernels: the function of each version of each operator."""

from __future__ import annotations

from onnx_kvtool.core.tables import Table
from onnx_kvtool.runtime.kernels import (
    activation,
    control,
    indices,
    linear,
    picture,
    reduction,
)
from onnx_kvtool.runtime.kernels.attention import attention, states
from onnx_kvtool.runtime.kernels.conversion import cast, quantize
from onnx_kvtool.runtime.kernels.elementwise import binary, unary
from onnx_kvtool.runtime.kernels.kernel import KernelFunction, Lines
from onnx_kvtool.runtime.kernels.movement import choosing, reshaping, slicing
from onnx_kvtool.runtime.kernels.normalization import batch, layer
from onnx_kvtool.runtime.kernels.scatter import scatter, tensor_scatter

MODULES = (
    *(activation, control, indices, linear, picture, reduction),
    *(attention, states, cast, quantize, binary, unary),
    *(choosing, reshaping, slicing, batch, layer, scatter, tensor_scatter),
)
"""The modules whose `LINES` are lines of the table; a family is a module, or a package of them."""

KERNELS: Lines = Table("kernel", [line for module in MODULES for line in module.LINES.items()])
"""Kernels of the default domain by operator, the oldest first."""


def find_kernel(op_type: str, version: int) -> KernelFunction | None:
    """Return the kernel of a version of an operator; None when there is none of our own.

    `version` is the `since_version` of a schema of the default domain, not an opset.
    """
    found = None
    for since, kernel in KERNELS.get(op_type, {}).items():
        if since <= version:
            found = kernel
    return found
