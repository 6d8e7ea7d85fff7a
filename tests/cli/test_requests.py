"""What a command line can say, a request and a Python function are the same arguments."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onnx_kvtool as kv
from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.commands import requests
from onnx_kvtool.commands.options import Request
from onnx_kvtool.core.errors import UsageError
from tests.grids import each

REQUESTS: dict[str, type[Request]] = {
    "bench": requests.BenchRequest,
    "check": requests.CheckRequest,
    "diff": requests.DiffRequest,
    "eval": requests.EvalRequest,
    "infer": requests.InferRequest,
    "inspect": requests.InspectRequest,
    "lower": requests.LowerRequest,
    "merge": requests.MergeRequest,
    "ops": requests.OpsRequest,
    "print": requests.PrintRequest,
    "raise": requests.RaiseRequest,
    "rule": requests.RuleRequest,
    "targets": requests.TargetsRequest,
    "verify": requests.VerifyRequest,
}

FUNCTIONS = {
    "check": kv.check,
    "diff": kv.diff,
    "eval": kv.evaluate,
    "infer": kv.infer,
    "inspect": kv.inspect,
    "lower": kv.lower,
    "merge": kv.merge,
    "print": kv.print,
    "raise": kv.raise_,
    "verify": kv.verify,
}


def test_every_command_is_here() -> None:
    assert REQUESTS.keys() == set(COMMANDS)


@each("command", [*REQUESTS])
def test_the_flags_are_the_fields_of_the_request(command: str) -> None:
    flags = {param.name for param in COMMANDS[command].params} - {"schema"}
    fields = REQUESTS[command].fields
    assert flags == {name for name, said in fields.items() if said.help or said.is_argument}


@each("command", [*REQUESTS])
def test_a_flag_that_is_not_given_leaves_the_default_of_the_request(command: str) -> None:
    defaults = {
        name: said.default
        for name, said in REQUESTS[command].fields.items()
        if said.help and said.default is not ...
    }
    given = COMMANDS[command].make_context(command, [], resilient_parsing=True).params
    # () stands for the default where an option may come several times; see `cli.command`.
    assert {n: defaults[n] if given[n] == () else given[n] for n in defaults} == defaults


@each("command", [*FUNCTIONS])
def test_the_keywords_are_fields_of_the_request(command: str) -> None:
    parameters = inspect.signature(FUNCTIONS[command]).parameters.values()
    keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords <= REQUESTS[command].fields.keys()


@each(
    ("given", "expected"),
    [
        pytest.param({"via": "scatterndd"}, "`auto`, `scatternd`", id="no word of a choice"),
        pytest.param({"via": ["auto"]}, "`auto`, `scatternd`", id="a list for a word"),
        pytest.param({"verify_steps": 0}, "at least 1", id="too low"),
        pytest.param({"opset": 24}, "expected 9 to 23", id="too high"),
    ],
)
def test_a_request_refuses_what_no_option_can_be(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        requests.LowerRequest("in.onnx", **given)


def test_a_request_needs_its_arguments_and_has_no_others() -> None:
    with pytest.raises(TypeError, match="needs `model`"):
        requests.LowerRequest()
    with pytest.raises(TypeError, match="has no opsets"):
        requests.LowerRequest("in.onnx", opsets=18)


def test_no_caller_of_a_function_can_give_what_only_the_command_line_takes() -> None:
    for name in ("output", "in_place", "dry_run", "output_format"):
        assert name in requests.LowerRequest.fields
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            kv.lower("in.onnx", **{name: None})


TYPED = """
import onnx_kvtool as kv

lowered, report = kv.lower(model="in.onnx", opset=18, via="scatternd", dims={"batch": 2})
kv.evaluate("in.onnx", {"x": 1}, random=True)
kv.lower("in.onnx", opset="18")
kv.lower("in.onnx", via="scatter")
kv.lower("in.onnx", output="out.onnx")
kv.check(fail_on="info")
"""
"""The last four lines are wrong."""


@pytest.mark.slow
def test_a_type_checker_sees_the_signature(tmp_path: Path) -> None:
    path = tmp_path / "typed.py"
    path.write_text(TYPED, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    wrong = re.findall(r"^.*typed\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    expected = [("6", "arg-type"), ("7", "arg-type"), ("8", "call-arg"), ("9", "call-arg")]
    assert wrong == expected, done.stdout
