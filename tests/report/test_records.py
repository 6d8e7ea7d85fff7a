"""Reports as JSON: they come back as they were, and the schemas say what they are."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
import types
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin

import jsonschema
import pytest

import onnx_kvtool as kv
from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.cli.command import DESCRIBED, REPORTS, document
from onnx_kvtool.commands.ops import OpsRequest
from onnx_kvtool.commands.ops import run as run_ops
from onnx_kvtool.core.record import Record, keys_of, type_of
from tests.grids import each, part

pytestmark = pytest.mark.long

STATIC = "fixtures/models/native/llama_static.onnx"
BROKEN = "fixtures/models/native/BROKEN_gemma_static_raw_noopt.onnx"
GROWING = "fixtures/growing/bart__dynamo_op18.onnx"
WORK = ["--prompt=3", "--tokens=2", "--rounds=1", "--threads=1"]

CALLS = {
    "bench of a model": ["bench", STATIC, *WORK],
    "bench of two, one of which does not load": ["bench", STATIC, BROKEN, *WORK],
    "print of a model": ["print", STATIC],
    "check of two models": ["check", "--isolated", GROWING, BROKEN],
    "check with counts": ["check", "--isolated", "--statistics", BROKEN],
    "check that would fix": ["check", "--isolated", "--fix", "--diff", GROWING],
    "check of what is no model": ["check", "--isolated", "pyproject.toml", STATIC],
    "diff of a model with itself": ["diff", STATIC, STATIC],
    "diff of two that differ": ["diff", STATIC, BROKEN],
    "diff without weights": ["diff", STATIC, GROWING, "--weights=none"],
    "eval of a model": ["eval", STATIC, "--random", "--steps=1", "--trace"],
    "eval compared": ["eval", STATIC, "--random", "--compare=onnxruntime"],
    "eval of an operator": [
        "eval", "--op=TensorScatter", "--opset=24",
        "--input=past_cache=float16:[[[1.5, 2], [3, 4]]]",
        "--input=update=float16:[[[7, 8]]]", "--input=write_indices=int64:[1]",
    ],
    "eval of NaN": ["eval", "--op=Sqrt", "--input=X=float32:[-1, 4, 65504.5]"],
    "infer": ["infer", STATIC],
    "infer of what is unknown": ["infer", BROKEN, "--strict"],
    "inspect": ["inspect", STATIC],
    "inspect with all": [
        "inspect", GROWING, "--nodes", "--capacity=128", "--cache-dtype=float16",
        "--memory=1GiB", "--bandwidth=10GB", "--dim=s14=3",
    ],
    "lower": ["lower", STATIC, "--opset=18", "--dry-run"],
    "lower for a release": ["lower", STATIC, "--target=tensorrt", "--dry-run", "--no-verify"],
    "lower that is refused": ["lower", BROKEN, "--opset=9", "--dry-run"],
    "ops": ["ops"],
    "raise": ["raise", GROWING, "--capacity=8", "--dry-run", "--no-verify"],
    "raise that is refused": ["raise", GROWING, "--dry-run", "--no-verify"],
    "rule": ["rule", "--all"],
    "targets": ["targets"],
    "verify": ["verify", STATIC, STATIC, "--cases=1"],
    "verify of two that differ": ["verify", STATIC, GROWING, "--cases=1"],
}  # fmt: skip
"""A command line for each shape that the report of a command takes."""

SEED = int(os.environ.get("KVTOOL_SEED", "20261122"))

LONG = {"bench of two, one of which does not load", "bench of a model"}


def report_class(command: str) -> type[Record]:
    module, name = REPORTS[command].split(":")
    found = getattr(import_module(f"onnx_kvtool.{module}"), name)
    assert issubclass(found, Record)
    return found


def closed(schema: Any) -> Any:
    """Return a schema that allows no keys but those that it lists."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(item) for key, item in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        found["additionalProperties"] = False
    return found


