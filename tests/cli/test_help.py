"""Every command and every option explains itself."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from onnx_kvtool import __version__
from onnx_kvtool.cli.app import COMMANDS, app
from onnx_kvtool.runtime.verification.report import VerifyReport


def options() -> list:
    commands = {"kvtool": app, **COMMANDS}
    return [
        pytest.param(param, id=f"{name} {param.opts[0]}")
        for name, command in commands.items()
        for param in command.params
        if isinstance(param, click.Option)
    ]


def examples() -> list:
    return [
        pytest.param(name, example, id=example)
        for name, command in COMMANDS.items()
        for example in re.findall(r"^  kvtool (.*?)(?:  .*)?$", command.epilog or "", re.MULTILINE)
    ]


@pytest.mark.parametrize("option", options())
def test_option_has_help(option: click.Option) -> None:
    assert option.help
    assert option.help[0].isupper()
    assert option.help.endswith((".", "]"))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples(kvtool, name) -> None:
    result = kvtool(name, "--help")
    assert result.exit_code == 0
    text, _, shown = result.stdout.partition("\n  Examples:\n")
    assert text.startswith(f"Usage: kvtool {name} [OPTIONS]")
    assert shown
    assert all(line.startswith(f"    kvtool {name} ") for line in shown.splitlines())


@pytest.fixture
def in_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "example"), examples())
def test_example_is_right_usage(
    kvtool, lower_stand_in, verify_stand_in, lowered_report, in_empty_directory, name, example
) -> None:
    requests = {
        "lower": lower_stand_in(lowered_report),
        "verify": verify_stand_in(VerifyReport("equal")),
    }
    words = shlex.split(re.sub(r"[<>] \S+", "", example))
    result = kvtool(*words)
    # Other commands look for models that are not there, which is no wrong usage.
    assert result.exit_code == 0 or (name not in requests and result.exit_code == 3), result.stderr
    assert {asked: len(made) for asked, made in requests.items()} == {
        asked: int(asked == name) for asked in requests
    }


def test_the_list_of_commands_cuts_no_summary_short(kvtool) -> None:
    listed = kvtool("--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
    lines = listed.splitlines()
    assert [line.split()[0] for line in lines] == sorted(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


def test_every_command_has_examples() -> None:
    assert {example.values[0] for example in examples()} == set(COMMANDS)


def test_version(kvtool) -> None:
    assert kvtool("--version").stdout == f"kvtool {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_knows_the_commands(kvtool_process, monkeypatch, shell) -> None:
    monkeypatch.setenv("_KVTOOL_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "kvtool lo")
    monkeypatch.setenv("COMP_CWORD", "lo" if shell == "fish" else "1")
    assert b"lower" in kvtool_process().stdout
