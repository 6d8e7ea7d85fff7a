"""What a command line can say, a request and a Python function are the same arguments."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import onnx_kvtool as kv
from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.commands.bench import BenchRequest
from onnx_kvtool.commands.check import CheckRequest
from onnx_kvtool.commands.diff import DiffRequest
from onnx_kvtool.commands.evaluate import EvalRequest
from onnx_kvtool.commands.infer import InferRequest
from onnx_kvtool.commands.inspect import InspectRequest
from onnx_kvtool.commands.lower import LowerRequest
from onnx_kvtool.commands.merge import MergeRequest
from onnx_kvtool.commands.ops import OpsRequest
from onnx_kvtool.commands.print_ import PrintRequest
from onnx_kvtool.commands.raise_ import RaiseRequest
from onnx_kvtool.commands.rule import RuleRequest
from onnx_kvtool.commands.verify import VerifyRequest

REQUESTS: dict[str, Any] = {
    "bench": BenchRequest,
    "check": CheckRequest,
    "diff": DiffRequest,
    "eval": EvalRequest,
    "infer": InferRequest,
    "inspect": InspectRequest,
    "lower": LowerRequest,
    "merge": MergeRequest,
    "ops": OpsRequest,
    "print": PrintRequest,
    "raise": RaiseRequest,
    "rule": RuleRequest,
    "verify": VerifyRequest,
}
ASK_NOTHING = {"targets"}
SHOWN = {"output_format", "quiet", "schema", "verbose"}
"""Flags about what is shown. The format of `check` may stand in a configuration file as well."""

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


def fields(command: str) -> set[str]:
    return {field.name for field in dataclasses.fields(REQUESTS[command])}


def test_every_command_is_here() -> None:
    assert REQUESTS.keys() | ASK_NOTHING == set(COMMANDS)


@pytest.mark.parametrize("command", REQUESTS)
def test_the_flags_are_the_fields_of_the_request(command: str) -> None:
    flags = {param.name for param in COMMANDS[command].params}
    assert flags - SHOWN == fields(command) - SHOWN


@pytest.mark.parametrize("command", REQUESTS)
def test_a_flag_that_is_not_given_leaves_the_default_of_the_request(command: str) -> None:
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(REQUESTS[command])
        if field.default is not dataclasses.MISSING
    }
    given = COMMANDS[command].make_context(command, [], resilient_parsing=True).params
    assert {name: given[name] for name in defaults} == defaults


@pytest.mark.parametrize("command", FUNCTIONS)
def test_the_keywords_are_fields_of_the_request(command: str) -> None:
    parameters = inspect.signature(FUNCTIONS[command]).parameters.values()
    keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords <= fields(command)
