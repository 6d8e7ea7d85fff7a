"""Sequences and optionals, of which onnx.reference runs the others."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Kernel
from onnx_kvtool.runtime.kernels.sequence.sequences import (
    optional,
    sequence_insert,
    sequence_map,
)

__all__ = ["LINES"]

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("Optional", (Kernel(15, optional),)),
    ("SequenceInsert", (Kernel(11, sequence_insert),)),
    ("SequenceMap", (Kernel(17, sequence_map),)),
)
"""Operators of this family with their kernels, oldest first."""
