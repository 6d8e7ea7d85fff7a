"""`kvtool verify` turns its options into one request, and the report into output and exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnx_kvtool.commands.requests import VerifyRequest
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.reporting import Covered, NamedTolerance, Unnoticed
from onnx_kvtool.verification.comparison.differences import Mismatch
from onnx_kvtool.verification.report import (
    EarliestDifference,
    FirstMismatch,
    OutputReport,
    VerifyReport,
)
from tests.grids import each

MODEL = "fixtures/models/native/llama_static.onnx"

DEFAULTS = vars(VerifyRequest("a.onnx", "b.onnx"))

EQUAL = VerifyReport(
    "equal",
    "a.onnx",
    "b.onnx",
    "onnxruntime 1.31.1",
    4,
    10,
    outputs=(
        OutputReport("logits", False, 7.2e-7),
        OutputReport("present.0.a_rather_long_name", True, 0.0),
    ),
    notes=("something to know",),
)
DIFFERENT = VerifyReport(
    "different",
    "-",
    "b.onnx",
    "reference 0.1.0",
    1,
    1,
    outputs=(
        OutputReport(
            "logits",
            False,
            float("inf"),
            FirstMismatch(Mismatch((0, 1), "0.5", "nan (0x7fc00000)"), "in a prompt"),
        ),
        OutputReport("present"),
    ),
    earliest=EarliestDifference(
        Location("g", "n", 3, "Add", "y"),
        Location("g", None, 5, "Add", "z"),
        Mismatch((2,), "1", "-2"),
        "value `y` at [2] is -2, expected 1",
    ),
    detail="output `logits` at [0, 1] is nan",
)
GAPS = Covered(
    37,
    30,
    (
        Unnoticed(Location("g", "relu", 2, "Relu", "hidden"), "no output depends on it"),
        Unnoticed(Location("g", "n", 3, "Add", "y"), "no output depends on it"),
    ),
    lengths=3,
    rows=64,
    not_finite=("logits",),
    unproven=("noise",),
    tolerance={"logits": NamedTolerance(1e-4, 1e-5, "float32")},
)
STRICT = replace(EQUAL, covered=GAPS, insufficient="no run gave a finite value of `logits`")
UNRUNNABLE = VerifyReport("unrunnable", "a.onnx", "b.onnx", detail="no kernel")


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        pytest.param("", {}, id="defaults"),
        pytest.param("--cases 9", {"cases": 9}, id="cases"),
        pytest.param("--steps 0", {"steps": 0}, id="no steps"),
        pytest.param("--seed 7", {"seed": 7}, id="seed"),
        pytest.param("--dim batch=2 --dim s=5", {"dims": {"batch": 2, "s": 5}}, id="dims"),
        pytest.param("--thorough --strict", {"thorough": True, "strict": True}, id="the proof"),
        pytest.param("--runtime reference", {"runtime": "reference"}, id="runtime"),
        pytest.param("--rtol 1e-3 --atol 0", {"rtol": 1e-3, "atol": 0.0}, id="tolerances"),
    ],
)
def test_options_become_one_request(kvtool, verify_stand_in, arguments: str, changed) -> None:
    requests = verify_stand_in(EQUAL)
    assert kvtool("verify", "a.onnx", "b.onnx", *arguments.split()).exit_code == 0
    assert [vars(request) for request in requests] == [{**DEFAULTS, **changed}]


@pytest.mark.parametrize(
    ("report", "code"),
    [(EQUAL, 0), (DIFFERENT, 1), (STRICT, 1), (UNRUNNABLE, 3)],
    ids=lambda x: str(x)[:30],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_status_is_the_exit_code(kvtool, verify_stand_in, report, code, form) -> None:
    verify_stand_in(report)
    assert kvtool("verify", "a.onnx", "b.onnx", "--format", form).exit_code == code


@pytest.mark.parametrize(
    ("report", "stdout", "stderr"),
    [
        pytest.param(
            EQUAL,
            "equal: a.onnx and b.onnx in onnxruntime 1.31.1 (4 cases, 10 runs)\n"
            "  output                        bit for bit  largest difference  first mismatch\n"
            "  logits                        no           7.2e-07\n"
            "  present.0.a_rather_long_name  yes          0\n",
            "note: something to know\n",
            id="equal",
        ),
        pytest.param(
            DIFFERENT,
            "different: standard input and b.onnx in reference 0.1.0 (1 case, 1 run)\n"
            "  output   bit for bit  largest difference  first mismatch\n"
            "  logits   no           inf                 [0, 1] is nan (0x7fc00000), expected 0.5\n"
            "  present  -            -                   not compared\n"
            "difference: output `logits` at [0, 1] is nan\n"
            "earliest node: g, node `n` (Add), value `y`: value `y` at [2] is -2, expected 1\n"
            "  in B: g, node `#5` (Add), value `z`\n",
            "",
            id="different",
        ),
        pytest.param(
            replace(EQUAL, outputs=(), notes=(), covered=Covered(37, 37, lengths=64, rows=64)),
            "equal: a.onnx and b.onnx in onnxruntime 1.31.1 (4 cases, 10 runs)\n"
            "covered: 37 of 37 places; lengths to 64 of 64 rows; values finite\n",
            "",
            id="all of it is covered",
        ),
        pytest.param(
            replace(STRICT, outputs=(OutputReport("noise"), OutputReport("logits", True, 0.0))),
            "equal: a.onnx and b.onnx in onnxruntime 1.31.1 (4 cases, 10 runs); `noise` is random "
            "and not proven\n"
            "  output  bit for bit  largest difference  allowed                       "
            "first mismatch\n"
            "  noise   -            -                   -                             "
            "random, not proven\n"
            "  logits  yes          0                   1e-05 + 0.0001 |x| (float32)\n"
            "covered: 30 of 37 places; lengths to 3 of 64 rows; `logits` never finite; "
            "`noise` random\n",
            "note: something to know\n"
            "not covered: a mistake at g, node `relu` (Relu), value `hidden` would not be noticed: "
            "no output depends on it, nor at 1 other place (`--cases 16` or another `--seed` draws "
            "other inputs); no mistake was planted at 5 of 37 places (`--thorough` tests them "
            "all); no run reached row 64, the longest had 3 in use (`--dim` and a larger "
            "`--verify-budget` allow longer runs); no run gave a finite value of `logits` "
            "(`--cases 16` or another `--seed` draws other inputs); random numbers go into `noise` "
            "(nothing that kvtool draws shows it)\n",
            id="what is not covered stands last",
        ),
        pytest.param(
            UNRUNNABLE,
            "unrunnable: a.onnx and b.onnx\nreason: no kernel\n",
            "",
            id="unrunnable",
        ),
    ],
)
def test_text_is_printed_whole(kvtool, verify_stand_in, report, stdout, stderr) -> None:
    verify_stand_in(report)
    result = kvtool("verify", "a.onnx", "b.onnx")
    assert (result.stdout, result.stderr) == (stdout, stderr)


def test_json_has_the_keys_of_the_contract(kvtool, verify_stand_in) -> None:
    verify_stand_in(DIFFERENT)
    found = json.loads(kvtool("verify", "-", "b.onnx", "--format", "json").stdout)
    assert list(found)[:3] == ["schema_version", "tool", "command"]
    assert found["command"] == "verify"
    assert (found["status"], found["runtime"]) == ("different", "reference 0.1.0")
    assert (found["cases"], found["steps"]) == (1, 1)
    assert found["outputs"] == [
        {
            "name": "logits",
            "bit_equal": False,
            "max_abs_diff": None,
            "first_mismatch": {
                "index": [0, 1],
                "expected": 0.5,
                "actual": "nan (0x7fc00000)",
                "run": "in a prompt",
            },
        },
        {"name": "present", "bit_equal": None, "max_abs_diff": None, "first_mismatch": None},
    ]
    assert found["earliest"]["a"]["node"] == "n"
    assert found["earliest"]["b"]["node"] == "#5"
    assert found["earliest"]["first_mismatch"] == {"index": [2], "expected": 1, "actual": -2}


@each(
    "arguments",
    [
        pytest.param([MODEL], id="one model"),
        pytest.param([MODEL, MODEL, "--cases", "0"], id="no cases"),
        pytest.param([MODEL, MODEL, "--steps", "-1"], id="a negative number of steps"),
        pytest.param([MODEL, MODEL, "--seed", "-1"], id="a negative seed"),
        pytest.param([MODEL, MODEL, "--rtol", "nan"], id="a tolerance that is no number"),
        pytest.param([MODEL, MODEL, "--atol", "inf"], id="a tolerance without end"),
        pytest.param([MODEL, MODEL, "--atol", "-1e-3"], id="a negative tolerance"),
        pytest.param([MODEL, MODEL, "--runtime", "openvino"], id="an unknown runtime"),
        pytest.param([MODEL, MODEL, "--dim", "nobody=2"], id="a dimension that no input has"),
        pytest.param(["-", "-"], id="both from standard input"),
    ],
)
def test_wrong_usage(kvtool, arguments: list[str]) -> None:
    result = kvtool("verify", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize("place", [0, 1])
def test_a_model_that_cannot_be_read_is_named(kvtool, tmp_path: Path, place: int) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    models = [MODEL, MODEL]
    models[place] = str(bad)
    result = kvtool("verify", *models)
    assert result.exit_code == 3
    assert "bad.onnx" in result.stderr


@pytest.mark.long
def test_a_model_may_come_from_standard_input(kvtool, root: Path) -> None:
    result = kvtool("verify", "-", MODEL, input=(root / MODEL).read_bytes())
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"equal: standard input and {MODEL} in ")


@pytest.mark.parametrize("color", ["always", "never"])
def test_colour_is_a_matter_of_the_option(kvtool, verify_stand_in, color: str) -> None:
    verify_stand_in(EQUAL)
    result = kvtool("--color", color, "verify", "a.onnx", "b.onnx")
    assert ("\x1b[" in result.stdout) == (color == "always")


@pytest.fixture
def flipped(root: Path, tmp_path: Path) -> Path:
    """The model with the sign of one weight of the second layer flipped."""
    proto = onnx.load(root / MODEL)
    (tensor,) = (
        t for t in proto.graph.initializer if t.name == "model.layers.1.mlp.up_proj.weight"
    )
    array = numpy_helper.to_array(tensor).copy()
    array[3, 5] = -array[3, 5]
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(proto, tmp_path / "flipped.onnx")
    return tmp_path / "flipped.onnx"


@pytest.mark.long
def test_a_fault_is_told_with_its_place(kvtool: Callable, flipped: Path) -> None:
    result = kvtool("verify", MODEL, flipped, "--format", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    by_name = {output["name"]: output for output in found["outputs"]}
    assert not by_name["logits"]["bit_equal"]
    mismatch = by_name["logits"]["first_mismatch"]
    assert len(mismatch["index"]) == 3
    assert isinstance(mismatch["expected"], float) and mismatch["expected"] != mismatch["actual"]
    assert by_name["updated_key_cache.1"] == {
        "name": "updated_key_cache.1",
        "bit_equal": True,
        "max_abs_diff": 0.0,
        "first_mismatch": None,
    }
    assert re.search(r"layers\.1/mlp/up_proj", found["earliest"]["a"]["node"])
    assert "`model.layers.1.mlp.up_proj.weight` at [3, 5]" in " ".join(found["notes"])


@pytest.mark.long
def test_the_tolerance_may_be_widened(kvtool: Callable, flipped: Path) -> None:
    assert kvtool("verify", MODEL, flipped, "--atol", "10").exit_code == 0


@pytest.mark.long
def test_a_forced_runtime_runs_both(kvtool: Callable) -> None:
    result = kvtool("verify", MODEL, MODEL, "--runtime", "reference", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["runtime"].startswith("reference ")


@pytest.mark.long
def test_more_cases_go_on_with_other_sizes(kvtool: Callable) -> None:
    result = kvtool("verify", MODEL, MODEL, "--cases", "9", "--steps", "1", "--format", "json")
    found = json.loads(result.stdout)
    assert (found["status"], found["cases"]) == ("equal", 9)
    assert np.clip(found["steps"], 9, 18) == found["steps"]
