"""What proofs cost here and in another checkout, in turns: `python -m benchmarks.proof_cost`.

    git worktree add ../before COMMIT
    python -m benchmarks.proof_cost ../before --rounds 3

Each command is a process of its own. The proof of `lower` is what it takes beyond
`lower --no-verify`. Time is that of all processors, the least of the rounds, so that a busy machine
says nearly the same as an idle one; memory is the peak of the process that verifies.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.processes.run import Run, run
from benchmarks.real_models import CONFIGURATIONS, write

__all__ = ["main"]

_HERE = Path(__file__).resolve().parents[1]
_MODELS = ("qwen-0.5b-fp32", "qwen-0.5b-dq-int4", "llama-1b-fp16", "llama-7b-fp16", "long-32768")
_PROGRAM = "import sys; sys.path.insert(0, {root!r}); from onnx_kvtool.__main__ import main; main()"
_LOWER = ("lower", "{model}", "-o", "{output}", "--no-verify")
_COMMANDS: dict[str, Sequence[str]] = {
    "lower": ("lower", "{model}", "-o", "{output}"),
    "verify": ("verify", "{model}", "{lowered}"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one line for each model and command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof_cost", description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default=",".join(_MODELS))
    chosen = parser.parse_args(arguments)
    print("| model | proof | seconds before | after | ratio | MB before | after |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in chosen.models.split(","):
        with tempfile.TemporaryDirectory() as directory:
            path = write(CONFIGURATIONS[name], Path(directory), sparse=True)
            for line in _lines(name, path, [chosen.other.resolve(), _HERE], chosen.rounds):
                print(line, flush=True)


def _lines(name: str, model: Path, checkouts: Sequence[Path], rounds: int) -> Iterator[str]:
    directory = model.parent
    places = {
        "model": str(model),
        "output": str(directory / "output.onnx"),
        "lowered": str(directory / "lowered.onnx"),
    }
    lowered = [part.format(**places | {"output": places["lowered"]}) for part in _LOWER]
    _run(_HERE, lowered, directory)
    floors = _least(checkouts, [part.format(**places) for part in _LOWER], directory, rounds)
    for case, command in _COMMANDS.items():
        runs = _least(checkouts, [part.format(**places) for part in command], directory, rounds)
        seconds = [run.processor for run in runs]
        if case == "lower":
            seconds = [own - floor.processor for own, floor in zip(seconds, floors, strict=True)]
        before, after = seconds
        megabytes = " | ".join(f"{run.megabytes:.0f}" for run in runs)
        times = f"{before:.2f} | {after:.2f} | {after / before:.2f}"
        said = {run.printed.strip().splitlines()[-1] for run in runs}
        print(f"{name}, {case}: {said}", file=sys.stderr)
        yield f"| {name} | {case} | {times} | {megabytes} |"


def _least(
    checkouts: Sequence[Path], command: Sequence[str], directory: Path, rounds: int
) -> list[Run]:
    """Return the run of each checkout that took least time, with its least memory."""
    turns = [[_run(root, command, directory) for root in checkouts] for _ in range(rounds)]
    return [min(runs, key=lambda run: run.processor) for runs in zip(*turns, strict=True)]


def _run(root: Path, command: Sequence[str], directory: Path) -> Run:
    (directory / "output.onnx").unlink(missing_ok=True)
    program = _PROGRAM.format(root=str(root))
    found = run([sys.executable, "-c", program, *command], directory)
    if found.failure is not None:
        raise RuntimeError(f"{' '.join(command)} fails in {root}: {found.failure}")
    return found


if __name__ == "__main__":
    main()
