"""`--schema`: the JSON schema of what a command prints with `--format json`."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from onnx_kvtool.cli.output import write_data

__all__ = ["DESCRIBED", "REPORTS", "document", "show_schema", "text_of"]

REPORTS = {
    "bench": "decoding.report:BenchReport",
    "check": "lint.report:CheckReport",
    "diff": "review.report:DiffReport",
    "eval": "evaluation.report:EvalReport",
    "infer": "shapes.report:InferReport",
    "inspect": "analysis.inspection:InspectReport",
    "lower": "rewrite.report:LowerReport",
    "ops": "commands.ops_report:OpsReport",
    "raise": "rewrite.raise_report:RaiseReport",
    "rule": "commands.rule:RuleReport",
    "targets": "commands.targets:TargetsReport",
    "verify": "verification.report:VerifyReport",
}
"""What each command that has `--format json` reports."""

_SAME = {"merge": "check"}
"""Commands whose JSON is that of another, its name included: what is merged can be merged again."""

DESCRIBED = frozenset({*REPORTS, *_SAME})
"""Commands that have a schema."""


def document(command: str) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of the JSON that a command prints."""
    from onnx_kvtool.core.record import DIALECT, schema
    from onnx_kvtool.report.json import SCHEMA_VERSION

    module, name = REPORTS[command].split(":")
    found = schema(getattr(import_module(f"onnx_kvtool.{module}"), name))
    header = {
        "schema_version": {"const": SCHEMA_VERSION},
        "tool": {
            "type": "object",
            "properties": {"name": {"const": "kvtool"}, "version": {"type": "string"}},
            "required": ["name", "version"],
        },
        "command": {"const": command},
    }
    return {
        "$schema": DIALECT,
        "title": f"kvtool {command} --format json",
        **found,
        "properties": {**header, **found["properties"]},
        "required": [*header, *found["required"]],
    }


def text_of(command: str) -> str:
    """Return the schema of a command as text, without a line end."""
    return json.dumps(document(command), indent=2)


def show_schema(command: str) -> None:
    """Write the schema of a command to standard output."""
    write_data(text_of(_SAME.get(command, command)))
