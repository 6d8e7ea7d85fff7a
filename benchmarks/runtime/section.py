"""The section of the page about the reference runtime."""

from __future__ import annotations

from benchmarks.results import Section
from benchmarks.runtime.decoder import DECODER
from benchmarks.runtime.scatters import SCATTERS
from benchmarks.runtime.updates import UPDATES

__all__ = ["RUNTIME"]

RUNTIME = Section(
    "runtime",
    "The reference runtime",
    """\
The kernels that `kvtool eval` and `kvtool verify` compute with, beside onnx.reference, whose place
they take, and onnxruntime on one thread. What is compared takes turns, and a number is the median
of the ratios; in a column `.. / ours` more is better. Outputs are compared, bit for bit but for
those of the decoder.""",
    (SCATTERS, UPDATES, DECODER),
)
"""Kernels, cache updates and a whole decoder."""
