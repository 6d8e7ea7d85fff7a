"""Whatever happens to a process: files are wholly old or wholly new, and what it says is clear.

`python -m tests.faults` does the same for as long as one likes.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("needs pidfd, /proc and limits of processes", allow_module_level=True)

from tests.core.small import branched, plain
from tests.faults.corruptions import corrupted
from tests.faults.judge import is_temporary
from tests.faults.kvtool_process import ROOT, Fault, Runner
from tests.faults.points import ERRORS
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
from tests.faults.writing import Attempt, Bench
from tests.grids import rest

pytestmark = pytest.mark.long


SEED = int(os.environ.get("KVTOOL_SEED", "0"))


@pytest.fixture(scope="module")
def sources(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stage(runner, tmp_path_factory.mktemp("sources"))


@pytest.fixture
def bench(
    request: pytest.FixtureRequest, runner: Runner, sources: dict[str, Path], tmp_path: Path
) -> Bench:
    return Bench(runner, request.param, sources, tmp_path / "play")


def _survives(attempts: Iterable[Attempt]) -> None:
    count = 0
    for attempt in attempts:
        count += 1
        assert not attempt.complaints, attempt.name
    assert count, "nothing was tried"


@pytest.mark.parametrize("bench", ["lower in place"], indirect=True)
def test_killed_at_each_point_of_a_write_in_place(bench: Bench) -> None:
    _survives(bench.kill_at(at) for at in bench.every_point())


@pytest.mark.exhaustive
@pytest.mark.parametrize("bench", SCENARIOS, indirect=True)
def test_killed_at_each_point(bench: Bench) -> None:
    _survives(bench.kill_at(at) for at in bench.every_point())


@pytest.mark.exhaustive
@pytest.mark.parametrize("bench", SCENARIOS, indirect=True)
def test_told_to_end_or_refused_by_the_system_at_each_point(bench: Bench) -> None:
    faults = itertools.cycle(("term", *ERRORS[:2], "int", *ERRORS[2:]))
    _survives(
        bench.fail_at(at, fault) if fault in ERRORS else bench.stop_at(at, fault)
        for at, fault in zip(bench.every_point(), faults, strict=False)
    )


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["lower in place", "fix two models"], indirect=True)
def test_killed_or_told_to_end_at_any_time(bench: Bench) -> None:
    rng = random.Random(SEED)
    _survives(bench.kill_after(bench.any_time(rng)) for _ in range(8))
    _survives(bench.stop_after(bench.any_time(rng), name) for name in ("term", "int") * 4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("bench", SCENARIOS, indirect=True)
def test_where_files_are_small_or_forbidden(bench: Bench) -> None:
    _survives(full_disk(bench))
    _survives(unprivileged(bench))


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["lower in place", "fix", "save values"], indirect=True)
def test_with_little_memory(bench: Bench) -> None:
    _survives(little_memory(bench, 6))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lower into another directory", "fix", "save values"])
def test_on_a_full_disk(
    runner: Runner, sources: dict[str, Path], tmp_path: Path, name: str
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("file systems cannot be mounted")
        _survives(on_small_disk(Bench(runner, name, sources, disk / "play"), disk))


@pytest.mark.exhaustive
@pytest.mark.parametrize("bench", ["fix"], indirect=True)
def test_what_another_process_writes_meanwhile_is_kept(bench: Bench) -> None:
    _survives(other_writer(bench))


def test_what_a_killed_process_leaves_is_no_model(
    runner: Runner, sources: dict[str, Path], tmp_path: Path
) -> None:
    bench = Bench(runner, "lower in place", sources, tmp_path / "play")
    bench.play(Fault(at=bench.points.index("replace") + 1, name="kill"))
    assert any(is_temporary(path.name) for path in bench.directory.iterdir())
    outcome = runner.run(["check", ".", "--isolated"], bench.directory)
    assert "2 files" in outcome.stderr and ".kvtool-" not in outcome.stdout


_TALKATIVE = [a for a in COMMANDS if a[0] in ("inspect", "check")][:3]


@pytest.mark.parametrize("arguments", [_TALKATIVE[0], *rest(*_TALKATIVE[1:])])
def test_standard_output_that_is_full(
    runner: Runner, sources: dict[str, Path], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    shutil.copyfile(sources["whole"] / "m.onnx", tmp_path / "in.onnx")
    outcome = runner.run(arguments, tmp_path, Fault(stdout="/dev/full"))
    assert outcome.code == 2
    assert "cannot write to standard output: No space left on device" in outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_worker_processes_end_with_the_command(tmp_path: Path, ending: signal.Signals) -> None:
    before = branched().SerializeToString()
    models = [tmp_path / f"{number}.onnx" for number in range(80)]
    for path in models:
        path.write_bytes(before)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "onnx_kvtool",
            "check",
            tmp_path,
            "--fix",
            "--jobs",
            "2",
            "--isolated",
        ],
        env={**os.environ, "PYTHONPATH": os.fspath(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 30
    while all(path.read_bytes() == before for path in models) and time.monotonic() < until:
        time.sleep(0.02)  # until workers are at work: their start is Python's business
    process.send_signal(ending)
    # Whoever holds the other end of standard error is alive.
    said = process.communicate(timeout=30)[1]
    expected = -ending if ending == signal.SIGKILL else 128 + ending
    assert process.returncode in (expected, 0), said
    assert "Traceback" not in said
    if process.returncode == 130:
        fixed = [path.name for path in models if path.read_bytes() != before]
        assert all(f"{name}`" in said for name in fixed) and said.count("`") == 2 * len(fixed)
    if ending != signal.SIGKILL:
        assert not [path for path in tmp_path.iterdir() if is_temporary(path.name)]


@pytest.mark.slow
def test_corrupted_models(runner: Runner, tmp_path: Path) -> None:
    reading = Reading(runner, tmp_path, SEED)
    for number in range(100):
        reading.corrupt()
        arguments = COMMANDS[number % len(COMMANDS)]
        _, problems = reading.run(arguments)
        assert not problems, (number, reading.kind, arguments)


_FIRST = {arguments[0]: arguments for arguments in reversed(COMMANDS)}
_OFTEN = [_FIRST[name] for name in ("check", "lower")]


@pytest.mark.parametrize(
    "arguments",
    [*_OFTEN, *rest(*(a for a in COMMANDS if a not in _OFTEN))],
    ids=" ".join,
)
def test_functions_that_call_each_other_a_million_times(
    runner: Runner, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    class Deepest(random.Random):
        def choice(self, options):  # type: ignore[no-untyped-def]
            return options[-1]

    (tmp_path / "sound.onnx").write_bytes(plain().SerializeToString())
    (tmp_path / "in.onnx").write_bytes(corrupted("multiply", plain(), Deepest()))
    outcome = runner.run(arguments, tmp_path, Fault(seconds=20))
    assert not outcome.is_late
    assert outcome.code in (0, 1, 2, 3), outcome.stderr
