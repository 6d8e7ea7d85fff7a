"""Corrupted models through every command that reads one."""

from __future__ import annotations

import random
from pathlib import Path

import onnx

from tests.core.small import branched, plain, with_function
from tests.faults.corruptions import CORRUPTIONS, corrupted
from tests.faults.judge import complaints_of_end, is_temporary
from tests.faults.kvtool_process import ROOT, Fault, Outcome, Runner

__all__ = ["COMMANDS", "Reading", "models"]

_ISOLATED = ("check", "in.onnx", "--isolated")
COMMANDS: tuple[tuple[str, ...], ...] = (
    _ISOLATED,
    (*_ISOLATED, "--format", "sarif", "--target", "onnxruntime"),
    (*_ISOLATED, "--diff", "--unsafe-fixes"),
    (*_ISOLATED, "--fix", "--unsafe-fixes"),
    ("check", "in.onnx", "sound.onnx", "--isolated", "--format", "json"),
    ("eval", "in.onnx", "--random"),
    ("eval", "in.onnx", "--random", "--trace", "--steps", "1", "--format", "json"),
    ("eval", "in.onnx", "--random", "--runtime", "onnxruntime", "--save", "out.npz"),
    ("infer", "in.onnx", "-o", "out.onnx"),
    ("infer", "in.onnx", "--strict", "--format", "json"),
    ("inspect", "in.onnx", "--nodes"),
    ("inspect", "in.onnx", "--format", "json", "--dim", "batch=2"),
    ("inspect", "in.onnx", "--format", "html"),
    ("inspect", "in.onnx", "--format", "dot"),
    ("inspect", "in.onnx", "--format", "mermaid"),
    ("lower", "in.onnx", "-o", "out.onnx"),
    ("lower", "in.onnx", "--no-verify", "--in-place", "--opset", "13"),
    ("lower", "in.onnx", "--dry-run", "--target", "onnxruntime@1.17", "--format", "json"),
    ("raise", "in.onnx", "-o", "out.onnx"),
    ("raise", "in.onnx", "--in-place", "--no-verify", "--assume", "contiguous"),
    ("verify", "in.onnx", "sound.onnx", "--cases", "1", "--steps", "1"),
    ("verify", "sound.onnx", "in.onnx", "--runtime", "reference", "--cases", "1"),
)
"""Every command that takes a model, with the options that take other ways through it."""

_WEIGHTS = {"edit": 12, "damage": 4, "splice": 8, "refer": 3}
_SPARE_BYTES = 2 << 30
_SECONDS = 20.0


def models() -> list[onnx.ModelProto]:
    """Return sound models to start from."""
    paths = sorted((ROOT / "fixtures" / "models").rglob("*.onnx"))
    small = [path for path in paths if path.stat().st_size < 16_000]
    found = [onnx.load(path, load_external_data=False) for path in small]
    return [*found, plain(), branched(), with_function()]


class Reading:
    """Runs commands on corrupted models.

    Args:
        runner: Runs commands.
        directory: An empty directory to work in.
        seed: Starts the random numbers.
    """

    def __init__(self, runner: Runner, directory: Path, seed: int) -> None:
        self._runner = runner
        self._directory = directory
        self._rng = random.Random(seed)
        self._models = models()
        self._kinds = [kind for kind in CORRUPTIONS for _ in range(_WEIGHTS.get(kind, 1))]
        self.broken = b""
        self.kind = ""

    def corrupt(self) -> None:
        """Make the next model, `broken`, of a `kind`."""
        self.kind = self._rng.choice(self._kinds)
        model = self._rng.choice(self._models)
        (self._directory / "sound.onnx").write_bytes(model.SerializeToString())
        self.broken = corrupted(self.kind, model, self._rng)

    def run(self, arguments: tuple[str, ...]) -> tuple[Outcome, list[str]]:
        """Run a command on the model; return what is wrong with how that ended."""
        path = self._directory / "in.onnx"
        path.write_bytes(self.broken)
        before = {entry.name for entry in self._directory.iterdir()}
        fault = Fault(spare_bytes=_SPARE_BYTES, seconds=_SECONDS)
        outcome = self._runner.run(["--debug", *arguments], self._directory, fault)
        problems = _complaints(outcome)
        after = {entry.name: entry for entry in self._directory.iterdir()}
        problems += [f"`{name}` is left" for name in after if is_temporary(name)]
        if outcome.code != 0 and not _may_write(arguments):
            if path.read_bytes() != self.broken:
                problems.append("the input is changed")
            problems += [f"`{name}` is left" for name in after.keys() - before]
        for name in after.keys() - before:
            after[name].unlink()
        return outcome, problems


def _may_write(arguments: tuple[str, ...]) -> bool:
    """Return whether a command may have done its work, and have something to say against it."""
    return "--fix" in arguments


def _complaints(outcome: Outcome) -> list[str]:
    # With --debug, errors that are foreseen have a traceback as well.
    said = outcome.stderr.replace("Traceback", "traceback") if outcome.code in (1, 2, 3) else ""
    plain_outcome = Outcome(
        outcome.code, outcome.is_late, outcome.seconds, (), "", said or outcome.stderr
    )
    problems = list(complaints_of_end(plain_outcome, (0, 1, 2, 3)))
    is_reported = outcome.code == 3 and outcome.stdout  # by `verify`, of models that do not run
    if outcome.code in (2, 3) and not is_reported and "kvtool: error: " not in outcome.stderr:
        problems.append("no reason is given")
    return problems
