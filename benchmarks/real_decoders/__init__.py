"""Models of real size: what the commands take, and how fast the results decode."""

from benchmarks.real_decoders.section import REAL_DECODERS

__all__ = ["REAL_DECODERS"]
