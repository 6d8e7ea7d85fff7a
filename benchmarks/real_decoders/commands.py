"""What the commands take on models of real size."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes.commands import FLOOR
from benchmarks.processes.environments import kvtool_programs
from benchmarks.processes.run import Run, run
from benchmarks.real_models import CONFIGURATIONS, write
from benchmarks.results import Cell, Line, Target

__all__ = ["CASES", "COMMANDS", "FLOOR", "MEMORY_TARGET", "TIME_TARGET", "lines"]

TIME_TARGET = 6
"""Times the floor that a verified `lower` may take."""

MEMORY_TARGET = 400
"""MB that it may take."""

_VERIFIED = "`lower`"

COMMANDS = {
    "`inspect`": "inspect {model}",
    "`check`": "check {model} --isolated --exit-zero",
    "`infer`": "infer {model} -o {output}",
    "`lower --no-verify`": "lower {model} -o {output} --no-verify",
    _VERIFIED: "lower {model} -o {output}",
    "`raise`": "raise {exported} -o {output}",
}
"""By the head of their column."""

_MODELS = {
    "Qwen2.5-0.5B, fp32, 2.35 GiB": "qwen-0.5b-fp32",
    "Qwen2.5-0.5B, int4 DequantizeLinear": "qwen-0.5b-dq-int4",
    "Qwen2.5-0.5B, int8 QDQ": "qwen-0.5b-qdq-int8",
    "Llama-3.2-1B, fp16, 2.3 GiB": "llama-1b-fp16",
    "Llama-3.2-1B, bf16, 2.3 GiB": "llama-1b-bf16",
    "Llama-3.2-1B, int4 MatMulNBits": "llama-1b-int4",
    "Llama-7B-like, fp16, 12.6 GiB": "llama-7b-fp16",
    "30 layers, 34 MB, capacity 32768": "long-32768",
    "30 layers, 34 MB, capacity 131072": "long-131072",
}
_SPARSE = frozenset({"llama-7b-fp16"})

CASES = tuple(_MODELS)


def lines(quick: bool) -> Iterator[Line]:
    """Write each model, run the commands on it, and remove it."""
    for case, name in _MODELS.items():
        with tempfile.TemporaryDirectory() as directory:
            path = write(CONFIGURATIONS[name], Path(directory), sparse=quick or name in _SPARSE)
            runs = _runs(path)
        yield Line(case, tuple(_cell(head, own, runs[FLOOR.case]) for head, own in runs.items()))


def _runs(path: Path) -> dict[str, Run]:
    """Return the run of the floor and of each command, by the heads of the columns."""
    directory = path.parent
    kvtool = kvtool_programs() / "kvtool"
    exported, output = directory / "exported.onnx", directory / "output.onnx"
    places = {"model": path, "exported": exported, "output": output}
    export = ("lower", path, "-o", exported, "--only", "TensorScatter", "--no-verify")
    done = run([kvtool, *export], directory)
    if done.failure is not None:
        raise RuntimeError(f"no exported form: {done.failure}")
    floor = (part.format(**places) for part in FLOOR.arguments[1:])
    commands: dict[str, list[str | Path]] = {FLOOR.case: [kvtool_programs() / "python", *floor]}
    for head, arguments in COMMANDS.items():
        commands[head] = [kvtool, *arguments.format(**places).split()]
    runs = {}
    for head, command in commands.items():
        output.unlink(missing_ok=True)
        found = runs[head] = run(command, directory)
        print(f"  {head}: {found.processor:.2f} s, {found.megabytes:.0f} MB", file=sys.stderr)
    return runs


def _cell(head: str, own: Run, floor: Run) -> Cell:
    if head == FLOOR.case:
        return Cell(f"{own.processor:.2f} s, {own.megabytes:.0f} MB")
    verified = head == _VERIFIED
    if own.failure is not None:
        targets = (Target("proven equal", 1, 0, at_least=True),) if verified else ()
        return Cell(f"{own.failure} ({own.processor:.1f} s, {own.megabytes:.0f} MB)", targets)
    ratio = own.processor / floor.processor
    text = f"{ratio:.2f}, {own.megabytes:.0f} MB"
    if not verified:
        return Cell(text)
    proven = "verification: equal" in own.printed
    targets = (
        Target("time over the floor", TIME_TARGET, ratio),
        Target("peak memory in MB", MEMORY_TARGET, own.megabytes),
        Target("proven equal", 1, float(proven), at_least=True),
    )
    return Cell(text if proven else f"{text}, not proven", targets)
