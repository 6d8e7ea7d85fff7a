"""`kvtool diff`: what it prints, in which forms, and what it reads."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.parser
import pytest
from onnx import numpy_helper

import onnx_kvtool as kv
from onnx_kvtool.commands import diff as diff_command

pytestmark = pytest.mark.long

NATIVE = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "native"
LLAMA = NATIVE / "llama_static.onnx"

DECODER = """
    <ir_version: 12, opset_import: ["": 24]>
    decoder (float[2, 3, 17, 5] past, float[2, 3, 1, 5] update, int64[2] start)
        => (float[2, 3, 17, 5] present) {
        [cache] present = TensorScatter (past, update, start)
    }
"""

EXTERNAL = """
    <ir_version: 10, opset_import: ["": 18]>
    main (float[B, 5] x) => (float[B, 7] z)
    <float[5, 7] w = ["location": "a.bin", "offset": "0", "length": "140"]>
    { z = MatMul (x, w) }
"""


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights are 0 to 34, in a file of their own."""
    onnx.save(onnx.parser.parse_model(EXTERNAL), tmp_path / "a.onnx")
    (tmp_path / "a.bin").write_bytes(np.arange(35, dtype=np.float32).tobytes())
    return tmp_path / "a.onnx"


def _moved(source: Path, name: str, values: np.ndarray) -> Path:
    """Write the same model with other values in the file `name`."""
    text = EXTERNAL.replace("a.bin", f"{name}.bin").replace('"offset": "0"', '"offset": "60"')
    target = source.with_name(f"{name}.onnx")
    onnx.save(onnx.parser.parse_model(text), target)
    target.with_suffix(".bin").write_bytes(bytes(60) + values.astype(np.float32).tobytes())
    return target


def test_a_file_that_was_moved_is_told_and_is_no_difference(kvtool, external: Path) -> None:
    result = kvtool("diff", external, _moved(external, "b", np.arange(35)))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == [
        "external data: a.bin -> b.bin (weights that are the same stay so)"
    ]


def test_weights_in_files_are_compared_by_value(kvtool, external: Path) -> None:
    values = np.arange(35.0)
    values[3], values[10] = 3.5, 8
    answer = json.loads(
        kvtool("diff", external, _moved(external, "b", values), "--format", "json").stdout
    )
    (change,) = answer["weights"]["changed"]
    assert (change["name"], change["what"]) == ("w", "values")
    assert (change["max_abs_diff"], change["max_rel_diff"]) == (2.0, 0.2)
    assert (change["changed_elements"], change["elements"]) == (2, 35)
    assert answer["status"] == "different" and change["old"] != change["new"]


def test_an_embedded_copy_is_the_same(kvtool, external: Path) -> None:
    embedded = external.with_name("embedded.onnx")
    onnx.save(onnx.load(external), embedded)
    assert kvtool("diff", external, embedded).exit_code == 0
    assert kv.diff(external, embedded).storage[0].new == []


@pytest.mark.parametrize(
    ("weights", "code"), [("values", 3), ("digest", 3), ("embedded", 1), ("none", 0)]
)
def test_what_needs_a_file_that_is_missing(kvtool, external: Path, weights, code) -> None:
    other = _moved(external, "b", np.arange(35))
    (external.parent / "a.bin").unlink()
    result = kvtool("diff", external, other, "--weights", weights)
    assert result.exit_code == code, result.output
    if code == 3:
        assert "its data file `a.bin` is not in" in result.stderr
        assert "--weights embedded" in result.stderr


def test_the_capacity_of_a_cache_is_told_of_the_cache() -> None:
    longer = onnx.parser.parse_model(DECODER.replace("17", "64"))
    report = kv.diff(onnx.parser.parse_model(DECODER), longer)
    assert [(c.name, c.what, c.old, c.new) for c in report.caches] == [("past", "capacity", 17, 64)]
    told = [(c.place, c.name, c.what, c.old[2], c.new[2]) for c in report.interface]
    assert told == [("input", "past", "shape", 17, 64), ("output", "present", "shape", 17, 64)]
    assert not (report.added or report.removed or report.changed or report.weights)


