"""Sequences and optionals."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Kernel
from onnx_kvtool.runtime.kernels.sequence.joining import concat_from_sequence, split_to_sequence
from onnx_kvtool.runtime.kernels.sequence.mapping import sequence_map
from onnx_kvtool.runtime.kernels.sequence.optionals import (
    optional,
    optional_get_element,
    optional_has_element,
)
from onnx_kvtool.runtime.kernels.sequence.sequences import (
    sequence_at,
    sequence_construct,
    sequence_empty,
    sequence_erase,
    sequence_insert,
    sequence_length,
)

__all__ = ["LINES"]

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("ConcatFromSequence", (Kernel(11, concat_from_sequence),)),
    ("Optional", (Kernel(15, optional),)),
    ("OptionalGetElement", (Kernel(15, optional_get_element),)),
    ("OptionalHasElement", (Kernel(15, optional_has_element),)),
    ("SequenceAt", (Kernel(11, sequence_at),)),
    ("SequenceConstruct", (Kernel(11, sequence_construct),)),
    ("SequenceEmpty", (Kernel(11, sequence_empty),)),
    ("SequenceErase", (Kernel(11, sequence_erase),)),
    ("SequenceInsert", (Kernel(11, sequence_insert),)),
    ("SequenceLength", (Kernel(11, sequence_length),)),
    ("SequenceMap", (Kernel(17, sequence_map),)),
    ("SplitToSequence", (Kernel(11, split_to_sequence),)),
)
"""Operators of this family with their kernels, oldest first."""
