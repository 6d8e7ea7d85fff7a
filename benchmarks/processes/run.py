"""Running a command as a whole process, and why it failed where it did."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MEMORY_LIMIT", "TIME_LIMIT", "Run", "medians", "reason", "run"]

TIME_LIMIT = 120
"""Seconds after which a command is killed."""

MEMORY_LIMIT = 8 << 30
"""Bytes of address space that a command may have."""

_TOO_MUCH = f"needs more than {MEMORY_LIMIT >> 30} GB of address space"
_OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "Unable to allocate", "Cannot allocate memory")
_PREFIX = r"^(\[E\] |[\w.]*(Error|Exception): (/\S+:\d+: \w+: )?(Assertion `false` failed: )?)"
"""What stands before the reason: the level, the class, a place in the source of the build."""

_LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        seconds: By the clock on the wall.
        processor: Seconds of all processors.
        megabytes: The peak of the memory.
        failure: In a few words why it failed; None if it did not.
        printed: The end of what it printed, outputs and errors.
    """

    seconds: float
    processor: float
    megabytes: float
    failure: str | None
    printed: str = ""


def run(command: Sequence[str | Path], directory: Path, time_limit: float = TIME_LIMIT) -> Run:
    """Run a command under the limits, with `directory` as the current one.

    What the variables `PYTHON...` say is not handed on: they may forbid that compiled modules are
    kept, and then each run would be compiling.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    request = {
        "command": [str(part) for part in command],
        "seconds": time_limit,
        "bytes": MEMORY_LIMIT,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", _LAUNCHER],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment | {"NO_COLOR": "1"},
        check=True,
    )
    answer = json.loads(done.stdout)
    failure = None
    if answer["killed"]:
        failure = f"killed after {time_limit:.0f} s"
    elif answer["exit_code"]:
        failure = reason(answer["printed"], answer["exit_code"])
        if answer["exit_code"] < 0 and answer["megabytes"] * (1 << 20) > 0.9 * MEMORY_LIMIT:
            failure = _TOO_MUCH
    return Run(
        answer["seconds"], answer["processor"], answer["megabytes"], failure, answer["printed"]
    )


def medians(
    commands: Mapping[str, Sequence[str | Path]],
    directory: Path,
    rounds: int,
    time_limit: float = TIME_LIMIT,
) -> dict[str, float]:
    """Run commands in turns; return the median seconds of each by its case.

    Raises:
        RuntimeError: If a command fails.
    """
    seconds: dict[str, list[float]] = {case: [] for case in commands}
    for _ in range(rounds):
        for case, command in commands.items():
            done = run(command, directory, time_limit)
            if done.failure is not None:
                raise RuntimeError(f"{case} failed: {done.failure}")
            seconds[case].append(done.seconds)
    return {case: statistics.median(found) for case, found in seconds.items()}


def reason(printed: str, exit_code: int) -> str:
    """Return in one line why a command failed, from what it printed last.

    Args:
        printed: Output and errors of the command.
        exit_code: What it ended with; negative for a signal.
    """
    if any(word in printed for word in _OUT_OF_MEMORY):
        return _TOO_MUCH
    if exit_code < 0:
        return f"dies of {signal.Signals(-exit_code).name}"
    lines = [line.strip() for line in printed.splitlines()]
    told = [
        line for line in lines if re.match(r"(\[E\] (?!FAILED)|[\w.]*(Error|Exception)\b)", line)
    ]
    text = (told or [line for line in lines if line] or [f"exit code {exit_code}"])[-1]
    if re.fullmatch(r"[\w.]+", text):
        places = re.findall(r"line \d+, in (\w+)$", printed, re.MULTILINE)
        text += f" in `{places[-1]}`" if places else ""
    text = re.sub(_PREFIX, "", text)
    text = re.sub(r"(?:/[\w.@+-]+)+/", "", text).replace("|", " ").replace("<", "&lt;")
    return text if len(text) <= 120 else text[:117] + "..."
