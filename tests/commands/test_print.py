"""`kvtool print`: equal models give equal text, and the text is onnx's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_kvtool as kv
from tests.grids import each

ROOT = Path(__file__).resolve().parents[2]
MODELS = sorted((ROOT / "fixtures" / "models").rglob("*.onnx"))

TEXT = """
    <ir_version: 10, opset_import: ["": 21, "my": 1], producer_name: "p",
     metadata_props: ["b": "2", "a": "1"]>
    main (float[N, 3] x, bool c) => (float[N, 3] y)
    <float[2, 3] w = {1, 2, 3, 4, 5, 6}, int64[2] axes = {0, 1}, float16 half = {15360},
     string[2] words = {"a", "b"}>
    {
        [first] t = Add (x, w)
        [second] u = my.Scale <b: int = 2, a: float = 0.1, s: string = "q"> (t, half)
        y = If (c) <then_branch: graph = yes () => (float[N, 3] p) { p = Identity (u) },
                    else_branch: graph = no () => (float[N, 3] q) { q = Neg (u) }>
    }
    <domain: "my", opset_import: ["": 21]>
    Scale <a, b: int = 1> (v, k) => (r) { r = Mul (v, k) }
"""


def model() -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(TEXT)
    node = parsed.graph.node[0]
    node.doc_string = "adds\nthings"
    node.metadata_props.add(key="layer", value="0")
    return parsed


def test_the_text_says_everything() -> None:
    digest = hashlib.sha256(np.arange(1, 7, dtype=np.float32).tobytes()).hexdigest()[:32]
    assert kv.print(model()).splitlines() == [
        "<",
        "   ir_version: 10,",
        '   opset_import: ["" : 21, "my" : 1],',
        '   producer_name: "p",',
        "   metadata_props: [",
        '      "a": "1",',
        '      "b": "2"',
        "   ]",
        ">",
        "main (",
        "   float[N,3] x,",
        "   bool c",
        ") => (",
        "   float[N,3] y",
        ")",
        "<",
        "   int64[2] axes = {0,1},",
        "   float16 half = {15360},  # 1.0",
        f'   float[2,3] w = ["sha256": "{digest}"],',
        '   string[2] words = {"a", "b"}',
        ">",
        "{",
        '   # doc_string: "adds\\nthings"',
        '   # layer: "0"',
        "   [first] t = Add (x, w)",
        '   [second] u = my.Scale <a: float = 0.1, b: int = 2, s: string = "q"> (t, half)',
        "   y = If (c) <",
        "      else_branch: graph = no (",
        "      ) => (",
        "         float[N,3] q",
        "      )",
        "      {",
        "         q = Neg (u)",
        "      },",
        "      then_branch: graph = yes (",
        "      ) => (",
        "         float[N,3] p",
        "      )",
        "      {",
        "         p = Identity (u)",
        "      }",
        "   >",
        "}",
        "<",
        '   domain: "my",',
        '   opset_import: ["" : 21]',
        ">",
        "Scale <a, b: int = 1> (v, k) => (r)",
        "{",
        "   r = Mul (v, k)",
        "}",
    ]


def _typed(proto: onnx.ModelProto, path: Path) -> None:
    tensor = proto.graph.initializer[0]
    values = numpy_helper.to_array(tensor)
    assert not tensor.HasField("raw_data")
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    assert tensor.HasField("raw_data")


def _external(proto: onnx.ModelProto, path: Path) -> None:
    _typed(proto, path)
    onnx.external_data_helper.convert_model_to_external_data(
        proto, location="w.bin", size_threshold=0
    )


def _sorted(proto: onnx.ModelProto, path: Path) -> None:
    for entries in (proto.graph.initializer, proto.metadata_props, proto.opset_import):
        entries.reverse()
    for node in proto.graph.node:
        node.attribute.reverse()


def _spelled(proto: onnx.ModelProto, path: Path) -> None:
    proto.opset_import[0].domain = "ai.onnx"


def _declared(proto: onnx.ModelProto, path: Path) -> None:
    proto.graph.value_info.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_typed, id="values in another field"),
        pytest.param(_external, id="values in another file"),
        pytest.param(_sorted, id="lists in another order"),
        pytest.param(_spelled, id="another spelling of the default domain"),
        pytest.param(_declared, id="a declaration that repeats an initializer"),
    ],
)
def test_equal_models_have_equal_text(
    tmp_path: Path, change: Callable[[onnx.ModelProto, Path], None]
) -> None:
    proto = model()
    change(proto, tmp_path)
    onnx.save(proto, tmp_path / "m.onnx")
    assert kv.print(tmp_path / "m.onnx") == kv.print(model())


@pytest.mark.exhaustive
@each("path", MODELS)
def test_onnx_reads_the_text_of_exported_models(path: Path) -> None:
    source = onnx.load(path, load_external_data=False)
    text = kv.print(path)
    parsed = onnx.parser.parse_model(text)
    for graph, other in [(parsed.graph, source.graph), *_functions(parsed, source)]:
        assert [_line(n) for n in graph.node] == [_line(n) for n in other.node]
    assert parsed.graph.input == _without_remarks(source.graph.input)
    names = {t.name for t in source.graph.initializer}
    assert {t.name for t in parsed.graph.initializer} == names
    source.graph.ClearField("value_info")
    assert kv.print(kv.load(path)) == text


def _functions(a: onnx.ModelProto, b: onnx.ModelProto) -> list[tuple[object, object]]:
    known = {(f.domain, f.name, f.overload): f for f in b.functions}
    return [(f, known[f.domain, f.name, f.overload]) for f in a.functions]


def _line(node: onnx.NodeProto) -> tuple[object, ...]:
    kinds = {a.name: (a.type, a.i, list(a.ints), a.f, a.s) for a in node.attribute}
    names = list(node.input), list(node.output)
    return node.name, node.domain, node.op_type, node.overload, names, kinds


def _without_remarks(values: object) -> list[onnx.ValueInfoProto]:
    kept = []
    for value in values:  # type: ignore[attr-defined]
        kept.append(onnx.ValueInfoProto())
        kept[-1].CopyFrom(value)
        kept[-1].ClearField("metadata_props")
        kept[-1].ClearField("doc_string")
    return kept


@pytest.fixture
def external(tmp_path: Path) -> Path:
    proto = model()
    _external(proto, tmp_path)
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_weights_that_are_missing_are_told_by_their_place(kvtool, external: Path) -> None:
    (external.parent / "w.bin").unlink()
    result = kvtool("print", external)
    assert result.exit_code == 0
    assert '"location": "w.bin"' in result.stdout and "sha256" not in result.stdout
    assert "is not in" in result.stderr and "in place of a digest" in result.stderr


def test_embedded_is_what_the_file_itself_says(kvtool, external: Path) -> None:
    before = kvtool("print", external, "--weights", "embedded")
    assert '["location": "w.bin"' in before.stdout and before.stderr == ""
    (external.parent / "w.bin").unlink()
    assert kvtool("print", external, "--weights", "embedded").stdout == before.stdout


def test_without_weights_small_values_stay(kvtool, tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    text = kvtool("print", tmp_path / "m.onnx", "--weights", "none").stdout
    assert "axes = {0,1}" in text and 'float[2,3] w = ["sha256": "?"]' in text


def test_data_that_is_cut_off_is_unreadable(kvtool, external: Path) -> None:
    with open(external.parent / "w.bin", "r+b") as file:
        file.truncate(8)
    result = kvtool("print", external)
    assert result.exit_code == 3 and "are needed, and the file has 8" in result.stderr


def test_the_text_never_replaces_a_file_of_the_model(kvtool, external: Path) -> None:
    result = kvtool("print", external, "-o", external.parent / "w.bin")
    assert result.exit_code == 2 and "belongs to the model" in result.stderr


def test_the_text_is_written_to_a_file(kvtool, external: Path) -> None:
    assert kvtool("print", external, "-o", external.parent / "m.txt").stdout == ""
    written = (external.parent / "m.txt").read_text()
    assert written == kvtool("print", external).stdout


def test_a_name_cannot_fake_a_line() -> None:
    proto = model()
    proto.graph.node[0].name = 'a"\n}\x1b[2J'
    lines = kv.print(proto).splitlines()
    assert '   ["a\\"\\n}\\x1b[2J"] t = Add (x, w)' in lines


@each("dtype", ["int4", "uint4", "float4_e2m1fn", "bfloat16", "float8_e4m3fn"])
def test_a_digest_is_of_values_whatever_field_holds_them(dtype: str) -> None:
    import ml_dtypes

    values = np.arange(7).astype(getattr(ml_dtypes, dtype))
    raw = numpy_helper.from_array(np.tile(values, 5), "w")
    typed = TensorProto(name="w", data_type=raw.data_type, dims=raw.dims)
    width = 2 if raw.data_type == TensorProto.BFLOAT16 else 1
    typed.int32_data.extend(np.frombuffer(raw.raw_data, f"<u{width}").tolist())
    texts = []
    for tensor in (raw, typed):
        proto = model()
        proto.graph.initializer.append(tensor)
        proto.graph.initializer[-1].name = "packed"
        texts.append(kv.print(proto))
    assert texts[0] == texts[1] and '[35] packed = ["sha256"' in texts[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"\x08\x0bdamaged", "`m.onnx` ", id="no model"),
        pytest.param(b"", "`m.onnx` is empty", id="an empty file"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
            "`m.onnx` is a Git LFS pointer",
            id="a pointer",
        ),
    ],
)
def test_git_has_a_text_of_what_is_no_model(
    kvtool, tmp_path: Path, content: bytes, said: str
) -> None:
    texts = []
    for directory in (tmp_path / "a", tmp_path / "b"):
        directory.mkdir()
        (directory / "m.onnx").write_bytes(content)
        assert kvtool("print", directory / "m.onnx").exit_code == 3
        result = kvtool("print", "--textconv", directory / "m.onnx")
        assert result.exit_code == 0, result.output
        texts.append(result.stdout)
    assert texts[0] == texts[1] and said in texts[0]
    assert f"\n# {len(content)} bytes, sha256 " in texts[0]
    assert all(line.startswith("# ") for line in texts[0].splitlines())


@pytest.mark.long
def test_json_has_the_lines_of_the_text(kvtool, tmp_path: Path) -> None:
    model = Path(__file__).resolve().parents[2] / "fixtures/models/native/llama_static.onnx"
    shown = json.loads(kvtool("print", model, "--weights", "none", "--format", "json").stdout)
    assert (shown["command"], shown["model"], shown["weights"]) == ("print", str(model), "none")
    assert "\n".join(shown["lines"]) == kv.print(model, weights="none")
    assert kvtool("print", model, "--format", "json", "-o", tmp_path).exit_code == 0
    written = json.loads((tmp_path / "llama_static.json").read_text())
    assert written["lines"] == kv.print(model).splitlines()
