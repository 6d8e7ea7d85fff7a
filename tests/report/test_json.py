"""JSON is one object with a fixed head, and always valid."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from onnx_kvtool import __version__
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.reporting import Shrunken
from onnx_kvtool.report.json import to_json
from onnx_kvtool.rewrite.report import Lowered, LowerReport, Verification

HEADER = {
    "schema_version": 1,
    "tool": {"name": "kvtool", "version": __version__},
    "command": "lower",
}


def strict(text: str) -> Any:
    """Parse JSON, without the numbers that Python accepts beyond the standard."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_lower_has_the_keys_of_the_contract() -> None:
    report = LowerReport(
        model="in.onnx",
        output=None,
        source_opset=24,
        target_opset=18,
        ir_version=8,
        lowered=[Lowered(Location("g", "ts", 3, "TensorScatter"), "tensor_scatter", "scatternd")],
        refused=[
            Diagnostic(
                "unknown-rank",
                "error",
                Location("g/loop.body", None, 5, "com.example::Op"),
                "the rank of `x` is unknown",
                lowest_opset=20,
            )
        ],
        notes=["for people alone"],
        verification=Verification(
            "equal",
            "onnxruntime 1.31.1",
            2,
            7,
            0.5,
            ("present",),
            shrunken=(Shrunken("widths", 4096, 48),),
        ),
    )
    answer = strict(to_json("lower", report))
    assert answer == {
        **HEADER,
        "model": "in.onnx",
        "output": None,
        "source_opset": 24,
        "target_opset": 18,
        "ir_version": 8,
        "target": None,
        "lowered": [
            {
                "graph": "g",
                "node": "ts",
                "index": 3,
                "op": "TensorScatter",
                "rule": "tensor_scatter",
                "via": "scatternd",
            }
        ],
        "refused": [
            {
                "graph": "g/loop.body",
                "node": "#5",
                "index": 5,
                "op": "com.example::Op",
                "reason_code": "unknown-rank",
                "reason": "the rank of `x` is unknown",
                "lowest_opset": 20,
                "value": None,
                "severity": "error",
                "help": None,
            }
        ],
        "notes": ["for people alone"],
        "verification": {
            "status": "equal",
            "runtime": "onnxruntime 1.31.1",
            "cases": 2,
            "steps": 7,
            "max_abs_diff": 0.5,
            "bit_equal": ["present"],
            "detail": None,
            "shrunken": [{"what": "widths", "from": 4096, "to": 48}],
            "covered": None,
            "insufficient": None,
        },
    }
    assert list(answer)[:3] == list(HEADER)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_lacks_is_null(number: float) -> None:
    class Report:
        def to_json(self) -> dict[str, Any]:
            return {"a": number, "b": [{"c": number}], "d": 1.5}

    answer = strict(to_json("lower", Report()))
    assert answer == {**HEADER, "a": None, "b": [{"c": None}], "d": 1.5}


def test_every_name_survives() -> None:
    name = 'past "0"\n\x1b[31m 長さ \udce9'
    report = LowerReport(name, None, 24, 18, 8)
    text = to_json("lower", report)
    assert text.isascii()
    assert strict(text)["model"] == name
