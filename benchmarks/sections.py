"""The benchmarks of the page, in its order."""

from __future__ import annotations

from benchmarks.decoder_step import DECODER_STEP
from benchmarks.growing_caches import GROWING_CACHES
from benchmarks.growth import GROWTH
from benchmarks.lowered_scatter import LOWERED_SCATTER
from benchmarks.processes.section import PROCESSES
from benchmarks.raised_decoder import RAISED_DECODER
from benchmarks.real_decoders import REAL_DECODERS
from benchmarks.repositories.section import CLUSTER, ELSEWHERE, REPOSITORIES
from benchmarks.results import Section
from benchmarks.rolling_windows import ROLLING_WINDOWS
from benchmarks.runtime.section import RUNTIME

__all__ = ["SECTIONS"]

SECTIONS: tuple[Section, ...] = (
    PROCESSES,
    GROWTH,
    REPOSITORIES,
    CLUSTER,
    ELSEWHERE,
    REAL_DECODERS,
    DECODER_STEP,
    LOWERED_SCATTER,
    RAISED_DECODER,
    GROWING_CACHES,
    ROLLING_WINDOWS,
    RUNTIME,
)
"""Adding a benchmark is a module that declares a section, and a line here."""
