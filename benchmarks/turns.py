"""Timing two things in turns, and a line of a table that says how they compare."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        case: What is run.
        other: What it is compared with.
        ours: Milliseconds of our runtime.
        ratio: Of the times; which way round, `other` says.
        limit: What the ratio must not exceed, or must reach if `at_least`; None where nothing was
            promised.
        at_least: Whether more is better.
    """

    case: str
    other: str
    ours: float
    ratio: float
    limit: float | None
    at_least: bool = False

    @property
    def failed(self) -> bool:
        """Whether the promise is broken."""
        if self.limit is None:
            return False
        return self.ratio < self.limit if self.at_least else self.ratio > self.limit


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
