"""No malformed model makes a command crash: every command, on models made wrong at random.

`KVTOOL_SEED` starts at another seed; the one that failed is printed with the path of the model.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import onnx
import pytest
from click.testing import CliRunner

from onnx_kvtool.cli import app
from onnx_kvtool.cli.app import COMMANDS
from tests.core.small import branched, plain, with_function
from tests.grids import part, rest
from tests.mutations import changed_bytes, changed_model

pytestmark = pytest.mark.forks  # what is drawn may run without end, or end its process

ROOT = Path(__file__).resolve().parent.parent
SEED = int(os.environ.get("KVTOOL_SEED", "0"))
MOST = {"some": 20, "many": 400}
"""Models for a command."""

SLOWER = {"bench": 20}
"""How many times fewer they are for a command that runs each in a process of its own."""

PROCESSES = 60
MEMORY = 8 << 30
"""Bytes of address space that a process may take."""

SECONDS = 60
"""Time that a process may take; a sound model of this size takes 2."""

# In this process nothing but kvtool may run the models: a crash of onnxruntime would end the tests.
OPTIONS: dict[str, list[list[str]]] = {
    "bench": [["--prompt", "3", "--tokens", "2", "--rounds", "1"]],
    "check": [["--isolated"], ["--isolated", "--format", "sarif", "--target", "onnxruntime"]],
    "diff": [[], ["--format", "markdown", "--weights", "none"], ["--format", "html"]],
    "eval": [["--random"], ["--random", "--trace", "--steps", "1", "--format", "json"]],
    "infer": [[], ["--strict", "--format", "json"]],
    "inspect": [["--nodes"], ["--format", "html"], ["--format", "json", "--dim", "batch=2"]],
    "lower": [["--no-verify"], ["--no-verify", "--only", "TensorScatter"], ["--dry-run"]],
    "print": [[], ["--weights", "none"]],
    "raise": [["--no-verify"], ["--dry-run", "--assume", "contiguous", "--assume", "in-range"]],
    "verify": [["--runtime", "reference", "--cases", "1", "--steps", "1"]],
}
"""Options of a command that takes a model; one that is not listed is run without."""


def _takes_models(command: click.Command) -> int:
    """Return how many paths of models a command takes."""
    return sum(isinstance(param, click.Argument) for param in command.params)


WALKED = [name for name in COMMANDS if _takes_models(COMMANDS[name])]


def _models() -> list[onnx.ModelProto]:
    paths = sorted((ROOT / "fixtures" / "models").rglob("*.onnx"))
    small = [path for path in paths if path.stat().st_size < 16_000]
    found = [onnx.load(path, load_external_data=False) for path in small]
    return [*found, plain(), branched(), with_function()]


@pytest.fixture(scope="module")
def models() -> list[onnx.ModelProto]:
    return _models()


def _broken(models: list[onnx.ModelProto], seed: str) -> tuple[bytes, bytes]:
    """Return a model that is wrong, and what it was made from."""
    rng = random.Random(seed)
    model = rng.choice(models)
    sound = model.SerializeToString()
    if rng.random() < 0.8:
        return changed_model(model, rng).SerializeToString(), sound
    return changed_bytes(sound, rng), sound


def _arguments(name: str, number: int, directory: Path, broken: bytes, sound: bytes) -> list[str]:
    (directory / "in.onnx").write_bytes(broken)
    (directory / "sound.onnx").write_bytes(sound)
    paths = ["in.onnx", "sound.onnx"] if number % 2 else ["sound.onnx", "in.onnx"]
    count = _takes_models(COMMANDS[name])
    options = OPTIONS.get(name, [[]])
    given = paths[:count] if count == 2 else ["in.onnx"] * count
    return [name, *given, *options[number % len(options)]]


@pytest.mark.long
@pytest.mark.parametrize("count", ["some", *rest("many")])
@pytest.mark.parametrize("name", WALKED)
@part(4)
def test_no_malformed_model_makes_a_command_crash(
    name: str,
    count: str,
    models: list[onnx.ModelProto],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    codes = set()
    for number in range(SEED, SEED + MOST[count] // SLOWER.get(name, 1)):
        broken, sound = _broken(models, f"{name} {number}")
        arguments = _arguments(name, number, tmp_path, broken, sound)
        print(f"KVTOOL_SEED={number} {tmp_path}: kvtool {' '.join(arguments)}")  # noqa: T201
        result = runner.invoke(app, ["--debug", *arguments], catch_exceptions=False)
        assert result.exit_code in (0, 1, 2, 3), result.stderr
        assert "kvtool: bug" not in result.stderr
        if result.exit_code == 3:
            assert "kvtool: error: " in result.stderr or name == "verify"
        codes.add(result.exit_code)
    is_alike = name in ("merge", "ops", "rule", "targets") or name in SLOWER
    assert len(codes) > 1 or is_alike, "everything ends alike: nothing is tested"


def _calls() -> Iterator[tuple[int, str]]:
    for number in range(SEED, SEED + PROCESSES):
        yield number, WALKED[number % len(WALKED)]


def _limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be limited")
def test_no_malformed_model_makes_a_process_crash_or_hang(
    models: list[onnx.ModelProto], tmp_path: Path
) -> None:
    usual = {"check": ["--isolated"], "eval": ["--random"]}
    for number, name in _calls():
        broken, sound = _broken(models, f"process {number}")
        arguments = _arguments(name, number, tmp_path, broken, sound)
        paths = [a for a in arguments if a in ("in.onnx", "sound.onnx")]
        arguments = [name, *paths, *usual.get(name, [])]
        print(f"KVTOOL_SEED={number} {tmp_path}: kvtool {' '.join(arguments)}")  # noqa: T201
        result = subprocess.run(
            [sys.executable, "-m", "onnx_kvtool", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=SECONDS,
            check=False,
            preexec_fn=_limit,
        )
        assert result.returncode in (0, 1, 2, 3), result.stderr.decode()
        assert b"Traceback" not in result.stderr
