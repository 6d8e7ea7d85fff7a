"""Each way a command can end has its exit code and its words; none is a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
from onnx_kvtool.rewrite.report import LowerReport, Refused, Verification

MODEL = "fixtures/models/native/llama_static.onnx"
REFUSAL = Diagnostic("unknown-rank", "error", Location("g", "ts"), "the rank is unknown")


def report(**facts: object) -> LowerReport:
    return LowerReport("in.onnx", None, 24, 18, 8, **facts)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        pytest.param(report(), 0, id="a report without refusals is a success"),
        pytest.param(report(refused=[REFUSAL]), 1, id="a refusal is a no"),
        pytest.param(
            report(verification=Verification("different")), 1, id="a result that differs is a no"
        ),
        pytest.param(
            report(verification=Verification("skipped", detail="too big")),
            0,
            id="skipped verification is no failure",
        ),
        pytest.param(Refused(report(refused=[REFUSAL])), 1, id="a refusal that is raised is a no"),
        pytest.param(UsageError("wrong"), 2, id="wrong usage found by the library"),
        pytest.param(UnreadableModel("no such file"), 3, id="an unreadable model"),
        pytest.param(KeyError("x"), 4, id="an exception nobody foresaw is a bug"),
        pytest.param(EOFError(), 4, id="an end of file that is no interrupt is a bug"),
        pytest.param(RecursionError("too deep"), 4, id="a recursion without end is a bug"),
        pytest.param(KeyboardInterrupt(), 130, id="an interrupt"),
        pytest.param(BrokenPipeError(32, "Broken pipe"), 141, id="a reader that has gone"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_outcome_has_exit_code(kvtool, lower_stand_in, outcome, code, form) -> None:
    lower_stand_in(outcome)
    result = kvtool("lower", "in.onnx", "--format", form)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output


def test_error_is_printed_with_its_remedy_on_standard_error(kvtool, lower_stand_in) -> None:
    lower_stand_in(UnreadableModel("`in.onnx` is empty", help="fetch the file again"))
    result = kvtool("lower", "in.onnx")
    assert result.stdout == ""
    assert result.stderr == "kvtool: error: `in.onnx` is empty\n  help: fetch the file again\n"


def test_error_without_remedy_is_one_line(kvtool, lower_stand_in) -> None:
    lower_stand_in(KvtoolError("nothing to do"))
    assert kvtool("lower", "in.onnx").stderr == "kvtool: error: nothing to do\n"


def test_names_in_errors_cannot_act_on_the_terminal(kvtool, lower_stand_in) -> None:
    lower_stand_in(UnreadableModel("`\x1b[2J\nname[red]` is bad"))
    assert kvtool("lower", "x").stderr == "kvtool: error: `\\x1b[2J\\nname[red]` is bad\n"


def test_bug_is_one_line_that_asks_for_a_report(kvtool, lower_stand_in) -> None:
    lower_stand_in(ValueError("first line\nsecond line"))
    (line,) = kvtool("lower", "in.onnx").stderr.splitlines()
    assert line.startswith("kvtool: bug: ValueError: first line (kvtool ")
    assert line.endswith("please report it with what `kvtool --debug` shows")


@pytest.mark.parametrize(
    ("outcome", "last_line"),
    [
        (ValueError("boom"), "kvtool: bug: ValueError: boom"),
        (UnreadableModel("no such file"), "kvtool: error: no such file"),
    ],
)
def test_debug_shows_the_traceback(kvtool, lower_stand_in, outcome, last_line) -> None:
    lower_stand_in(outcome)
    lines = kvtool("--debug", "lower", "in.onnx").stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith(last_line)


@pytest.mark.parametrize(
    ("arguments", "environment", "colored"),
    [
        pytest.param([], {}, False, id="no colour in a pipe"),
        pytest.param(["--color", "always"], {}, True, id="colour when asked for"),
        pytest.param([], {"FORCE_COLOR": "1"}, True, id="colour when the environment asks"),
        pytest.param(
            ["--color", "always"], {"NO_COLOR": "1"}, True, id="an option outranks the environment"
        ),
        pytest.param(
            ["--color", "never"], {"FORCE_COLOR": "1"}, False, id="and forbids colour likewise"
        ),
        pytest.param(
            [], {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, id="NO_COLOR outranks FORCE_COLOR"
        ),
        pytest.param([], {"FORCE_COLOR": ""}, False, id="an empty variable is not set"),
    ],
)
@pytest.mark.parametrize(
    ("outcome", "command"),
    [
        pytest.param(report(), ["lower", "in.onnx"], id="report"),
        pytest.param(UnreadableModel("no"), ["lower", "in.onnx"], id="error"),
        pytest.param(report(), ["lower", "--nonsense"], id="wrong usage"),
    ],
)
def test_color(
    kvtool, lower_stand_in, monkeypatch, arguments, environment, colored, outcome, command
) -> None:
    lower_stand_in(outcome)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in kvtool(*arguments, *command).stderr) is colored


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["inspect", MODEL, "--nodes"], id="a table", marks=pytest.mark.exhaustive),
        pytest.param(
            ["inspect", MODEL, "--format", "json"], id="JSON", marks=pytest.mark.exhaustive
        ),
        pytest.param(["rule", "--all"], id="lines"),
    ],
)
def test_a_reader_that_goes_away_is_no_answer(arguments: list[str], root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "onnx_kvtool", *arguments],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    talk = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), talk) == (141, b"")
