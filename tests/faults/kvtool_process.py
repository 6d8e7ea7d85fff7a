"""Running `kvtool` so that it can be killed, starved and watched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["Fault", "Outcome", "Runner", "running"]

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Fault:
    """What happens to a process.

    Attributes:
        at: Number of the point of `points` at which `name` happens; 0 for none.
        name: A key of `points.SIGNALS`, or an error of the system.
        spare_bytes: Most bytes of address space that it may take beyond what it starts with.
        file_bytes: Most bytes that a file may have which it writes.
        is_unprivileged: Whether it has no rights beyond those that modes of files give its user.
        signal: Signal that the process gets after `signal_after` seconds, unless that is None.
        signal_after: See `signal`.
        seconds: After which a process counts as one that hangs.
        patience: Seconds for which a comparison runs, however small its budget; None for kvtool's.
        stdout: File to which standard output goes; None to keep it.
        stdin: File from which standard input comes.
    """

    at: int = 0
    name: str = ""
    spare_bytes: int | None = None
    file_bytes: int | None = None
    is_unprivileged: bool = False
    signal: int = signal.SIGKILL
    signal_after: float | None = None
    seconds: float = 60
    patience: float | None = None
    stdout: str | None = None
    stdin: str = os.devnull


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        code: Exit code; minus the number of the signal that ended it.
        is_late: Whether it was killed because it took too long.
        seconds: How long it took.
        points: Names of the points it met.
        stdout: What it wrote, as text.
        stderr: Likewise.
        peak: The most bytes of memory that it, or a child of it, had.
    """

    code: int
    is_late: bool
    seconds: float
    points: tuple[str, ...]
    stdout: str
    stderr: str
    peak: int = 0


class Runner:
    """Runs commands, one after the other, in children of a process that is ready to go."""

    def __init__(self, server: subprocess.Popen[str], directory: Path) -> None:
        self._server = server
        self._directory = directory

    def run(self, arguments: Sequence[str], cwd: Path, fault: Fault | None = None) -> Outcome:
        """Run `kvtool` with these arguments in a directory, with a fault or with none."""
        fault = fault or Fault()
        files = {name: self._directory / name for name in ("stdout", "stderr", "trace")}
        for path in files.values():
            path.unlink(missing_ok=True)
            path.touch(0o666)
            path.chmod(0o666)
        job = {
            "arguments": list(arguments),
            "cwd": os.fspath(cwd),
            "at": fault.at,
            "fault": fault.name,
            "spare_bytes": fault.spare_bytes,
            "file_bytes": fault.file_bytes,
            "is_unprivileged": fault.is_unprivileged,
            "signal": int(fault.signal),
            "signal_after": fault.signal_after,
            "seconds": fault.seconds,
            "patience": fault.patience,
            "environment": {"NO_COLOR": "1", "COLUMNS": "80"},
            "stdin": fault.stdin,
            "stdout": fault.stdout or os.fspath(files["stdout"]),
            "stderr": os.fspath(files["stderr"]),
            "trace": os.fspath(files["trace"]),
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(f"{json.dumps(job)}\n")
        self._server.stdin.flush()
        answer = json.loads(_line(self._server.stdout))
        text = {name: path.read_text(errors="replace") for name, path in files.items()}
        return Outcome(
            answer["code"],
            answer["late"],
            answer["seconds"],
            tuple(text["trace"].split()),
            text["stdout"],
            text["stderr"],
            answer["peak"],
        )


def _line(stream: IO[str]) -> str:
    line = stream.readline()
    if not line:
        raise EOFError("the process that runs commands has ended")
    return line


@contextlib.contextmanager
def running() -> Iterator[Runner]:
    """Start what runs commands; it ends with the block."""
    directory = Path(tempfile.mkdtemp(prefix="kvtool-faults-"))
    directory.chmod(0o755)  # a child that has become another user opens files in it
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.zygote"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        _line(server.stdout)
        yield Runner(server, directory)
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(timeout=60)
        shutil.rmtree(directory)
