"""Standard streams that are closed, full, narrow in their encoding, or no longer read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.grids import part, rest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "fixtures" / "models" / "native" / "llama_static.onnx"
Shell = Callable[..., subprocess.CompletedProcess[bytes]]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell"),
]


@pytest.fixture
def shell(tmp_path: Path, plain_environment: None) -> Shell:
    """Run a line of a shell in which `kvtool` is the command, and `m.onnx` a model."""
    (tmp_path / "m.onnx").write_bytes(MODEL.read_bytes())
    tool = tmp_path / "bin" / "kvtool"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnx_kvtool "$@"\n', encoding="utf-8")
    tool.chmod(0o755)

    def run(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        path = f"{tool.parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["sh", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    "command", ["targets", *rest("--version", "--help", "help", "inspect m.onnx")]
)
def test_standard_output_that_is_closed_is_an_error(shell: Shell, command: str) -> None:
    result = shell(f"kvtool {command} >&-")
    assert result.returncode == 2
    assert result.stderr == b"kvtool: error: cannot write to standard output: Bad file descriptor\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command", ["--version", *rest("inspect m.onnx", "--help", "help", "targets")]
)
def test_a_full_disk_behind_standard_output_is_an_error(shell: Shell, command: str) -> None:
    result = shell(f"kvtool {command} > /dev/full")
    assert result.returncode == 2
    assert (
        result.stderr
        == b"kvtool: error: cannot write to standard output: No space left on device\n"
    )


@pytest.mark.exhaustive
def test_talk_that_nobody_can_hear_stops_nothing(shell: Shell, tmp_path: Path) -> None:
    """Nor does what libraries print end up in a file that gets the number of a closed stream."""
    result = shell("kvtool lower m.onnx -o out.onnx --verify-steps 1 <&- >&- 2>&-")
    assert result.returncode == 0
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_standard_input_that_is_closed_cannot_be_read(shell: Shell) -> None:
    result = shell("kvtool inspect - <&-")
    assert result.returncode == 3
    assert result.stderr.startswith(b"kvtool: error: standard input cannot be read: ")


@pytest.mark.parametrize("command", ["rule --all", *rest("targets", "inspect m.onnx --nodes")])
def test_a_reader_that_leaves_early_is_no_error(shell: Shell, command: str) -> None:
    result = shell(f"kvtool {command} | head -n 1")
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == b""


@part(9)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("command", ["inspect n.onnx --nodes", "check n.onnx", "infer n.onnx"])
def test_a_name_in_any_script_can_be_printed(
    shell: Shell, tmp_path: Path, encoding: str, command: str
) -> None:
    model = onnx.load(MODEL)
    model.graph.name = "グラフ"
    for node in model.graph.node:
        node.name = f"für/{node.name}"
    model.graph.node[3].input[0] = "層"
    model.graph.node[2].output[0] = "層"
    onnx.save(model, tmp_path / "n.onnx")
    result = shell(f"kvtool {command}", PYTHONIOENCODING=encoding)
    assert result.returncode in (0, 1)
    assert b"bug" not in result.stderr
    text = result.stdout.decode(encoding)
    if command.startswith("inspect"):
        assert ("für/" if encoding != "ascii" else "f\\xfcr/") in text


@pytest.mark.exhaustive
def test_a_locale_without_utf_8_changes_nothing(shell: Shell) -> None:
    line = "kvtool inspect 'nosüch.onnx'"
    plain = shell(line, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert plain.returncode == 3
    assert plain.stderr.startswith(b"kvtool: error: `nos")


def test_an_interrupt_is_one_line_and_the_exit_code_of_shells(tmp_path: Path) -> None:
    # Tests that a shell runs in the background have been told to ignore interrupts.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; from onnx_kvtool.cli import main; print(flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "inspect", "-"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1)  # until it waits for the model
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
