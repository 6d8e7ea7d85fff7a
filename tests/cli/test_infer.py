"""`kvtool infer` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LLAMA = ROOT / "fixtures" / "models" / "native" / "llama_static.onnx"
GENAI = ROOT / "fixtures" / "models" / "genai" / "genai_llama_fp32_cpu.onnx"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A model with an operator nobody knows and an output that is declared wrong."""
    text = """
        <ir_version: 10, opset_import: ["": 24, "my": 1]>
        main (float[B, 3] x) => (float[P] z, float[B, 5] w) {
            [first] y = my.Odd (x)
            z = Relu (y)
            [second] w = Neg (x)
        }
    """
    path = tmp_path / "odd.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_json_has_the_keys_of_the_contract(kvtool, odd: Path) -> None:
    result = kvtool("infer", odd, "--format", "json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert (answer["schema_version"], answer["command"]) == (1, "infer")
    assert (answer["values"], answer["known_before"], answer["known_after"]) == (4, 2, 2)
    first = {"graph": "main", "node": "first", "index": 0, "op": "my::Odd", "value": "y"}
    lost = {"location": first, "code": "unknown-operator", "why": "`my::Odd` is unknown"}
    assert answer["unknown"] == [
        {
            "value": "y",
            "node": "first",
            "op": "my::Odd",
            "why": "`my::Odd` is unknown",
            "code": "unknown-operator",
            "first": "y",
            "graph": "main",
            "shape": None,
            "location": first,
            "lost": lost,
        },
        {
            "value": "z",
            "node": "first",
            "op": "my::Odd",
            "why": "`my::Odd` is unknown",
            "code": "unknown-operator",
            "first": "y",
            "graph": "main",
            "shape": [None],
            "location": {
                "graph": "main",
                "node": "#1",
                "index": 1,
                "op": "Relu",
                "value": "z",
            },
            "lost": lost,
        },
    ]
    (conflict,) = answer["conflicts"]
    assert (conflict["value"], conflict["node"]) == ("w", "second")
    assert (conflict["declared"], conflict["inferred"]) == (["B", 5], ["B", 3])
    assert conflict["chain"] == ["`x` (B, 3)", "Neg `second` gives `w` (B, 3)"]


def test_text_groups_unknown_values_by_their_first_cause(kvtool, odd: Path) -> None:
    result = kvtool("infer", odd)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == f"inferred: {odd}, 2 of 4 values known, 2 by the file alone"
    assert any(line.startswith("conflict: shape: main, node `second` (Neg)") for line in lines)
    (row,) = [line for line in lines if "`my::Odd` is unknown" in line]
    assert row.endswith("y, z")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param([], 0, id="nothing is unknown"),
        pytest.param(["--strict"], 0, id="strict, and nothing is unknown"),
        pytest.param(["--dim", "batch=2", "--dim", "sequence_len=3"], 0, id="sizes bound"),
        pytest.param(["--dim", "bach=2"], 2, id="no such dimension"),
        pytest.param(["--dim", "batch=0"], 2, id="no such size"),
        pytest.param(["-o", "-", "--format", "json"], 2, id="two answers for one stream"),
    ],
)
def test_exit_codes(kvtool, arguments: list[str], code: int) -> None:
    assert kvtool("infer", LLAMA, *arguments).exit_code == code


@pytest.mark.long
def test_strict_exits_with_1_when_something_is_unknown(kvtool) -> None:
    path = ROOT / "fixtures" / "models" / "native" / "gemma4_hybrid_static.onnx"
    assert kvtool("infer", path).exit_code == 0
    assert kvtool("infer", path, "--strict").exit_code == 1


@pytest.mark.long
def test_a_constant_that_a_builder_declares_wrongly_is_no_conflict(kvtool, tmp_path: Path) -> None:
    result = kvtool("infer", GENAI)
    assert result.exit_code == 0
    name = "/model/constants/INT64/[1]"
    note = f"1 Constant declared with the wrong type or shape: `{name}`"
    assert f"note: {note}" in result.stdout
    path = tmp_path / "step.onnx"
    assert kvtool("infer", GENAI, "--dim", "batch_size=1", "-o", path).exit_code == 0
    (held,) = [v for v in onnx.load(path).graph.value_info if v.name == name]
    assert [dim.dim_value for dim in held.type.tensor_type.shape.dim] == [1]


def test_a_conflict(kvtool, tmp_path: Path) -> None:
    text = """
        <ir_version: 10, opset_import: ["": 24]>
        main (float[2, 3] x) => (float[3, 2] y) { y = Neg (x) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    result = kvtool("infer", tmp_path / "m.onnx")
    assert result.exit_code == 1
    assert "is declared as (3, 2), and is (2, 3)" in result.stdout


def test_the_model_goes_to_standard_output_and_the_report_to_standard_error(kvtool) -> None:
    result = kvtool("infer", "-", "-o", "-", input=LLAMA.read_bytes())
    assert result.exit_code == 0
    model = onnx.ModelProto.FromString(result.stdout_bytes)
    onnx.checker.check_model(model, full_check=True)
    assert result.stderr.startswith("inferred: standard input, 74 of 74 values known")


def test_the_input_is_not_overwritten(kvtool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(LLAMA.read_bytes())
    result = kvtool("infer", path, "-o", path)
    assert result.exit_code == 2
    assert path.read_bytes() == LLAMA.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        f"m (float[{2**63 - 1}] a, float[1] b) => (y) {{ y = Concat <axis = 0> (a, b) }}",
        "m (float[2, 3] a) => (y) <int64[1] s = {-3}> { y = ConstantOfShape (s) }",
        "m (float[2, 3] a, float[2] b) => (y) { y = SequenceAt (a, b) }",
    ],
    ids=["a sum beyond 64 bits", "a negative size", "no sequence"],
)
def test_what_onnx_refuses_is_not_written(kvtool, tmp_path: Path, text: str) -> None:
    model, output = tmp_path / "model.onnx", tmp_path / "output.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}'), model)
    result = kvtool("infer", model, "-o", output)
    assert result.exit_code == 1
    assert not output.exists()


@pytest.mark.parametrize(
    "content",
    [pytest.param(b"", id="an empty file"), pytest.param(b"\xff\x01", id="not a model")],
)
def test_an_unreadable_model(kvtool, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    result = kvtool("infer", path)
    assert result.exit_code == 3
    assert "Traceback" not in result.stderr


@pytest.mark.long
def test_the_page_shows_what_is_printed(kvtool, monkeypatch) -> None:
    page = (ROOT / "docs" / "commands" / "infer.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n$ kvtool ")[2].partition("```")[0]
    command, _, expected = shown.partition("\n")
    monkeypatch.chdir(ROOT)
    assert kvtool(*command.split()).stdout == expected
