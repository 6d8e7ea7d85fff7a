"""`kvtool lower` turns its options into one request, and the report into output."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from tests.grids import rest

MODEL = "fixtures/models/native/llama_static.onnx"

DEFAULTS = {
    "model": "in.onnx",
    "output": None,
    "in_place": False,
    "external_data": None,
    "dry_run": False,
    "opset": None,
    "target": None,
    "only": (),
    "via": "auto",
    "index_dtype": None,
    "bounds": "checked",
    "contrib": None,
    "element_type": None,
    "verify": None,
    "verify_steps": None,
    "verify_budget": None,
    "thorough": False,
    "strict": False,
    "dims": None,
    "static": False,
    "phases": None,
    "output_format": "text",
}


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        pytest.param("in.onnx", {}, id="defaults"),
        pytest.param("in.onnx -o out.onnx", {"output": "out.onnx"}, id="short -o"),
        pytest.param("in.onnx --output out.onnx", {"output": "out.onnx"}, id="long --output"),
        pytest.param("in.onnx -o - ", {"output": "-"}, id="standard output"),
        pytest.param("-", {"model": "-"}, id="standard input"),
        pytest.param(
            "- -o out.onnx", {"model": "-", "output": "out.onnx"}, id="standard input to a file"
        ),
        pytest.param("in.onnx --in-place", {"in_place": True}, id="in place"),
        pytest.param("in.onnx --external-data copy", {"external_data": "copy"}, id="external data"),
        pytest.param("in.onnx --dry-run", {"dry_run": True}, id="dry run"),
        pytest.param("in.onnx --opset 13", {"opset": 13}, id="opset"),
        pytest.param(
            "in.onnx --target onnxruntime@1.17", {"target": "onnxruntime@1.17"}, id="target"
        ),
        pytest.param(
            "in.onnx --only TensorScatter,Attention --only Gelu --only Attention",
            {"only": ("TensorScatter", "Attention", "Gelu")},
            id="operators by comma and by repetition, each once",
        ),
        pytest.param("in.onnx --via scatterelements", {"via": "scatterelements"}, id="form"),
        pytest.param("in.onnx --index-dtype int32", {"index_dtype": "int32"}, id="index dtype"),
        pytest.param("in.onnx --bounds unchecked", {"bounds": "unchecked"}, id="bounds"),
        pytest.param("in.onnx --verify", {"verify": True}, id="verify"),
        pytest.param("in.onnx --no-verify", {"verify": False}, id="no verify"),
        pytest.param("in.onnx --thorough", {"thorough": True}, id="thorough"),
        pytest.param("in.onnx --strict", {"strict": True}, id="strict"),
        pytest.param("in.onnx --verify-steps 3", {"verify_steps": 3}, id="verify steps"),
        pytest.param(
            "in.onnx --verify-budget 1GiB,30s", {"verify_budget": "1GiB,30s"}, id="verify budget"
        ),
        pytest.param(
            "in.onnx --dim batch=2 --dim a=b=3",
            {"dims": {"batch": 2, "a=b": 3}},
            id="dims, a name may hold an equals sign",
        ),
    ],
)
def test_options_become_a_request(
    kvtool, lower_stand_in, lowered_report, arguments, changed
) -> None:
    requests = lower_stand_in(lowered_report)
    result = kvtool("lower", *arguments.split())
    assert result.exit_code == 0, result.stderr
    assert [vars(request) for request in requests] == [{**DEFAULTS, **changed}]


def test_text_is_talk_and_leaves_standard_output_empty(
    kvtool, lower_stand_in, lowered_report
) -> None:
    lower_stand_in(lowered_report)
    result = kvtool("lower", "in.onnx")
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == "lowered: in.onnx, opset 24 to 18, IR version 8"


def test_json_is_data_and_leaves_standard_error_empty(
    kvtool, lower_stand_in, lowered_report
) -> None:
    lower_stand_in(lowered_report)
    result = kvtool("lower", "in.onnx", "--format", "json")
    assert result.stderr == ""
    answer = json.loads(result.stdout)
    assert list(answer)[:3] == ["schema_version", "tool", "command"]
    assert answer["output"] == "in.opset18.onnx"


def test_refusals_that_differ_in_names_only_are_one_line(
    kvtool, lower_stand_in, lowered_report
) -> None:
    lowered_report.output = None
    lowered_report.refused = [
        Diagnostic(
            "element-type",
            "error",
            Location("g", f"layers.{i}/{op}", i, op),
            f"`{op}` does not take `x.{i}`",
            "do something else",
            lowest,
        )
        for i, (op, lowest) in enumerate([*[("Cast", 19)] * 3, ("Add", 19), ("Cast", None)])
    ]
    lower_stand_in(lowered_report)
    result = kvtool("lower", "in.onnx")
    assert result.stderr.splitlines()[1:] == [
        (
            "element-type: g, node `layers.0/Cast` (Cast) and 2 others alike: `Cast` does not take "
            "`x.0`"
        ),
        "element-type: g, node `layers.3/Add` (Add): `Add` does not take `x.3`",
        "  lowest opset: 19",
        "  help: do something else",
        "element-type: g, node `layers.4/Cast` (Cast): `Cast` does not take `x.4`",
        "  help: do something else",
    ]
    assert len(json.loads(kvtool("lower", "in.onnx", "--format", "json").stdout)["refused"]) == 5


def test_dry_run_is_said(kvtool, lower_stand_in, lowered_report) -> None:
    lowered_report.output = None
    lower_stand_in(lowered_report)
    result = kvtool("lower", "in.onnx", "--dry-run")
    assert result.stderr.splitlines()[-1] == "dry run: nothing was written"


@pytest.mark.exhaustive
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", ["-o - --no-verify", "--format json --dry-run"])
def test_a_full_disk_is_an_error_and_no_bug(root, arguments) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "onnx_kvtool", "lower", str(root / MODEL), *arguments.split()],
            cwd=root,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert result.stderr.splitlines()[-1].startswith(
        b"kvtool: error: cannot write to standard output: "
    )
    assert result.returncode not in (0, 4)


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        *rest("lower {} --format json --dry-run", "lower {} -o - --no-verify", "lower --help"),
    ],
)
def test_a_reader_that_has_gone_is_met_with_silence(root, arguments) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", "onnx_kvtool", *arguments.format(root / MODEL).split()],
        cwd=root,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert b"Error" not in result.stderr
    assert b"error:" not in result.stderr
    assert result.returncode not in (0, 4)
