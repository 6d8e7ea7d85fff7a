"""Timing two things in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["in_turns", "seconds"]


def seconds(run: Callable[[], Any]) -> float:
    """Return the time of one call."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def in_turns(ours: Callable[[], Any], other: Callable[[], Any], repeat: int) -> tuple[float, float]:
    """Return the median milliseconds of `ours` and the median ratio to `other`."""
    ours(), other()
    pairs = np.array([(seconds(ours), seconds(other)) for _ in range(repeat)])
    return float(np.median(pairs[:, 0])) * 1e3, float(np.median(pairs[:, 0] / pairs[:, 1]))