def test_a_lowering_is_told_as_replacements(kvtool, tmp_path: Path) -> None:
    lowered, _ = kv.lower(LLAMA, opset=18, verify=False)
    report = kv.diff(LLAMA, lowered)
    told = {}
    for found in report.replaced:
        key = " ".join(sorted(n.location.op or "" for n in found.removed))
        told[key] = told.get(key, 0) + 1
    assert told == {
        "": 1,
        "Attention": 2,
        "RMSNormalization": 1,
        "RotaryEmbedding": 4,
        "TensorScatter": 4,
        "com.microsoft::SkipSimplifiedLayerNormalization": 4,
    }
    (shared,) = (r for r in report.replaced if r.is_shared)
    assert not shared.removed and not report.added and not report.removed
    assert report.weights_same == 23 and {w.what for w in report.weights} == {"added"}
    kv.save(lowered, tmp_path / "l.onnx")
    lines = kvtool("diff", LLAMA, tmp_path / "l.onnx").stdout.splitlines()
    assert "opsets: opset 24 -> 18; com.microsoft 1 -> none" in lines
    assert any(re.match(r"  TensorScatter +ScatterND +4 +model/layers\.\{0,1\}", x) for x in lines)


def test_all_outputs_of_a_node_are_replaced_together() -> None:
    """What makes the caches of GroupQueryAttention stands in its place, and did not just come."""
    path = NATIVE.parent / "genai" / "genai_llama_fp32_cpu.onnx"
    lowered, _ = kv.lower(path, target="openvino", verify=False)
    report = kv.diff(path, lowered)
    assert not report.added and not report.removed
    groups = [r for r in report.replaced if not r.is_shared]
    told = {(g.removed[0].location.op or "").rpartition("::")[2]: g for g in groups}
    assert [len(g.removed) for g in groups] == [1] * len(groups)
    made = [n.location.op for n in told["GroupQueryAttention"].added]
    assert made.count("ScatterND") == 2 and made.count("Softmax") == 1
    back = kv.diff(lowered, path)
    assert not back.added and not back.removed


def test_a_raising_is_told_with_its_caches() -> None:
    name = "perbatch_index_put_bhsd_sharedB__dynamo_op18.onnx"
    hand = NATIVE.parent / "torch_static" / "hand" / name
    raised, _ = kv.raise_(hand, verify=False)
    report = kv.diff(hand, raised)
    assert [(c.name, c.what, c.old, c.new) for c in report.caches] == [
        ("cache", "kind", "scatter_nd", "tensor_scatter"),
        ("cache", "in_place", False, True),
    ]
    (replaced,) = report.replaced
    assert [n.location.op for n in replaced.added] == ["TensorScatter"]
    assert len(replaced.removed) == 24 and replaced.removed[-1].location.node == "node_index_put"


def test_layers_that_change_alike_are_one_row(kvtool, tmp_path: Path) -> None:
    model = onnx.load(LLAMA)
    for node in model.graph.node:
        if node.op_type == "Attention":
            node.attribute.append(onnx.helper.make_attribute("novelty", 2.5))
    onnx.save(model, tmp_path / "m.onnx")
    result = kvtool("diff", LLAMA, tmp_path / "m.onnx")
    assert result.exit_code == 1
    row = result.stdout.splitlines()[-1].split("  ")
    assert [cell.strip() for cell in row if cell.strip()] == [
        "Attention", "2", "model/layers.{0,1}/self_attn/Attention_node_{14,40}", "novelty", "none",
        "2.5",
    ]  # fmt: skip


def test_how_much_each_kind_of_weight_moved_is_told_of_all(kvtool, tmp_path: Path) -> None:
    model = onnx.load(LLAMA)
    kinds = set()
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
            kinds.add(re.sub(r"\d+", "", tensor.name))
            values = numpy_helper.to_array(tensor) * np.float32(1.01)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, tmp_path / "tuned.onnx")
    lines = kvtool("diff", LLAMA, tmp_path / "tuned.onnx").stdout.splitlines()
    assert len([line for line in lines if "  values  " in line]) == len(kinds) > 10


