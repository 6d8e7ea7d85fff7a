"""Wrong usage is said before anything is read, with exit code 2 and what to do."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("arguments", "message", "help"),
    [
        pytest.param(
            "lowr in.onnx",
            "no such command `lowr`",
            "did you mean `lower`?",
            id="an unknown command is answered with the nearest one",
        ),
        pytest.param(
            "frobnicate",
            "no such command `frobnicate`",
            "run `kvtool --help`",
            id="an unknown command that resembles none",
        ),
        pytest.param(
            "version",
            "no such command `version`",
            "did you mean `kvtool --version`?",
            id="an option written as a command",
        ),
        pytest.param(
            "lower in.onnx --opsett 13",
            "no such option `--opsett`",
            "did you mean `--opset`?",
            id="an unknown option is answered with the nearest one",
        ),
        pytest.param(
            "lower in.onnx --no-verfy",
            "no such option `--no-verfy`",
            "did you mean `--no-verify`?",
            id="the negative form of a flag is near too",
        ),
        pytest.param(
            "--colour never lower in.onnx",
            "no such option `--colour`",
            "did you mean `--color`?",
            id="an unknown global option",
        ),
        pytest.param(
            "lower in.onnx --debug",
            "`--debug` goes before `lower`",
            "write `kvtool --debug lower ...`",
            id="a global option after the command",
        ),
        pytest.param(
            "--opset 18 lower in.onnx",
            "`--opset` goes after the command",
            "run `kvtool --help`",
            id="an option of a command before it",
        ),
        pytest.param(
            "lower", "missing argument `MODEL`", "run `kvtool lower --help`", id="no model"
        ),
        pytest.param(
            "lower in.onnx --opset 8",
            "`--opset` is 8, expected 9 to 23",
            "run `kvtool lower --help`",
            id="an opset below the lowest",
        ),
        pytest.param(
            "lower in.onnx --opset 24",
            "`--opset` is 24, expected 9 to 23",
            "`kvtool raise` goes the other way, to opset 24 or later",
            id="an opset above the highest",
        ),
        pytest.param(
            "lower in.onnx --via scatter",
            "`--via` is `scatter`, expected `auto`, `scatternd` or `scatterelements`",
            "did you mean `scatternd`?",
            id="an unknown form is answered with the nearest one",
        ),
        pytest.param(
            "lower in.onnx --via x",
            "`--via` is `x`, expected `auto`, `scatternd` or `scatterelements`",
            "run `kvtool lower --help`",
            id="a form that resembles none",
        ),
        pytest.param(
            "lower in.onnx --opset 18.0",
            "`--opset` is `18.0`, expected 9 to 23",
            "run `kvtool lower --help`",
            id="an opset that is no integer",
        ),
        pytest.param(
            "lower in.onnx --opset",
            "`--opset` needs a value: N",
            "run `kvtool lower --help`",
            id="an option without its value",
        ),
        pytest.param(
            "lower in.onnx --dry-run=yes",
            "`--dry-run` takes no value",
            "run `kvtool lower --help`",
            id="a flag with a value",
        ),
        pytest.param(
            "lower in.onnx out.onnx",
            "unexpected argument `out.onnx`",
            "name the output with `-o out.onnx`",
            id="an output without its option",
        ),
        pytest.param(
            "verify a.onnx b.onnx c.onnx",
            "unexpected argument `c.onnx`",
            "run `kvtool verify --help`",
            id="more models than are compared",
        ),
        pytest.param(
            "verify a.onnx b.onnx c.onnx d.onnx",
            "unexpected argument `c.onnx`",
            "`verify` takes 2 models at a time",
            id="many more",
        ),
        *(
            pytest.param(
                f"{command} a.onnx {others}",
                "unexpected argument `b.onnx`",
                f"`{command}` takes one model at a time: "
                f'`for model in *.onnx; do kvtool {command} "$model"; done`',
                id=f"{command}: {what}",
            )
            for command in ("lower", "raise", "infer", "inspect", "eval")
            for others, what in (
                ("b.onnx", "a second model is no name for the output"),
                ("b.onnx c.onnx", "what a glob expands to"),
            )
        ),
        pytest.param(
            "infer in.onnx out.onnx",
            "unexpected argument `out.onnx`",
            "name the output with `-o out.onnx`",
            id="an output of infer without its option",
        ),
        pytest.param(
            "ops Add Mul",
            "unexpected argument `Mul`",
            "run `kvtool ops --help`",
            id="a second argument that is no file",
        ),
        *(
            pytest.param(
                f"{command} b.onnx",
                f"`{flag}` is `b.onnx`, expected a file that is no model",
                "write what is to be written to another file",
                id=f"a model in the place of a report: {command}",
            )
            for command, flag in (
                ("check a.onnx -o", "--output"),
                ("check --format sarif --output", "--output"),
                ("check --write-baseline", "--write-baseline"),
                ("inspect a.onnx -o", "--output"),
                ("eval a.onnx --save", "--save"),
            )
        ),
        pytest.param(
            "help lowr",
            "no such command `lowr`",
            "did you mean `lower`?",
            id="help of an unknown command",
        ),
        pytest.param(
            "lower in.onnx --only TensorScatter,",
            "`--only` is `TensorScatter,`, expected operators with one comma between them",
            "run `kvtool lower --help`",
            id="an empty operator name",
        ),
        pytest.param(
            "lower in.onnx --dim batch",
            "`--dim` is `batch`, expected `NAME=INT`",
            "run `kvtool lower --help`",
            id="a dimension without a value",
        ),
        pytest.param(
            "lower in.onnx --dim =2",
            "`--dim` is `=2`, expected `NAME=INT`",
            "run `kvtool lower --help`",
            id="a value without a dimension",
        ),
        pytest.param(
            "lower in.onnx --dim batch=0",
            "`--dim` is `batch=0`, expected `NAME=INT` with an integer of at least 1",
            "run `kvtool lower --help`",
            id="a dimension of zero",
        ),
        pytest.param(
            "lower in.onnx --dim batch=-3",
            "`--dim` is `batch=-3`, expected `NAME=INT` with an integer of at least 1",
            "run `kvtool lower --help`",
            id="a negative dimension",
        ),
        pytest.param(
            "lower in.onnx --dim batch=2.5",
            "`--dim` is `batch=2.5`, expected `NAME=INT` with an integer of at least 1",
            "run `kvtool lower --help`",
            id="a dimension that is no integer",
        ),
        pytest.param(
            "lower in.onnx --dim batch=2 --dim batch=3",
            "`--dim` gives `batch` both 2 and 3",
            "run `kvtool lower --help`",
            id="a dimension with two values",
        ),
        pytest.param(
            "lower in.onnx -o out.onnx --in-place",
            "`--in-place` and `-o` exclude each other",
            "leave one of them out",
            id="two places for the result",
        ),
        pytest.param(
            "lower - --in-place",
            "`--in-place` needs a file, got standard input",
            "give the result a name with `-o OUT`",
            id="standard input cannot be replaced",
        ),
        pytest.param(
            "lower in.onnx --no-verify --strict",
            "`--strict` needs verification, which `--no-verify` switches off",
            "leave one of them out",
            id="strict without verification",
        ),
        pytest.param(
            "lower in.onnx --no-verify --verify-steps 3",
            "`--verify-steps` needs verification, which `--no-verify` switches off",
            "leave one of them out",
            id="steps of no verification",
        ),
        pytest.param(
            "lower in.onnx --verify-steps 0",
            "`--verify-steps` is 0, expected 1 or more",
            "run `kvtool lower --help`",
            id="no steps",
        ),
        pytest.param(
            "lower in.onnx -o - --external-data copy",
            "`--external-data` places files beside the output, and standard output has no place",
            "write the model to a file with `-o OUT`",
            id="data files beside standard output",
        ),
        pytest.param(
            "lower in.onnx -o - --format json",
            "the model and the JSON report cannot both go to standard output",
            "write the model to a file with `-o OUT`",
            id="two things for standard output",
        ),
        pytest.param(
            "lower - --format json",
            "the model and the JSON report cannot both go to standard output",
            "write the model to a file with `-o OUT`",
            id="standard input is answered on standard output, where the report goes too",
        ),
    ],
)
def test_wrong_usage(
    kvtool, lower_stand_in, lowered_report, tmp_path, arguments, message, help
) -> None:
    requests = lower_stand_in(lowered_report)
    (tmp_path / "b.onnx").write_bytes(b"a model")
    before = sorted(path.name for path in tmp_path.iterdir())
    result = kvtool(*arguments.split())
    assert result.stderr == f"kvtool: error: {message}\n  help: {help}\n"
    assert result.stdout == ""
    assert result.exit_code == 2
    assert requests == []
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "b.onnx").read_bytes() == b"a model"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("--only TensorScatter --opset 18", id="an opset that would be kept"),
        pytest.param("--via scatternd --index-dtype int32", id="int32 tuples for ScatterND"),
        pytest.param("--only TensorScattr", id="an operator that does not exist"),
        pytest.param("--target onnxruntme", id="a runtime that is unknown"),
        pytest.param("--target onnxruntime@1.14", id="a release below all that are known"),
        pytest.param("--target onnxruntime@1.15 --opset 19", id="an opset above the release's"),
        pytest.param("--target openvino --only TensorScatter", id="operators chosen twice"),
    ],
)
def test_wrong_usage_that_the_library_finds_comes_before_reading(
    kvtool, stand_in_models, arguments
) -> None:
    result = kvtool("lower", "in.onnx", *arguments.split())
    assert result.exit_code == 2
    assert result.stderr.startswith("kvtool: error: ")


def test_no_command_shows_the_help_as_wrong_usage(kvtool) -> None:
    result = kvtool()
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: kvtool [OPTIONS] COMMAND")


def test_a_model_is_not_written_to_a_terminal(
    kvtool, lower_stand_in, lowered_report, monkeypatch
) -> None:
    requests = lower_stand_in(lowered_report)
    monkeypatch.setattr("onnx_kvtool.cli.output._stdout_is_terminal", lambda: True)
    result = kvtool("lower", "in.onnx", "-o", "-")
    assert result.exit_code == 2
    assert result.stderr.startswith("kvtool: error: a model is binary and is not written to")
    assert requests == []


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("lower - --format json --dry-run", id="a dry run writes no model to clash"),
        pytest.param("lower in.onnx --only A --dim a=2 --dim a=2", id="a value said twice"),
        pytest.param("lower in.onnx --index-dtype int32", id="int32 picks ScatterElements"),
        pytest.param("lower in.onnx --index-dtype int64 --via scatternd", id="int64 goes with all"),
        pytest.param("lower in.onnx --verify --verify-steps 3", id="steps of a verification"),
        pytest.param("lower in.onnx --opset 11", id="the lowest opset"),
        pytest.param("lower in.onnx --opset 23", id="the highest opset"),
    ],
)
def test_right_usage(kvtool, lower_stand_in, lowered_report, arguments) -> None:
    requests = lower_stand_in(lowered_report)
    result = kvtool(*arguments.split())
    assert result.exit_code == 0, result.stderr
    assert len(requests) == 1
