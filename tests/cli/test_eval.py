"""`kvtool eval`: options become a request, values go to standard output, errors to exit codes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_kvtool.commands import evaluate as command
from onnx_kvtool.commands.requests import EvalRequest
from onnx_kvtool.core.machine import Progress
from onnx_kvtool.evaluation.report import Comparison, EvalReport
from onnx_kvtool.verification.report import OutputReport

ROOT = Path(__file__).resolve().parents[2]
LLAMA = ROOT / "fixtures" / "models" / "native" / "llama_static.onnx"

DEFAULTS: dict[str, Any] = {
    "model": "in.onnx",
    "op": None,
    "opset": None,
    "attributes": (),
    "inputs": None,
    "specs": (),
    "random": False,
    "seed": 0,
    "dims": None,
    "node": None,
    "fetch": (),
    "trace": False,
    "steps": 0,
    "runtime": "reference",
    "compare": None,
    "provider": None,
    "save": None,
    "time_limit": None,
    "memory_limit": None,
    "output_format": "text",
}


def report(**facts: Any) -> EvalReport:
    return EvalReport("in.onnx", None, None, "reference 0.1.0", None, 0, (), (), **facts)


@pytest.fixture
def requests(stand_in_models: None, monkeypatch: pytest.MonkeyPatch) -> list[EvalRequest]:
    """The requests that reach the command, which does nothing."""
    made: list[EvalRequest] = []

    def run(request: EvalRequest, progress: Progress) -> EvalReport:
        made.append(request)
        return report()

    monkeypatch.setattr(command, "run", run)
    return made


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        pytest.param("in.onnx", {}, id="defaults"),
        pytest.param("-", {"model": "-"}, id="standard input"),
        pytest.param(
            "in.onnx --input a=1 --input 'b=[1, 2]' --input c=d=e",
            {"specs": (("a", "1"), ("b", "[1, 2]"), ("c", "d=e"))},
            id="inputs, split at the first equals sign",
        ),
        pytest.param("in.onnx --input x=", {"specs": (("x", ""),)}, id="an empty SPEC"),
        pytest.param("in.onnx --random --seed 7", {"random": True, "seed": 7}, id="random"),
        pytest.param("in.onnx --dim b=2", {"dims": {"b": 2}}, id="dims"),
        pytest.param("in.onnx --node '#3'", {"node": "#3"}, id="node"),
        pytest.param("in.onnx --fetch a --fetch b", {"fetch": ("a", "b")}, id="fetch"),
        pytest.param("in.onnx --trace --steps 3", {"trace": True, "steps": 3}, id="trace, steps"),
        pytest.param(
            "in.onnx --runtime onnxruntime --compare reference",
            {"runtime": "onnxruntime", "compare": "reference"},
            id="runtimes",
        ),
        pytest.param(
            "in.onnx --time-limit 2.5 --memory-limit 2GiB",
            {"time_limit": 2.5, "memory_limit": "2GiB"},
            id="limits",
        ),
        pytest.param("in.onnx --save x.npz", {"save": "x.npz"}, id="save"),
        pytest.param(
            "--op Add --opset 14 --attr a=1 --attr b=x=y --input A=1",
            {
                "model": None,
                "op": "Add",
                "opset": 14,
                "attributes": (("a", "1"), ("b", "x=y")),
                "specs": (("A", "1"),),
            },
            id="an operator",
        ),
    ],
)
def test_options_become_a_request(kvtool, requests, arguments, changed) -> None:
    result = kvtool("eval", *shlex.split(arguments))
    assert result.exit_code == 0, result.stderr
    assert [vars(request) for request in requests] == [{**DEFAULTS, **changed}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            "in.onnx --input x",
            "`--input` is `x`, expected `NAME=SPEC`",
            id="an input without a SPEC",
        ),
        pytest.param(
            "in.onnx --time-limit 0",
            "`--time-limit` is 0, expected a number of seconds above 0",
            id="no time",
        ),
        pytest.param(
            "in.onnx --memory-limit lots",
            "`--memory-limit` is `lots`, expected a size such as `2GiB`",
            id="memory without a number",
        ),
        pytest.param(
            "in.onnx --input =1",
            "`--input` is `=1`, expected `NAME=SPEC`",
            id="a SPEC without a name",
        ),
        pytest.param(
            "--op Add --attr x", "`--attr` is `x`, expected `NAME=VALUE`", id="an attribute alone"
        ),
        pytest.param(
            "in.onnx --seed -1", "`--seed` is -1, expected 0 or more", id="a negative seed"
        ),
        pytest.param(
            "in.onnx --steps x",
            "`--steps` is `x`, expected 0 or more",
            id="steps that are no number",
        ),
        pytest.param(
            "in.onnx --runtime trt",
            "`--runtime` is `trt`, expected `reference` or",
            id="an unknown runtime",
        ),
        pytest.param(
            "in.onnx --compare x",
            "`--compare` is `x`, expected `reference` or",
            id="an unknown comparison",
        ),
        pytest.param("--op Add --opset 0", "`--opset` is 0, expected 1 or more", id="opset zero"),
        pytest.param("in.onnx --randm", "did you mean `--random`?", id="a misspelt flag"),
        pytest.param("in.onnx other.onnx", "unexpected argument `other.onnx`", id="two models"),
    ],
)
def test_wrong_options(kvtool, requests, arguments, message) -> None:
    result = kvtool("eval", *shlex.split(arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert requests == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param("", "there is no model", id="nothing"),
        pytest.param("in.onnx --op Add", "without a model", id="a model and an operator"),
        pytest.param("in.onnx --attr a=1", "`--attr` is for a single", id="an attribute"),
        pytest.param("in.onnx --opset 3", "`--opset` is for a single", id="an opset"),
        pytest.param("in.onnx --input a=1 --input a=2", "`a` is given twice", id="an input twice"),
        pytest.param("in.onnx --node a --fetch b", "`--node` fetches", id="node and fetch"),
        pytest.param("in.onnx --compare reference", "with itself", id="a runtime with itself"),
        pytest.param(
            "in.onnx --trace --runtime onnxruntime", "`--trace` needs the reference", id="trace"
        ),
        pytest.param("in.onnx --input a=b", "neither a file", id="a SPEC that is none"),
        pytest.param("--op Add --random", "`--random` needs a model", id="random"),
        pytest.param("--op Add --seed 1", "`--seed` needs a model", id="seed"),
        pytest.param("--op Add --dim a=1", "`--dim` needs a model", id="dim"),
        pytest.param("--op Add --node a", "`--node` needs a model", id="node"),
        pytest.param("--op Add --steps 1", "`--steps` needs a model", id="steps"),
        pytest.param("--op Adds --input A=1", "did you mean `Add`?", id="a misspelt operator"),
    ],
)
def test_wrong_usage_comes_before_reading(kvtool, stand_in_models, arguments, message) -> None:
    result = kvtool("eval", *shlex.split(arguments))
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "does not exist", id="no file"),
        pytest.param(b"", "is empty", id="an empty file"),
        pytest.param(b"a few lines\nof prose\n", "looks like a text file", id="a text file"),
    ],
)
def test_a_model_that_cannot_be_read(kvtool, tmp_path: Path, content, message) -> None:
    if content is not None:
        (tmp_path / "in.onnx").write_bytes(content)
    result = kvtool("eval", tmp_path / "in.onnx", "--random")
    assert result.exit_code == 3
    assert message in result.stderr


def test_a_file_of_values_that_cannot_be_read(kvtool, tmp_path: Path) -> None:
    result = kvtool("eval", LLAMA, "--random", "--input", f"input_ids={tmp_path / 'no.npy'}")
    assert result.exit_code == 3
    assert "no.npy` does not exist" in result.stderr


def test_a_run_that_fails_is_a_no(kvtool) -> None:
    inputs = ["--input", "input_ids=[[999]]"]
    result = kvtool("eval", LLAMA, "--random", "--fetch", "logits", *inputs)
    assert result.exit_code == 1
    assert re.match(r"kvtool: error: main_graph, node `.*` \(Gather\): ", result.stderr)
    assert result.stdout == ""


def test_a_model_that_the_runtime_lacks_operators_for_is_a_no(kvtool, tmp_path: Path) -> None:
    model = onnx.load(ROOT / "fixtures" / "models" / "genai" / "genai_llama_fp32_cpu.onnx")
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "PagedAttention"
    onnx.save(model, tmp_path / "paged.onnx")
    result = kvtool("eval", tmp_path / "paged.onnx", "--random")
    assert result.exit_code == 1
    assert "run the model with `--runtime onnxruntime`" in result.stderr


@pytest.mark.parametrize(("status", "code"), [("equal", 0), ("different", 1)])
def test_a_difference_is_a_no(kvtool, stand_in_models, monkeypatch, status, code) -> None:
    comparison = Comparison(status, "onnxruntime 1.31.1", (OutputReport("y", True, 0.0),))
    monkeypatch.setattr(command, "run", lambda *_: report(comparison=comparison))
    result = kvtool("eval", "in.onnx")
    assert result.exit_code == code
    assert result.stdout.splitlines()[1:] == [
        f"{status}: reference 0.1.0, compared with onnxruntime 1.31.1",
        "  output  bit for bit  largest difference  first mismatch",
        "  y       yes          0",
    ]


def test_json_is_data_and_text_is_values_on_standard_output(kvtool) -> None:
    arguments = ["eval", "--op", "Add", "--input", "A=[1]", "--input", "B=[2]"]
    text = kvtool(*arguments)
    assert text.stdout.splitlines()[1:] == ["C: int64 (1,), 3 to 3", "  [3]"]
    assert text.stderr == ""
    found = json.loads(kvtool(*arguments, "--format", "json").stdout)
    assert found["outputs"][0]["values"] == [3]
    assert found["operator"] == "Add"


def test_notes_and_warnings_are_talk(kvtool, tmp_path: Path) -> None:
    result = kvtool(
        *("eval", "--op", "ScatterElements", "--input", "data=[1, 2]", "--input", "indices=[1, 1]"),
        *("--input", "updates=[5, 6]", "--save", tmp_path / "x.npz"),
    )
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: main_graph, node `ScatterElements`")
    assert result.stderr.splitlines()[-1] == f"written: {tmp_path / 'x.npz'}"
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays["output"].tolist() == [1, 6]
    borrowed = kvtool("eval", "--op", "StringNormalizer", "--input", 'X=["a"]')
    assert borrowed.stderr == (
        "note: onnx.reference runs what has no kernel here: StringNormalizer (1)\n"
    )


def test_an_archive_that_cannot_be_written(kvtool, tmp_path: Path) -> None:
    arguments = ["eval", "--op", "Identity", "--input", "input=1", "--save", tmp_path / "no" / "x"]
    result = kvtool(*arguments)
    assert result.exit_code == 2
    assert "cannot write" in result.stderr
    assert result.stdout == ""


def test_a_model_from_standard_input(kvtool, tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    data = onnx.parser.parse_model(text).SerializeToString()
    result = kvtool("eval", "-", "--input", "x=[1, 2]", input=data)
    assert result.stdout.splitlines() == [
        result.stdout.splitlines()[0],
        "y: float32 (2,), -2 to -1",
        "  [-1 -2]",
    ]
    assert result.stdout.startswith("ran: standard input in reference ")


def test_what_changed_is_highlighted_on_a_terminal(kvtool) -> None:
    arguments = ["--input", "data=[1, 2]", "--input", "indices=[1]", "--input", "updates=[5]"]
    result = kvtool("--color", "always", "eval", "--op", "ScatterElements", *arguments)
    assert "\x1b[1;32m*5\x1b[0m" in result.stdout
    assert "\x1b" not in kvtool("eval", "--op", "ScatterElements", *arguments).stdout


def test_names_from_a_model_do_not_reach_the_terminal_as_they_are(kvtool, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    )
    proto.graph.output[0].name = proto.graph.node[0].output[0] = "y\n\x1b[31m"
    onnx.save(proto, tmp_path / "m.onnx")
    result = kvtool("eval", tmp_path / "m.onnx", "--input", "x=[1, 2]", "--trace")
    assert "\x1b" not in result.stdout
    assert r"y\n\x1b[31m: float32 (2,)" in result.stdout


def test_the_trace_is_a_table(kvtool) -> None:
    result = kvtool("eval", LLAMA, "--random", "--node", "#5", "--trace")
    header = next(line for line in result.stdout.splitlines() if line.split()[:1] == ["node"])
    assert header.split() == ["node", "operator", "outputs", "ms"]
    assert "RMSNormalization" in result.stdout


DOCUMENT = (ROOT / "docs" / "commands" / "eval.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```text\n\$ kvtool (.*?)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("arguments", "shown"), SHOWN, ids=lambda text: text[:40])
def test_the_document_shows_what_is_printed(kvtool, arguments, shown) -> None:
    result = kvtool(*shlex.split(arguments))
    printed, page = (
        re.sub(r"(reference|onnxruntime) [\d.]+", r"\1 VERSION", text)
        for text in (result.stdout + result.stderr, shown)
    )
    assert printed == page


def test_the_document_shows_something() -> None:
    assert len(SHOWN) == 2
