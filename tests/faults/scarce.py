"""Faults of the machine: a full disk, no permission, another writer, little memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.faults.judge import complaints_of_end, mixture
from tests.faults.kvtool_process import Fault, Outcome
from tests.faults.points import THEIRS
from tests.faults.scenarios import tree
from tests.faults.writing import Attempt, Bench

__all__ = [
    "full_disk",
    "little_memory",
    "on_small_disk",
    "other_writer",
    "small_disk",
    "unprivileged",
]

_OUT_OF_MEMORY = (3, -6, -11, 127)
"""Exit codes when memory is short: kvtool's own, and those of C libraries that give up at once."""


def full_disk(bench: Bench) -> Iterator[Attempt]:
    """Write where each file may have so many bytes, and no more."""
    for most in (0, 1, 100, 1000, 2000, 4000):
        outcome = bench.play(Fault(file_bytes=most))
        problems = list(complaints_of_end(outcome, (2, bench.code)))
        problems += _says(outcome, "File too large")
        problems += bench.unclean()
        yield Attempt(f"{bench.name}: files of at most {most} bytes", tuple(problems))


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path | None]:
    """Mount a file system of 512 KiB; None where this user or this machine does not let."""
    place.mkdir()
    if not _mounted(place):
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def _mounted(place: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", os.fspath(place)]
    try:
        return (
            os.geteuid() == 0
            and not subprocess.run(command, capture_output=True, check=False).returncode
        )
    except OSError:  # no such command
        return False


def on_small_disk(bench: Bench, disk: Path) -> Iterator[Attempt]:
    """Write to a disk on which nothing, and then a little, is left; `bench` plays on it."""
    for left in (0, 4096, 8192, 12288, 16384):
        bench.set_up()
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        os.truncate(filler, max(0, filler.stat().st_size // 4096 * 4096 - left))
        outcome = bench.run()
        problems = list(complaints_of_end(outcome, (2, bench.code)))
        problems += _says(outcome, "No space left on device")
        problems += bench.unclean()
        yield Attempt(f"{bench.name}: a disk with {left} bytes left", tuple(problems))
        filler.unlink()


def unprivileged(bench: Bench) -> Iterator[Attempt]:
    """Work as somebody who may not: write to the directory, write to the files, or read them.

    The files belong to this user, who has no rights beyond those that their modes give.
    """
    for what, modes, codes in (
        ("a read-only directory", (0o555, 0o666), (2, bench.code)),
        ("read-only files", (0o777, 0o444), (2, bench.code)),
        # With several models, one that cannot be read is a finding.
        ("unreadable files", (0o777, 0o222), (1 if bench.is_many else 3,)),
    ):
        bench.set_up()
        for path in [bench.directory, *bench.directory.rglob("*")]:
            path.chmod(modes[0] if path.is_dir() else modes[1])
        outcome = bench.run(Fault(is_unprivileged=True))
        for path in [bench.directory, *bench.directory.rglob("*")]:
            path.chmod(0o777)
        problems = list(complaints_of_end(outcome, codes))
        problems += _says(outcome, "")
        problems += bench.unclean()
        yield Attempt(f"{bench.name}: {what}", tuple(problems))


def other_writer(bench: Bench) -> Iterator[Attempt]:
    """Let another process change or remove the model while the command works in place.

    What comes between the last look at the file and its renaming is lost, as with any program.
    """
    for name, theirs in (("change", {"m.onnx": THEIRS}), ("vanish", {})):
        left_alone = {**bench.before, **theirs}
        if name == "vanish":
            del left_alone["m.onnx"]
        for at, point in enumerate(bench.points, 1):
            if point in ("replace", "unlink"):
                continue
            outcome = bench.play(Fault(at=at, name=name))
            problems = list(complaints_of_end(outcome, (2,)))
            problems += _says(outcome, "another process has changed it")
            if tree(bench.directory) != left_alone:
                problems.append("what the other process did is undone")
            yield Attempt(f"{bench.name}: {name} at point {at}, {point}", tuple(problems))


def little_memory(bench: Bench, steps: int) -> Iterator[Attempt]:
    """Run with some memory beyond what the libraries take, from none to 256 MiB."""
    for step in range(steps):
        spare = int(2 ** (12 + 16 * step / steps))
        outcome = bench.play(Fault(spare_bytes=spare))
        is_native = outcome.code in _OUT_OF_MEMORY[1:]
        problems = [] if is_native else list(complaints_of_end(outcome, (3, bench.code)))
        problems += _says(outcome, "")
        if is_native:
            problems += mixture(bench.before, bench.after, tree(bench.directory))
        else:
            problems += bench.unclean()
        yield Attempt(f"{bench.name}: {spare} bytes of memory", tuple(problems))


def _says(outcome: Outcome, reason: str) -> Iterator[str]:
    if outcome.code in (2, 3) and not (
        "kvtool: error: " in outcome.stderr and reason in outcome.stderr
    ):
        yield f"the reason is not given: {outcome.stderr}"
