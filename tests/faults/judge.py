"""What a fault may leave behind, and what not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import onnx

from tests.faults.kvtool_process import Outcome
from tests.faults.scenarios import Tree

__all__ = ["complaints_of_end", "is_temporary", "loads", "mixture", "unclean"]

_TEMPORARY = re.compile(r"(.*/)?\.kvtool-[0-9a-f]+\.tmp")


def is_temporary(name: str) -> bool:
    """Return whether a file is one that kvtool writes to before it renames."""
    return _TEMPORARY.fullmatch(name) is not None


def mixture(before: Tree, after: Tree, now: Tree) -> Iterator[str]:
    """Yield what is neither as it was nor as it should become.

    Args:
        before: What was there.
        after: What is there when nothing goes wrong.
        now: What is there; temporary files do not count.
    """
    for name in sorted({*before, *after, *now}):
        if is_temporary(name):
            continue
        allowed = [state[name] for state in (before, after) if name in state]
        if name not in now:
            if name in before:
                yield f"`{name}` is gone"
        elif now[name] not in allowed:
            yield f"`{name}` is neither old nor new"


def unclean(before: Tree, after: Tree, now: Tree) -> Iterator[str]:
    """Yield what is wrong with a directory after a command that could still tidy up.

    It has to be exactly as it was, or exactly as it should become.
    """
    if now in (before, after):
        return
    yield from mixture(before, after, now)
    for name in sorted(now.keys() - before.keys()):
        yield f"`{name}` is left"


def loads(directory: Path) -> Iterator[str]:
    """Yield which models of a directory do not load, with their data."""
    for path in sorted(directory.rglob("*.onnx")):
        try:
            onnx.load(path)
        except Exception as error:  # noqa: BLE001, PERF203 - whatever onnx says
            # A hard link is read by onnxruntime and refused by onnx.
            if "hard link" not in str(error):
                yield f"`{path.name}` does not load: {error}"


def complaints_of_end(outcome: Outcome, allowed: tuple[int, ...]) -> Iterator[str]:
    """Yield what is wrong with the way in which a process ended."""
    if outcome.is_late:
        yield f"it did not end within {outcome.seconds:.0f} s"
        return
    if outcome.code not in allowed:
        yield f"exit code {outcome.code}, expected one of {allowed}: {outcome.stderr[-300:]}"
    if "Traceback" in outcome.stderr:
        yield f"a traceback: {outcome.stderr[-600:]}"
    if "kvtool: bug" in outcome.stderr:
        yield f"a bug: {outcome.stderr[-300:]}"