BRANCHES = """
    <ir_version: 10, opset_import: ["": 18]>
    main (bool c, bool d, float[3] x) => (float[3] y) {
        y = If (c) <
            then_branch = yes () => (float[3] a) { [step] p = THEN (x) a = Exp (p) },
            else_branch = no () => (float[3] b) {
                b = If (d) <
                    then_branch = deep () => (float[3] e) { e = DEEP (x) },
                    else_branch = other () => (float[3] f) { [end] f = ELSE (x) }
                >
            }
        >
    }
"""


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        pytest.param({"THEN": "Neg"}, ["#0.then_branch/step"], id="of an If"),
        pytest.param({"DEEP": "Neg"}, ["#0.else_branch/#0.then_branch/#0"], id="of an If within"),
        pytest.param(
            {"THEN": "Neg", "ELSE": "Neg"},
            ["#0.then_branch/step", "#0.else_branch/#0.else_branch/end"],
            id="both, on one line",
        ),
        pytest.param({}, [], id="none"),
    ],
)
def test_the_branch_of_a_change_is_named(
    kvtool, tmp_path: Path, changes: dict[str, str], names: list[str]
) -> None:
    same = dict.fromkeys(("THEN", "ELSE", "DEEP"), "Identity")
    for side, operators in (("old", same), ("new", same | changes)):
        text = BRANCHES
        for word, operator in operators.items():
            text = text.replace(word, operator)
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{side}.onnx")
    result = kvtool("diff", tmp_path / "old.onnx", tmp_path / "new.onnx")
    assert result.exit_code == bool(names)
    for name in names:
        assert name in result.stdout
    assert len(result.stdout.splitlines()) == (5 if names else 1)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_what_quantizing_does_to_every_layer_is_told_in_a_few_lines(
    kvtool, tmp_path: Path, kind: str
) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    gpt2 = NATIVE.parent / "concat" / "gpt2_dynamic__ts_op17.onnx"
    source, target = str(gpt2), str(tmp_path / "quantized.onnx")
    if kind == "dynamic":
        quantization.quantize_dynamic(source, target)
    else:
        with np.load(gpt2.with_suffix(".npz")) as run:
            feeds = [{k[3:]: run[k] for k in run.files if k.startswith("in:")}]

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
            def get_next(self) -> dict[str, np.ndarray] | None:
                return feeds.pop() if feeds else None

        quantization.quantize_static(source, target, Reader())
    result = kvtool("diff", source, target)
    assert result.exit_code == 1 and len(result.stdout.splitlines()) < 40, result.stdout
    assert "\n  m.transformer.wte.weight and " in result.stdout


def test_another_numbering_of_all_names_is_renaming(kvtool) -> None:
    """The two were exported one after the other: numbers in names differ by 2."""
    report = kv.diff(LLAMA, NATIVE / "llama_static_fp16.onnx")
    assert not (report.added or report.removed or report.changed or report.replaced)
    assert {w.what for w in report.weights} == {"dtype"}
    assert {r.kind for r in report.renamed} == {"node", "value"}
    lines = kvtool("diff", LLAMA, NATIVE / "llama_static_fp16.onnx").stdout.splitlines()
    (renamed,) = (i for i, line in enumerate(lines) if line.startswith("renamed"))
    assert len(lines) - renamed < 6


