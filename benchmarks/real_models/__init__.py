"""Decoders of the sizes that people deploy, written to a directory with seeded random weights."""

from benchmarks.real_models.configuration import (
    CACHES,
    CONFIGURATIONS,
    DTYPES,
    QUANTISATIONS,
    Configuration,
    tiny,
)
from benchmarks.real_models.writer import DATA, MODEL, write

__all__ = [
    "CACHES",
    "CONFIGURATIONS",
    "DATA",
    "DTYPES",
    "MODEL",
    "QUANTISATIONS",
    "Configuration",
    "tiny",
    "write",
]
