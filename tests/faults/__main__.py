"""Kill, starve and feed garbage to every command: `python -m tests.faults --help`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.kvtool_process import Runner, running
from tests.faults.reading import COMMANDS, Reading
from tests.faults.scarce import (
    full_disk,
    little_memory,
    on_small_disk,
    other_writer,
    small_disk,
    unprivileged,
)
from tests.faults.scenarios import SCENARIOS, stage
from tests.faults.writing import Attempt, Bench, faults_of

_PARTS = ("writing", "machine", "reading")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=_PARTS,
        default=_PARTS,
        help="what to do; everything unless given",
    )
    parser.add_argument(
        "--commands", nargs="+", metavar="COMMAND", help="commands of kvtool; all unless given"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        help="signals at random moments for each way of writing, and corrupted models times 50",
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument(
        "--keep", type=Path, help="directory for the models that made a command fail"
    )
    return parser.parse_args()


def main() -> int:
    """Do it all; return 1 if anything was wrong."""
    options = _arguments()
    print(f"seed {options.seed}")  # noqa: T201
    counts: Counter[str] = Counter()
    directory = Path(tempfile.mkdtemp(prefix="kvtool-faults-"))
    try:
        with running() as runner:
            for attempt in _attempts(runner, directory, options):
                counts["runs"] += 1
                if attempt.complaints:
                    counts["wrong"] += 1
                    print(attempt.name, *attempt.complaints, sep="\n    ", flush=True)  # noqa: T201
    finally:
        shutil.rmtree(directory)
    print(f"{counts['runs']} faults, {counts['wrong']} of them not survived")  # noqa: T201
    return 1 if counts["wrong"] else 0


def _attempts(runner: Runner, directory: Path, options: argparse.Namespace) -> Iterator[Attempt]:
    rng = random.Random(options.seed)
    sources = stage(runner, directory)
    names = [name for name in SCENARIOS if _is_wanted(SCENARIOS[name].arguments, options)]
    for name in names if "writing" in options.parts else ():
        bench = Bench(runner, name, sources, directory / "play")
        yield from faults_of(bench)
        for _ in range(options.rounds):
            yield bench.kill_after(bench.any_time(rng))
            yield bench.stop_after(bench.any_time(rng), rng.choice(["term", "int"]))
    if "machine" in options.parts:
        with small_disk(directory / "disk") as disk:
            for name in names:
                yield from _machine(runner, name, sources, directory, disk)
    if "reading" in options.parts:
        yield from _reading(runner, directory, options, rng)


def _machine(
    runner: Runner, name: str, sources: dict[str, Path], directory: Path, disk: Path | None
) -> Iterator[Attempt]:
    bench = Bench(runner, name, sources, directory / "play")
    yield from full_disk(bench)
    yield from unprivileged(bench)
    yield from little_memory(bench, 16)
    if bench.is_in_place:
        yield from other_writer(bench)
    if disk is not None:
        yield from on_small_disk(Bench(runner, name, sources, disk / "play"), disk)


def _reading(
    runner: Runner, directory: Path, options: argparse.Namespace, rng: random.Random
) -> Iterator[Attempt]:
    place = directory / "reading"
    place.mkdir()
    reading = Reading(runner, place, options.seed)
    commands = [command for command in COMMANDS if _is_wanted(command, options)]
    for number in range(options.rounds * 50 if commands else 0):
        reading.corrupt()
        command = rng.choice(commands)
        _, problems = reading.run(command)
        name = f"kvtool {' '.join(command)}: model {number}, {reading.kind}"
        if problems and options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{options.seed}-{number}.onnx").write_bytes(reading.broken)
        yield Attempt(name, tuple(problems))


def _is_wanted(arguments: tuple[str, ...], options: argparse.Namespace) -> bool:
    return options.commands is None or arguments[0] in options.commands


if __name__ == "__main__":
    sys.exit(main())