def test_json_has_the_keys_of_the_contract(kvtool) -> None:
    result = kvtool("diff", LLAMA, LLAMA, "--format", "json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (answer["schema_version"], answer["command"], answer["status"]) == (1, "diff", "same")
    assert answer["nodes"] == {"added": [], "removed": [], "changed": [], "replaced": []}
    assert answer["weights"] == {"same": 23, "changed": []}
    for key in ("opsets", "interface", "metadata", "caches"):
        assert answer[key] == []


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    model = onnx.load(LLAMA)
    model.graph.node[3].name = "a|b`c\n</details><script>\x1b[2J"
    model.producer_name = "<b>*x*</b>|"
    onnx.save(model, tmp_path / "hostile.onnx")
    return tmp_path / "hostile.onnx"


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_names_of_a_model_cannot_pretend_to_be_markup(kvtool, hostile: Path, form: str) -> None:
    text = kvtool("diff", LLAMA, hostile, "--format", form).stdout
    assert "\x1b" not in text
    if form == "markdown":
        cells = [line for line in text.splitlines() if "script" in line]
        fenced = re.compile(r"`` .*a\\\|b`c\\n</details><script>.* ``")
        assert cells and all(map(fenced.search, cells))
        assert "<b>\\*" not in text
    if form == "html":
        assert "<script" not in text and "&lt;script&gt;" in text
        assert text.startswith("<!DOCTYPE html>")


def test_the_page_names_both_models_and_breaks_no_arrow(kvtool, tmp_path: Path) -> None:
    older = tmp_path / "older.onnx"
    model = onnx.load(LLAMA)
    model.ir_version = 8
    onnx.save(model, older)
    page = kvtool("diff", LLAMA, older, "--format", "html").stdout
    title = f"{LLAMA.name} and {older.name}"
    assert f'<h1>{title}: <span class="status different">different</span></h1>' in page
    assert f"<title>{title} - kvtool diff</title>" in page
    assert "<p>ir_version: 11&nbsp;&rarr;&nbsp;8</p>" in page
    assert "-&gt;" not in page
    same = kvtool("diff", LLAMA, LLAMA, "--format", "html").stdout
    assert f'<h1>{LLAMA}: <span class="status same">same</span></h1>' in same


def test_the_report_is_written_to_a_file(kvtool, tmp_path: Path, hostile: Path) -> None:
    shown = kvtool("diff", LLAMA, hostile, "--format", "markdown").stdout
    result = kvtool("diff", LLAMA, hostile, "--format", "markdown", "-o", tmp_path / "d.md")
    assert (result.exit_code, result.stdout) == (1, "")
    assert (tmp_path / "d.md").read_text() == shown
    refused = kvtool("diff", LLAMA, hostile, "-o", hostile)
    assert refused.exit_code == 2


def test_unreadable_and_doubled_input(kvtool, tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    assert kvtool("diff", LLAMA, tmp_path / "empty.onnx").exit_code == 3
    assert kvtool("diff", LLAMA, tmp_path / "none.onnx").exit_code == 3
    assert kvtool("diff", "-", "-").exit_code == 2
    assert kvtool("diff", LLAMA).exit_code == 2


def test_one_model_may_come_from_standard_input(kvtool) -> None:
    assert kvtool("diff", "-", LLAMA, input=LLAMA.read_bytes()).exit_code == 0


GIT = ("models/a.onnx", str(LLAMA), "0" * 40, "100644")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        pytest.param((*GIT, str(LLAMA), "1" * 40, "100644"), ["same:"], id="a file"),
        pytest.param(
            ("--weights", "none", *GIT, str(LLAMA), "1" * 40, "100755"), ["same:"], id="options"
        ),
        pytest.param(
            (*GIT, str(LLAMA), "1" * 40, "100644", "models/b.onnx", "similarity index 90%"),
            ["same:", "models/b.onnx"],
            id="a file that was renamed",
        ),
        pytest.param(
            ("models/a.onnx", "/dev/null", ".", ".", str(LLAMA), "1" * 40, "100644"),
            ["added: models/a.onnx\nmodel: opset 24, "],
            id="a file that came",
        ),
        pytest.param(
            (*GIT, "/dev/null", ".", "."),
            ["removed: models/a.onnx\nmodel: opset 24, "],
            id="a file that went",
        ),
    ],
)
def test_git_calls_it_for(kvtool, arguments: tuple[str, ...], lines: list[str]) -> None:
    result = kvtool("diff", *arguments)
    assert result.exit_code == 0, result.output
    assert "models/a.onnx" in result.stdout.splitlines()[0]
    for line in lines:
        assert line in result.stdout


@pytest.mark.parametrize("nothing", ["/dev/null", "nul", "NUL"])
def test_git_for_windows_calls_it_for_a_file_that_came(
    kvtool, monkeypatch: pytest.MonkeyPatch, nothing: str
) -> None:
    monkeypatch.setattr(os, "devnull", "nul")
    result = kvtool("diff", "m.onnx", nothing, ".", ".", LLAMA, "1" * 40, "100644")
    assert (result.exit_code, "added: " in result.stdout) == (0, True), result.output


