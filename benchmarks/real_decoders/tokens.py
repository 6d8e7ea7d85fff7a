"""Tokens of models of real size in onnxruntime and OpenVINO, native beside lowered."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.processes.environments import kvtool_programs
from benchmarks.processes.run import reason, run
from benchmarks.real_decoders.bound import Bound
from benchmarks.real_models import CONFIGURATIONS, Configuration, write
from benchmarks.results import Cell, Line, ratio_cell
from tests.compat.environments import installed

__all__ = ["CASES", "COLUMNS", "OPENVINO", "lines"]

OPENVINO = "2026.4.1"
_RUNNER = Path(__file__).with_name("run_openvino.py")
_NATIVE = "native"


@dataclass(frozen=True)
class _Model:
    """A model, and what a decode step may take of it, native being 1."""

    case: str
    name: str
    limit: float


_MODELS = (
    _Model("Qwen2.5-0.5B, fp32", "qwen-0.5b-fp32", 1.02),
    _Model("Qwen2.5-0.5B, int8 QDQ", "qwen-0.5b-qdq-int8", 1.02),
    _Model("Qwen2.5-0.5B, int4 DequantizeLinear", "qwen-0.5b-dq-int4", 1.05),
    _Model("Llama-3.2-1B, fp16", "llama-1b-fp16", 1.02),
    _Model("Llama-3.2-1B, int4 MatMulNBits", "llama-1b-int4", 1.05),
)
_PART = 4
"""What layers and vocabulary are divided by."""

_PROMPT = 512
_PROMPT_LIMIT = 1.05
_STEPS = {
    "a token behind 100": (1, 100),
    "a token behind 3500": (1, 3500),
    f"a prompt of {_PROMPT}": (_PROMPT, 0),
}

_PLAIN, _FIXED, _TARGET, _OLD = "18", "18, `--dim`", "18, `--target`", "13, `--dim`"
_WAYS = {
    _PLAIN: ("--opset", "18"),
    _FIXED: ("--opset", "18", "--dim", "batch=1"),
    _TARGET: ("--opset", "18", "--target", "onnxruntime"),
    _OLD: ("--opset", "13", "--dim", "batch=1"),
}
"""How `kvtool lower` is called, by what the column says of it."""

COLUMNS = (
    "model, step",
    _NATIVE,
    "`--opset 18`",
    "`--opset 18 --dim batch=1`",
    "`--opset 18 --target onnxruntime`",
    "`--opset 13 --dim batch=1`",
    "OpenVINO, `--opset 18 --dim batch=1`",
)
CASES = tuple(f"{model.case}, {step}" for model in _MODELS for step in _STEPS)


def lines(quick: bool) -> Iterator[Line]:
    """Write, lower and run each model."""
    for model in _MODELS:
        whole = CONFIGURATIONS[model.name]
        configuration = replace(
            whole, layers=whole.layers // _PART, vocabulary=whole.vocabulary // _PART
        )
        with tempfile.TemporaryDirectory() as directory:
            yield from _measured(model, configuration, Path(directory), quick)


def _measured(
    model: _Model, configuration: Configuration, directory: Path, quick: bool
) -> Iterator[Line]:
    path = write(configuration, directory)
    paths, failures = {_NATIVE: path}, dict[str, str]()
    for way, arguments in _WAYS.items():
        output = directory / f"{len(paths)}.onnx"
        command = [kvtool_programs() / "kvtool", "lower", path, "-o", output, *arguments]
        done = run([*command, "--no-verify"], directory)
        if done.failure is None:
            paths[way] = output
        else:
            failures[way] = done.failure
    rounds = {1: 5 if quick else 12, _PROMPT: 1 if quick else 3}
    openvino = _in_openvino(paths.get(_FIXED), 1 if quick else 4)
    taken: dict[str, dict[str, dict[str, np.ndarray]]] = {step: {} for step in _STEPS}
    for way in [way for way in paths if way != _NATIVE]:  # in pairs, as all take over 10 GB
        bound = {one: Bound(paths[one], configuration) for one in (_NATIVE, way)}
        for step, (length, start) in _STEPS.items():
            taken[step][way] = _seconds(bound, length, start, rounds[length])
        del bound
    for (step, (length, _)), found in zip(_STEPS.items(), openvino, strict=True):
        native = np.median([seconds[_NATIVE] for seconds in taken[step].values()])
        ratios = {way: float(np.median(s[way] / s[_NATIVE])) for way, s in taken[step].items()}
        print(f"  {model.case}, {step}: {native:.4f} s, {ratios}, {found}", file=sys.stderr)
        yield Line(
            f"{model.case}, {step}",
            (
                Cell(f"{1 / native:.1f} tokens/s" if length == 1 else f"{native:.2f} s"),
                *(
                    Cell(failures[way])
                    if way in failures
                    else ratio_cell(ratios[way], _limit(model, way, length))
                    for way in _WAYS
                ),
                Cell(found) if isinstance(found, str) else ratio_cell(found / native),
            ),
        )


def _limit(model: _Model, way: str, length: int) -> float | None:
    """Return what a step may take at most; copies of caches are allowed for where int4 is."""
    limit = model.limit if length == 1 else _PROMPT_LIMIT
    if way == _OLD or (way == _PLAIN and "int4" in model.case):
        return None
    return limit


def _seconds(
    bound: dict[str, Bound], length: int, start: int, rounds: int
) -> dict[str, np.ndarray]:
    """Return the times of steps that the sessions do in turns.

    Raises:
        RuntimeError: If a lowered model computes something else.
    """
    for one in bound.values():
        one.bind(length)
        one.step(start)
    seconds: dict[str, list[float]] = {way: [] for way in bound}
    order = list(bound)
    for turn in range(rounds):
        for way in order:
            seconds[way].append(bound[way].step(start + (turn if length == 1 else 0)))
        order = order[1:] + order[:1]
    native = bound[_NATIVE].logits()
    for way, one in bound.items():
        # Where activations are rounded to 8 bits, a last bit moves some of them by a whole step.
        off = float(np.sqrt(np.mean((one.logits() - native) ** 2)) / native.std())
        if off > 0.1:
            raise RuntimeError(f"{way} differs from the native model by {off:.2f} of its spread")
    return {way: np.array(found) for way, found in seconds.items()}


def _in_openvino(path: Path | None, rounds: int) -> list[float] | list[str]:
    """Return the seconds of each kind of step, or why there are none."""
    if path is None:
        return ["-"] * len(_STEPS)
    python = installed("openvino", OPENVINO)
    steps = [str(number) for pair in _STEPS.values() for number in pair]
    done = subprocess.run(
        [python, "-I", _RUNNER, path, str(rounds), *steps],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        return [reason(done.stderr, done.returncode)] * len(_STEPS)
    return [milliseconds / 1e3 for milliseconds in json.loads(done.stdout.splitlines()[-1])]
