"""Operators that read elements from places given by indices."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.gather.gather import gather
from onnx_kvtool.runtime.kernels.gather.gather_elements import gather_elements
from onnx_kvtool.runtime.kernels.gather.gather_nd import gather_nd
from onnx_kvtool.runtime.kernels.kernel import Kernel

__all__ = ["LINES"]

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("Gather", (Kernel(1, gather),)),
    ("GatherElements", (Kernel(11, gather_elements),)),
    ("GatherND", (Kernel(11, gather_nd),)),
)
"""Operators of this family with their kernels, oldest first."""
