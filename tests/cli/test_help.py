"""Every command and every option explains itself."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from onnx_kvtool.cli.app import COMMANDS, app
from onnx_kvtool.verification.report import VerifyReport
from tests.grids import each


def options() -> dict[str, click.Option]:
    commands = {"kvtool": app, **COMMANDS}
    return {
        f"{name} {param.opts[0]}": param
        for name, command in commands.items()
        for param in command.params
        if isinstance(param, click.Option)
    }


def examples() -> list:
    return [
        pytest.param(name, example, id=example)
        for name, command in COMMANDS.items()
        for example in re.findall(r"^  kvtool (.*?)(?:  .*)?$", command.epilog or "", re.MULTILINE)
    ]


@each("option", options())
def test_option_has_help(option: click.Option) -> None:
    assert option.help
    assert option.help[0].isupper()
    assert option.help.endswith((".", "]"))


@each("name", [*COMMANDS])
def test_help_is_a_page_of_a_manual(kvtool, name) -> None:
    """Usage, summary, what the command does and does not do, options, exit codes, examples."""
    result = kvtool(name, "--help")
    assert result.exit_code == 0
    usage, summary, explained, *blocks = result.stdout.split("\n\n")
    assert usage.startswith(f"Usage: kvtool {name} [OPTIONS]")
    assert summary.startswith("  ") and summary.endswith(".")
    assert explained.startswith("  ") and explained.endswith(".")
    titles = [block.splitlines()[0] for block in blocks if not block.startswith(" ")]
    assert titles[-3:] == ["Exit codes:", "Examples:", "See also:"]
    codes, shown, others = (block.splitlines()[1:] for block in blocks[-3:])
    assert [line[2] for line in codes] == sorted(line[2] for line in codes)
    assert codes[0].startswith("  0  ") and codes[-1] == "  4  a bug in kvtool"
    assert len(shown) >= 2
    others_first = ("check",) if name == "merge" else ()  # what it merges has to be made
    assert all(line.split()[:2] in [["kvtool", n] for n in (name, *others_first)] for line in shown)
    named = [word for line in others for word in re.split(r",? ", line.strip().partition("  ")[0])]
    assert {word for word in named if not word.startswith("-")} <= set(COMMANDS) - {name}


def page(name: str) -> str:
    """Return the help of a command, or of the tool for "", as wide as the terminal is."""
    context = app.make_context("kvtool", [], resilient_parsing=True)
    if not name:
        return context.get_help()
    command = app.commands[name]
    return command.get_help(command.make_context(name, [], context, resilient_parsing=True))


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("name", [*COMMANDS, "help", ""])
def test_help_fits_the_terminal(plain_environment, monkeypatch, name, columns) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = page(name)
    prose, *fixed = re.split(r"\n(?:Exit codes|Examples|See also):\n", text)
    choices = re.compile(r"  (-\w, )?--.*\]")
    wide = [line for line in prose.splitlines() if len(line) > columns]
    assert [line for line in wide if not choices.fullmatch(line)] == []
    assert [line for block in fixed for line in block.splitlines() if len(line) > 80] == []
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", [*COMMANDS, ""])
def test_no_line_of_help_ends_inside_a_word_or_code(plain_environment, monkeypatch, name) -> None:
    for columns in range(60, 101, 5):
        monkeypatch.setenv("COLUMNS", str(columns))
        prose = page(name).partition("\nExit codes:\n")[0]
        for line in prose.splitlines():
            assert not line.endswith("-"), line
            assert line.count("`") % 2 == 0, line


@pytest.mark.parametrize("name", [*COMMANDS, "help"])
@pytest.mark.parametrize("words", [["NAME", "-h"], ["help", "NAME"]], ids=["-h", "help"])
def test_there_are_three_ways_to_ask_for_help(kvtool, name, words) -> None:
    asked = kvtool(*[word.replace("NAME", name) for word in words])
    assert asked.exit_code == 0
    assert asked.stdout == kvtool(name, "--help").stdout


def test_help_alone_is_that_of_the_tool(kvtool) -> None:
    assert kvtool("help").stdout == kvtool("-h").stdout == kvtool("--help").stdout


def test_options_of_a_long_command_are_listed_by_section_and_each_once(kvtool) -> None:
    text = kvtool("lower", "--help").stdout
    titles = re.findall(r"^(\S.*):$", text.partition("\nExit codes:\n")[0], re.MULTILINE)
    assert titles == [
        "Output",
        "What to lower",
        "How",
        "Input",
        "Verification",
        "Other options",
    ]
    flags = [flag for param in COMMANDS["lower"].params for flag in param.opts if flag[:2] == "--"]
    for flag in flags:
        assert len(re.findall(rf"^  (?:-\w, )?{flag}(?![\w-])", text, re.MULTILINE)) == 1, flag


def test_a_short_list_of_options_is_one_section(kvtool) -> None:
    assert kvtool("targets", "--help").stdout.count("\nOptions:\n") == 1


@each("option", options())
def test_help_names_the_default_and_the_range(option: click.Option) -> None:
    record = option.get_help_record(click.Context(app))
    assert record is not None
    if isinstance(option.type, click.IntRange):
        assert re.search(r"\[default: .*; (\d+ or more|\d+ to \d+)\]", record[1]) or (
            re.search(r"\[\d+ or more\]", record[1])
        ), record
    if isinstance(option.type, click.Choice) and not option.multiple:
        assert "[default: " in record[1] or option.opts[-1] in (
            "--compare",
            "--contrib",  # of `lower`: as the target has it
            "--element-type",
            "--index-dtype",
        )


@pytest.mark.parametrize(("name", "example"), examples())
def test_example_is_right_usage(
    kvtool, lower_stand_in, verify_stand_in, lowered_report, name, example, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    requests = {
        "lower": lower_stand_in(lowered_report),
        "verify": verify_stand_in(VerifyReport("equal")),
    }
    example = example.replace("--jobs 2", "--jobs 1")  # two start processes
    words = shlex.split(re.sub(r"[<>] \S+", "", example))
    result = kvtool(*words)
    # Other commands read the models, which are empty or not there: that is no wrong usage.
    assert result.exit_code in ((0,) if name in requests else (0, 1, 3)), result.stderr
    assert {asked: len(made) for asked, made in requests.items()} == {
        asked: int(asked == name) for asked in requests
    }


def test_the_commands_are_listed_by_purpose_and_each_once(kvtool) -> None:
    listed = kvtool("--help").stdout.partition("\nOptions:\n")[0].split("\n\n")[2:]
    titles = [block.splitlines()[0] for block in listed]
    assert titles == [
        "Rewrite a model:",
        "Look at a model:",
        "Run a model:",
        "Ask what kvtool knows:",
    ]
    lines = [line for block in listed for line in block.strip().splitlines()[1:]]
    assert sorted(line.split()[0] for line in lines) == sorted([*COMMANDS, "help"])
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


def test_every_command_has_examples() -> None:
    assert {example.values[0] for example in examples()} == set(COMMANDS)
