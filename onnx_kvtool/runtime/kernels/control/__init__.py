"""If, Loop and Scan."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.control.conditional import conditional
from onnx_kvtool.runtime.kernels.control.loop import loop
from onnx_kvtool.runtime.kernels.control.scan import scan_8, scan_9
from onnx_kvtool.runtime.kernels.kernel import Kernel

__all__ = ["LINES"]

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("If", (Kernel(1, conditional),)),
    ("Loop", (Kernel(1, loop),)),
    ("Scan", (Kernel(8, scan_8), Kernel(9, scan_9))),
)
"""Operators of this family with their kernels, oldest first."""
