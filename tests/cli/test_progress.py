"""What people see while they wait, and when they do not want to wait any longer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_kvtool.cli.output import shown_progress
from onnx_kvtool.core.machine import silent
from onnx_kvtool.model_io import atomic

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "fixtures/models/native/llama_static.onnx"


CONTROL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"


class Terminal:
    """A process whose standard error is a terminal, which is also the one that controls it."""

    def __init__(self, code: str, *arguments: str, cwd: Path = ROOT) -> None:
        pty = pytest.importorskip("pty", reason="Windows has no such terminals")
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROL + code, *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"},
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = b""

    def wait_for(self, text: bytes) -> None:
        """Read until `text` is shown."""
        while text not in self.shown:
            part = self._read()
            assert part, f"the process ended without it: {self.shown!r}"

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def end(self) -> int:
        """Read what is left, and return the exit code."""
        while self._read():
            pass
        code = self.process.wait(60)
        os.close(self._ours)
        return code

    def _read(self) -> bytes:
        try:
            part = os.read(self._ours, 1 << 16)
        except OSError:  # the other end is closed
            return b""
        self.shown += part
        return part

    def left(self) -> str:
        """What stands on the terminal in the end: a line that was erased is not part of it."""
        kept = re.split(rb"\x1b\[2K", self.shown)[-1]
        return re.sub(rb"\x1b\[[0-9?;]*[A-Za-z]", b"", kept).decode().strip()


LOOP = """
import sys, time
from onnx_kvtool.cli.output import shown_progress
with shown_progress() as progress:
    for part in range(1, 5):
        progress("working, part", part, 4)
        time.sleep({delay})
print("done", file=sys.stderr)
"""


@pytest.mark.parametrize(("delay", "is_seen"), [(0.4, True), (0.0, False)], ids=["long", "short"])
def test_a_line_appears_for_work_over_a_second_and_is_gone_after_it(delay, is_seen) -> None:
    terminal = Terminal(LOOP.format(delay=delay))
    assert terminal.end() == 0
    assert (b"working, part 4 of 4" in terminal.shown) == is_seen
    assert b"part 1 of 4" not in terminal.shown  # by then, the first second was not over
    assert terminal.left() == "done"


@pytest.mark.exhaustive
def test_a_part_that_says_nothing_for_long_is_shown_all_the_same() -> None:
    terminal = Terminal(LOOP.format(delay=1.5).replace("range(1, 5)", "range(1, 2)"))
    assert terminal.end() == 0
    assert b"working, part 1 of 4" in terminal.shown


def test_off_a_terminal_nothing_is_shown() -> None:
    with shown_progress() as progress:
        assert progress is silent


def waiting(module: str, name: str, seconds: float, patience: float = 0.2) -> str:
    """Return code that runs the command line, which takes `seconds` longer in one function."""
    return f"""
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import onnx_kvtool.cli.output as progress
import {module} as module
progress._PATIENCE = {patience}
function = module.{name}
def slow(*arguments, **named):
    time.sleep({seconds})
    return function(*arguments, **named)
module.{name} = slow
from onnx_kvtool.cli import main
main()
"""


COMMANDS = {
    "lower": ("rewrite.verify", "compare_candidates", b"checking the result"),
    "raise": ("commands.rewriting", "read", b"reading the model"),
    "verify": ("verification.comparison.side_by_side", "_first_run", b"verifying, case 4 of 4"),
    "eval": ("verification.inputs.stepping", "advance", b"running, step 1 of 2"),
    "inspect": ("commands.inspect", "find_caches", b"looking for caches"),
    "infer": ("commands.infer", "infer_model", b"inferring shapes"),
    "check": ("commands.check_file", "read", b"checking, model 1 of 1"),
}
FLAGS = {
    "verify": (str(MODEL), "--steps", "0"),
    "eval": ("--random", "--steps", "1"),
    "lower": ("--dry-run",),
    "raise": ("--dry-run",),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_it_does(command: str, tmp_path: Path) -> None:
    place, name, phrase = COMMANDS[command]
    code = waiting(f"onnx_kvtool.{place}", name, 0.6)
    terminal = Terminal(code, command, str(MODEL), *FLAGS.get(command, ()), cwd=tmp_path)
    terminal.end()
    assert phrase in terminal.shown


@pytest.mark.exhaustive
def test_an_interrupt_says_that_nothing_was_written(tmp_path: Path) -> None:
    code = waiting("onnx_kvtool.verification.comparison.side_by_side", "_first_run", 20)
    terminal = Terminal(code, "lower", str(MODEL), "-o", "out.onnx", cwd=tmp_path)
    terminal.wait_for(b"verifying, case 1 of 4")
    terminal.press(b"\x03")
    assert terminal.end() == 130
    assert terminal.left() == "kvtool: interrupted: nothing was written"
    assert not [*tmp_path.iterdir()]


@pytest.mark.exhaustive
def test_an_interrupt_after_the_model_is_in_place_says_so(tmp_path: Path) -> None:
    """The report is all that is missing then."""
    code = waiting("onnx_kvtool.report.text", "print_talk", 20)
    code = code.replace("    time.sleep", "    __import__('os').write(2, b'here'); time.sleep")
    terminal = Terminal(code, "lower", str(MODEL), "--no-verify", "-o", "out.onnx", cwd=tmp_path)
    terminal.wait_for(b"here")
    terminal.press(b"\x03")
    assert terminal.end() == 130
    assert "out.onnx` was written, and nothing else" in terminal.left()
    assert [path.name for path in tmp_path.iterdir()] == ["out.onnx"]


def _undone(path: Path) -> None:
    atomic.write_bytes(path, b"x")
    path.unlink()


RECORDS: dict[str, tuple[Callable[[Path], None], bool]] = {
    "a file that is new": (lambda path: atomic.write_bytes(path, b"x"), True),
    "a file that was taken away again": (_undone, False),
    "a file that another process did not write": (atomic.watch, False),
}


@pytest.mark.parametrize("case", [*RECORDS])
def test_what_was_written_is_what_is_there(case: str, tmp_path: Path) -> None:
    write, is_written = RECORDS[case]
    path = tmp_path / "file"
    write(path)
    assert (os.path.realpath(path) in atomic.written()) == is_written


def test_a_file_that_another_process_wrote_counts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    atomic.watch(path)
    time.sleep(0.01)
    path.write_bytes(b"newer")
    assert str(path) in atomic.written()