VALIDATORS = {
    command: jsonschema.Draft202012Validator(closed(document(command))) for command in REPORTS
}


@pytest.fixture(autouse=True)
def in_the_root(root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def calls() -> list[Any]:
    return [
        pytest.param(c, id=name, marks=[pytest.mark.exhaustive] if name in LONG else [])
        for name, c in CALLS.items()
    ]


@pytest.mark.parametrize("call", calls())
@part(3)
def test_what_a_command_prints_fits_its_schema_and_comes_back(call: list[str], kvtool) -> None:
    printed = kvtool(*call, "--format=json").stdout
    answer = json.loads(printed)
    VALIDATORS[call[0]].validate(answer)

    report = report_class(call[0]).from_json(printed)
    again = report.to_json(**({"statistics": True} if "--statistics" in call else {}))
    header = {key: answer.pop(key) for key in ("schema_version", "tool", "command")}
    assert header["command"] == call[0]
    assert json.loads(json.dumps(again)) == answer
    assert type(report).from_json(again) == report


def test_every_command_that_prints_json_has_a_schema_and_a_call() -> None:
    with_json = {
        name
        for name, command in COMMANDS.items()
        if any("json" in getattr(p.type, "choices", ()) for p in command.params)
    }
    assert with_json == DESCRIBED
    assert set(REPORTS) == {call[0] for call in CALLS.values()}


@pytest.mark.parametrize("command", REPORTS)
def test_schema_prints_the_published_file_and_needs_no_argument(command, root, kvtool) -> None:
    result = kvtool(command, "--format=json", "--schema")
    assert result.exit_code == 0
    assert result.stdout == (root / "docs/schemas" / f"{command}.json").read_text("utf-8")
    assert kvtool(command, "--schema").stdout == result.stdout
    jsonschema.Draft202012Validator.check_schema(json.loads(result.stdout))


@each("command", [*REPORTS])
def test_every_key_of_a_schema_says_what_it_means(command: str) -> None:
    schema = document(command)
    silent = [
        f"{name}.{key}"
        for name, part in [(command, schema), *schema.get("$defs", {}).items()]
        for key, value in part["properties"].items()
        if not ({"description", "const"} & set(value)) and key not in ("tool", "shape")
    ]
    # What is told of a record that another one holds stands there.
    known = {"node", "op", "why", "code", "first", "graph", "value"}
    assert [name for name in silent if name.partition(".")[2] not in known] == []


MADE = {
    "inspect": lambda: kv.inspect(STATIC, nodes=True),
    "inspect of a growing model": lambda: kv.inspect(GROWING),
    "infer": lambda: kv.infer(BROKEN)[1],
    "check": lambda: kv.check([GROWING, BROKEN]),
    "verify": lambda: kv.verify(STATIC, STATIC, cases=1),
    "verify of two that differ": lambda: kv.verify(STATIC, GROWING, cases=1),
    "lower": lambda: kv.lower(STATIC, opset=18)[1],
    "raise": lambda: kv.raise_(GROWING, capacity=8, verify=False)[1],
    "raise that is refused": lambda: kv.raise_(GROWING, verify=False)[1],
    "ops, with defaults that are lists": lambda: run_ops(OpsRequest(op=None)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_report_comes_back_equal_and_prints_alike(make) -> None:
    report = make()
    for data in (report.to_json(), json.dumps(report.to_json())):
        again = type(report).from_json(data)
        assert again == report
        assert again.to_json() == report.to_json()
        assert str(again) == str(report)
    assert copy.deepcopy(again) == report


class Draws:
    """Draws the JSON forms of records, by their declared types."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, kind: Any, depth: int = 0) -> Any:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self.value(self.random.choice(arguments), depth)
        if origin is Literal:
            return self.random.choice(arguments)
        if origin in (tuple, list):
            # A record may hold its own kind.
            size = 0 if depth > 3 else self.random.randrange(3)
            return [self.value(arguments[0], depth + 1) for _ in range(size)]
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {self.text(): self.value(arguments[1], depth) for _ in range(2)}
        if dataclasses.is_dataclass(kind):
            return self.record(kind, depth)
        return {
            Any: lambda: self.random.choice([None, 3, [1.5, "nan"], "text"]),
            bool: lambda: self.random.random() < 0.5,
            int: lambda: self.random.choice([0, 1, 7, 2**53 + 1]),
            float: lambda: self.random.choice([0, 0.5, -1e-9, 1e300]),
            str: self.text,
            type(None): lambda: None,
        }[kind]()

    def text(self) -> str:
        return "".join(self.random.choices('ab0./#"\\\n \u9577', k=self.random.randrange(5)))

    def record(self, kind: Any, depth: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in keys_of(kind):
            if key.is_asked:
                continue
            if key.parts:
                inner = self.record(type_of(kind, key.path), depth)
                found |= {part: inner[part] for part in key.parts if part in inner}
            elif key.form is not None and key.form.view is str:
                found[key.key] = self.random.choice(["float32", "float8e4m3fn", None])
            else:
                view = key.form.view if key.form is not None else type_of(kind, key.path)
                found[key.key] = self.value(view, depth)
        if "batch_axis" in found:  # which is one of the shape
            axes = range(len(found["shape"] or ()))
            for name in ("axis", "batch_axis"):
                found[name] = self.random.choice([None, *axes])
        return found


@pytest.mark.parametrize("command", [c for c in REPORTS if c not in ("rule", "targets")])
def test_any_report_comes_back_from_json(command: str) -> None:
    kind, draws = report_class(command), Draws(SEED)
    validator = jsonschema.Draft202012Validator(document(command))
    for _ in range(20):
        report = kind.from_json(draws.record(kind))
        whole = report.to_json()
        again = kind.from_json(json.dumps(whole))
        assert again.to_json() == whole
        assert again == report
        header = {"schema_version": 1, "tool": {"name": "kvtool", "version": ""}}
        said = {**header, "command": command, **whole}
        validator.validate(json.loads(json.dumps(said)))


def test_a_cache_with_an_axis_that_its_shape_lacks_is_no_cache() -> None:
    said = kv.inspect(STATIC).to_json()
    said["caches"][1]["axis"] = 3
    with pytest.raises(kv.UsageError, match=r"`caches\.1` has `axis` 3 of a shape of 3 dimensions"):
        kv.InspectReport.from_json(said)


WRONG = {
    "a text that is no JSON": ("{", "a text that is no JSON is no report"),
    "a list": ("[]", "is \\[\\], expected an object"),
    "a key of another type": ('{"values": "7"}', "`values` is '7', expected an integer"),
    "a key that is missing": ("{}", "has no `model`"),
    "one deep inside": (
        '{"equalities": [{"name": "a", "equals": 3, "why": ""}]}',
        "`equalities.0.equals` is 3, expected a text",
    ),
    "a truth value for a number": ('{"values": true}', "`values` is True, expected an integer"),
}


@each(("text", "message"), WRONG)
def test_what_is_no_report_is_wrong_usage(text: str, message: str) -> None:
    with pytest.raises(kv.UsageError, match=message):
        kv.InferReport.from_json(text)


def test_the_report_of_another_command_is_wrong_usage() -> None:
    with pytest.raises(kv.UsageError, match="`LowerReport`"):
        kv.LowerReport.from_json(kv.inspect(STATIC).to_json())


def test_a_cache_that_came_back_is_of_no_graph(root) -> None:
    report = kv.InspectReport.from_json(kv.inspect(STATIC).to_json())
    assert report.neighbourhoods == ()
    drawn = kv.inspect(STATIC)._repr_html_().count("&lt;svg")
    assert 0 < report._repr_html_().count("&lt;svg") < drawn  # the plot needs no graph
