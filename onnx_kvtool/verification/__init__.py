"""Two models compared by running them: one engine for `verify`, `lower` and `raise`."""

from __future__ import annotations