def test_git_has_each_model_read_once(kvtool, tmp_path: Path, monkeypatch) -> None:
    """Whether its data file is there as well, which git does not hand over, is seen on the way."""
    seen: list[str] = []
    real = diff_command.read

    def read(path: str) -> object:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(diff_command, "read", read)
    model = onnx.load(LLAMA)
    onnx.external_data_helper.convert_model_to_external_data(
        model, location="model.bin", size_threshold=100
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    (tmp_path / "model.bin").unlink()
    result = kvtool("diff", "m.onnx", path, "0" * 40, "100644", path, "1" * 40, "100644")
    assert (result.exit_code, seen) == (0, [str(path)] * 2), result.output
    assert kvtool("diff", path, path).exit_code == 3, "not from git, the data is needed"


def test_two_numbers_of_one_bit_of_difference() -> None:
    texts = []
    for value in (1.0, np.nextafter(np.float32(1), np.float32(2))):
        model = onnx.parser.parse_model(DECODER)
        held = np.full((3, 11), value, np.float32)
        held[0, 0] = np.nan
        model.graph.initializer.append(numpy_helper.from_array(held, "w"))
        texts.append(model)
    (change,) = kv.diff(*texts).weights
    assert change.changed == 32 and change.max_abs_diff == pytest.approx(1.19e-7, rel=1e-2)
    assert kv.diff(texts[0], texts[0]).status == "same"


def test_a_weight_that_became_infinite_is_null_in_json(kvtool, tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", np.inf)):
        model = onnx.parser.parse_model(DECODER)
        held = np.full((3, 11), value, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(held, "w"))
        onnx.save(model, tmp_path / f"{name}.onnx")
    result = kvtool("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--format", "json")
    (change,) = json.loads(result.stdout)["weights"]["changed"]
    assert change["max_abs_diff"] is None and change["changed_elements"] == 33


PARTS = {
    "a renamed input": (
        ("past, float[2, 3, 1, 5] update", "past, float[2, 3, 1, 5] rows"),
        ["interface"],
    ),
    "another size": (("17", "19"), ["interface", "caches"]),
    "another opset": (('"": 24', '"": 25'), ["opset", "caches"]),
    "another name of the node": (("[cache]", "[own]"), ["names", "caches"]),
    "an attribute": (
        ("TensorScatter (", 'TensorScatter <mode = "circular"> ('),
        ["caches", "nodes"],
    ),
}


@pytest.mark.parametrize("case", [*PARTS])
def test_the_exit_code_follows_from_the_parts_that_count(case: str, kvtool, tmp_path: Path) -> None:
    (old, new), parts = PARTS[case]
    text = DECODER.replace(old, new)
    if case == "a renamed input":
        text = text.replace("update, start)", "rows, start)")
    paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path, content in zip(paths, (DECODER, text), strict=True):
        onnx.save(onnx.parser.parse_model(content), path)
    found = kv.diff(*paths)
    assert {*found.differs} <= {*parts} and parts[0] in found.differs
    for part in ("interface", "caches", "opset", "metadata", "nodes", "weights", "names"):
        code = int(part in found.differs)
        assert kvtool("diff", *paths, "--fail-on", part).exit_code == code, part
        assert kv.diff(*paths, fail_on=[part]).exit_code == code
    both = ",".join(("weights", parts[0]))
    assert kvtool("diff", *paths, "--fail-on", both).exit_code == 1
    assert kvtool("diff", *paths, "--fail-on", both, "--exit-zero").exit_code == 0
    shown = json.loads(kvtool("diff", *paths, "--exit-zero", "--format", "json").stdout)
    assert shown["status"] == "different" and shown["differs"] == found.differs


def test_a_part_that_there_is_not_is_wrong_usage(kvtool) -> None:
    result = kvtool("diff", LLAMA, LLAMA, "--fail-on", "interface,cache")
    assert result.exit_code == 2 and "caches" in result.stderr
    with pytest.raises(kv.UsageError, match="`fail_on` is `cache`"):
        kv.diff(LLAMA, LLAMA, fail_on=["cache"])
