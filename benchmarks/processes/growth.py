"""Whether the time per node grows with the number of nodes."""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.decoders import decoder
from benchmarks.processes.environments import kvtool_programs
from benchmarks.processes.run import run
from benchmarks.results import Cell, Line, Table, ratio_cell

__all__ = ["GROWTH"]

_LAYERS = {"5,000 nodes": 16, "20,000 nodes": 64, "50,000 nodes": 160}
_LIMIT = 1.2
_STOPPED = "`kvtool infer`, an operator that onnx does not know first"
_FLOOR = "`import onnx_ir`, load"
_COMMANDS = {
    _FLOOR: ("python", "-c", "import sys, onnx_ir as ir; ir.load(sys.argv[1])"),
    "`kvtool lower --no-verify`": ("kvtool", "lower", "--no-verify", "-o", "output.onnx"),
    "`kvtool check`": ("kvtool", "check", "--isolated", "--exit-zero"),
    "`kvtool inspect`": (
        "kvtool",
        "inspect",
    ),
    "`kvtool infer`": ("kvtool", "infer", "-o", "output.onnx"),
    _STOPPED: ("kvtool", "infer", "-o", "output.onnx"),
}


def _stopped(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put an operator that onnx does not know before the first node; its output is declared."""
    node = helper.make_node("Odd", ["hidden_states"], ["odd"], name="odd", domain="my")
    for other in model.graph.node:
        for index, name in enumerate(other.input):
            if name == "hidden_states":
                other.input[index] = "odd"
    model.graph.node.insert(0, node)
    (given,) = [value for value in model.graph.input if value.name == "hidden_states"]
    declared = model.graph.value_info.add()
    declared.CopyFrom(given)
    declared.name = "odd"
    model.opset_import.add(domain="my", version=1)
    return model


def _written(message: onnx.ModelProto, directory: Path) -> dict[str, Path]:
    """Write a model and its form with an unknown operator; return the file of each case."""
    paths = {}
    for case in _COMMANDS:
        path = directory / f"{len(message.graph.node)}{'-stopped' if case == _STOPPED else ''}.onnx"
        if not path.exists():
            onnx.save(_stopped(message) if case == _STOPPED else message, path)
        paths[case] = path
    return paths


def _seconds(case: str, path: Path) -> float:
    program, *arguments = _COMMANDS[case]
    done = run([kvtool_programs() / program, *arguments, path], path.parent)
    if done.failure is not None:
        raise RuntimeError(f"{case} failed: {done.failure}")
    return done.processor


def _lines(quick: bool) -> Iterator[Line]:
    messages = [decoder(layers, filler=298) for layers in _LAYERS.values()]
    counts = [len(message.graph.node) for message in messages]
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as directory:
        files = [_written(message, Path(directory)) for message in messages]
        for _ in range(1 if quick else 3):
            for case in _COMMANDS:
                for count, paths in zip(counts, files, strict=True):
                    seconds[case, count].append(_seconds(case, paths[case]))
    for case in _COMMANDS:
        taken = [statistics.median(seconds[case, count]) for count in counts]
        # What another node costs; starting, which is the same for all, drops out.
        first, second = np.diff(taken) / np.diff(counts)
        limit = None if case == _FLOOR else _LIMIT
        growth = ratio_cell(float(second / first), limit, what="growth of the time per node")
        yield Line(case, (Cell(f"{first * 1e6:.0f} µs"), growth))


_SMALL, _MIDDLE, _LARGE = _LAYERS

GROWTH = Table(
    "growth",
    f"What another node costs between {_SMALL} and {_MIDDLE}, in processor time, and between "
    f"{_MIDDLE} and {_LARGE} as a ratio to it. An operator that onnx does not know stops onnx's "
    "inference, so that kvtool's own finds all the shapes behind it.",
    ("command", "another node", "one more, later / earlier"),
    tuple(_COMMANDS),
    _lines,
)
"""The table of growth."""
