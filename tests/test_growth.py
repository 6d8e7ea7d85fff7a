"""The work of each command grows in line with the model: steps are counted, not time.

Every line of kvtool and onnx_ir that a command goes through is counted, at two sizes. A line
that is passed as often as the square of the size stands out even where it takes no time yet.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
import onnx_ir
import pytest

import onnx_kvtool
from benchmarks.growth import SHAPES, WORK
from tests.grids import grid

_UNITS = {"contrib caches": 4, "layers of a decoder": 4, "Ifs within each other": 7}
_PACKAGES = tuple(os.path.dirname(package.__file__ or "") for package in (onnx_kvtool, onnx_ir))
_MOST = 2.3
_MOST_OF_A_LINE = 2.7
"""Of a line that sorts, or that is passed by chance, a little more.

The order of a set of values follows their addresses, so that a step may be needed twice in one run
and once in the next. What doubles by chance does so once: a suspect is counted at a third size.
"""


def _steps(work: Callable[[Path], None], path: Path) -> Counter[tuple[str, int]]:
    found: dict[str, Counter[int]] = {}

    @cache
    def inside(name: str) -> Any:
        if not name.startswith((*_PACKAGES, "<")):
            return None
        counts = found[name] = Counter()

        def count(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                counts[frame.f_lineno] += 1
            return count

        return count

    def entered(frame: FrameType, _: str, __: Any) -> Any:
        return inside(frame.f_code.co_filename)

    work(path)  # what is made once is made
    before = sys.gettrace()
    sys.settrace(entered)
    try:
        work(path)
    finally:
        sys.settrace(before)
    return Counter({(name, n): times for name, c in found.items() for n, times in c.items()})


Counts = Counter[tuple[str, int]]


def _counted(
    build: Callable[[int], onnx.ModelProto], work: Callable[[Path], None], units: int, path: Path
) -> Iterator[Counts]:
    """Yield the counts of a model, and of models twice and four times as large."""
    for size in (2 * units, 4 * units, 8 * units):
        onnx.save(build(size), path)
        yield _steps(work, path)


def _grown(less: Counts, more: Counts, least: int) -> set[tuple[str, int]]:
    return {x for x, n in more.items() if n >= least and n > _MOST_OF_A_LINE * less[x] > 0}


def _faults(first: Counts, second: Counts, larger: Iterator[Counts], least: int) -> list[str]:
    """Return the lines that are passed too often at both doublings, by place and counts."""
    suspects = _grown(first, second, least)
    if not suspects:
        return []
    third = next(larger)
    return [
        f"{name}:{number} is passed {[c[name, number] for c in (first, second, third)]} times"
        for name, number in sorted(suspects & _grown(second, third, least))
    ]


@pytest.mark.long
@grid(13, shape=tuple(SHAPES), command=tuple(WORK))
def test_steps_grow_in_line_with_the_model(shape: str, command: str, tmp_path: Path) -> None:
    if shape == "a chain behind an unknown operator" and command in ("eval", "verify"):
        pytest.skip("nothing runs an unknown operator")
    units = _UNITS.get(shape, 12)
    counted = _counted(SHAPES[shape], WORK[command], units, tmp_path / "model.onnx")
    first, second = next(counted), next(counted)
    assert second.total() <= _MOST * first.total()
    if shape != "Ifs within each other":  # the place of a node is as long as it lies deep
        assert _faults(first, second, counted, 6 * units * units) == []


@pytest.mark.long
def test_a_square_is_seen(tmp_path: Path) -> None:
    """A step for each pair of nodes, that takes a millionth of the time."""

    def work(path: Path) -> None:
        graph = onnx_ir.load(path).graph
        for _ in graph:
            for _ in graph:  # the iteration of onnx_ir
                pass

    counted = _counted(SHAPES["a chain of nodes"], work, 12, tmp_path / "model.onnx")
    assert _faults(next(counted), next(counted), counted, 6 * 12 * 12) != []
