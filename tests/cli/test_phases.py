"""`--phases` of `kvtool raise` and `kvtool lower`: a static model for each number of new tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from tests.grids import part

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2] / "fixtures"
GROWING = ROOT / "growing" / "llama_eager_dynamo18.onnx"
NATIVE = ROOT / "models" / "native" / "llama_static.onnx"
RAISE = ("raise", GROWING, "--capacity", "19", "--static")
LOWER = ("lower", NATIVE, "--opset", "18", "--static")

BART = ROOT / "growing" / "bart__dynamo_op18.onnx"

MODELS = {
    "behind four rows of an encoder": (
        *("raise", BART, "--capacity", "19", "--static"),
        *("--phases", "prefill=5,decode=1", "--dim", "s0=4"),
    ),
    "raised from growing caches": (*RAISE, "--phases", "prefill=5,decode=1"),
    "raised, in the other order": (*RAISE, "--phases", "decode=1,prefill=5"),
    "raised, two sequences": (*RAISE, "--phases", "prefill=5,decode=1", "--dim", "batch=2"),
    "lowered": (*LOWER, "--phases", "prefill=5,decode=1"),
}


def inputs(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Return the sizes of every input, 0 for one that is no number."""
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}


def locations(model: onnx.ModelProto) -> set[str]:
    entries = (e for t in model.graph.initializer for e in t.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


@part(8)
@pytest.mark.parametrize("arguments", MODELS.values(), ids=MODELS)
def test_each_phase_is_static_proven_and_reads_the_one_data_file(
    kvtool, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    result = kvtool(*arguments, "-o", tmp_path / "pair", "--format", "json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["output"] == str(tmp_path / "pair")
    stem = arguments[1].stem
    tokens = {phase["name"]: phase["tokens"] for phase in report["phases"]}
    assert tokens == {"prefill": 5, "decode": 1}
    batch = 2 if "batch=2" in arguments else 1
    for phase in report["phases"]:
        assert phase["verification"]["status"] == "equal"
        assert phase["output"] == str(tmp_path / "pair" / f"{stem}.{phase['name']}.onnx")
        model = onnx.load(phase["output"], load_external_data=False)
        sizes = inputs(model)
        assert sizes["input_ids"] == [batch, phase["tokens"]]
        assert all(all(size) for size in sizes.values())
        assert locations(model) == {f"{stem}.data"}
        onnx.checker.check_model(phase["output"])
    files = sorted(path.name for path in (tmp_path / "pair").iterdir())
    assert files == sorted([f"{stem}.data", f"{stem}.decode.onnx", f"{stem}.prefill.onnx"])
    # Both phases read the same weights, so that the file holds each once.
    weights = (tensor for tensor in onnx.load(arguments[1]).graph.initializer)
    read = sum(len(tensor.raw_data) for tensor in weights if len(tensor.raw_data) >= 1024)
    assert (tmp_path / "pair" / f"{stem}.data").stat().st_size < 1.7 * read


def test_weights_of_a_file_are_in_the_one_file_of_the_pair(kvtool, tmp_path: Path) -> None:
    model = onnx.load(GROWING)
    large = [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= 1024]
    for tensor, name in zip(large, "abcdefgh", strict=False):
        onnx.external_data_helper.set_external_data(tensor, f"{name}.bin")
    onnx.save(model, tmp_path / "m.onnx")
    assert (tmp_path / "a.bin").exists()
    made = kvtool(
        "raise", tmp_path / "m.onnx", "--capacity", "19", "--static", "-o", tmp_path / "pair",
        "--phases", "prefill=5,decode=1", "--no-verify",
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr
    shutil.rmtree(tmp_path / "pair" / "none", ignore_errors=True)
    for path in ("a.bin", "m.onnx"):
        (tmp_path / path).unlink()
    found = ir.load(tmp_path / "pair" / "m.decode.onnx").graph.initializers
    same = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(GROWING).graph.initializer}
    kept = [name for name in found if name in same and same[name].nbytes >= 1024]
    assert len(kept) > 5
    for name in kept:
        value = found[name].const_value
        assert value is not None and value.numpy().tobytes() == same[name].tobytes()


REFUSED = {
    "not static": (
        ("raise", GROWING, "--capacity", "19", "--phases", "p=5", "-o", "OUT"),
        "add `--static`",
    ),
    "no place": ((*RAISE, "--phases", "p=5"), "a file into a directory"),
    "a stream": ((*RAISE, "--phases", "p=5", "-o", "-"), "a file into a directory"),
    "a file": ((*RAISE, "--phases", "p=5", "-o", NATIVE), "is a file, and"),
    "no number": ((*RAISE, "--phases", "p", "-o", "OUT"), "expected `NAME=INT`"),
    "a name with a separator": ((*RAISE, "--phases", "a/b=5", "-o", "OUT"), "letters and digits"),
    "a name twice": ((*RAISE, "--phases", "p=5,p=6", "-o", "OUT"), "both 5 and 6"),
    "a size as well": (
        (*RAISE, "--phases", "p=5", "--dim", "seq=5", "-o", "OUT"),
        "`--phases` and `--dim` both say",
    ),
    "a place for weights": (
        (*RAISE, "--phases", "p=5", "--external-data", "link", "-o", "OUT"),
        "`--external-data` places",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_usage(kvtool, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    given = [str(tmp_path / "pair") if part == "OUT" else part for part in arguments]
    result = kvtool(*given)
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_phase_that_is_refused_leaves_nothing(kvtool, tmp_path: Path) -> None:
    result = kvtool(
        *RAISE, "--phases", "decode=1,prefill=20", "--no-verify", "-o", tmp_path / "pair"
    )
    assert result.exit_code == 1
    assert "`prefill`, with 20 new tokens" in result.stderr
    assert not list(tmp_path.iterdir())


def test_what_follows_the_length_of_a_mask_is_not_fixed_behind_it(kvtool, tmp_path: Path) -> None:
    model, raised = onnx.load(GROWING), tmp_path / "raised.onnx"
    mask = next(value for value in model.graph.input if value.name == "attention_mask")
    mask.type.tensor_type.shape.dim[1].dim_param = "past + seq"
    onnx.save(model, tmp_path / "m.onnx")
    made = kvtool("raise", tmp_path / "m.onnx", *RAISE[2:4], "--no-verify", "-o", raised)
    assert made.exit_code == 0
    result = kvtool("lower", raised, "--static", "--phases", "p=5", "-o", tmp_path / "pair")
    assert result.exit_code == 2
    assert "the size `past`" in result.stderr


OTHERS = ("llama_static.data", "llama_static.prefill.onnx", "llama_static.decode.onnx")


@part(3)
@pytest.mark.parametrize("name", OTHERS)
def test_another_file_is_not_replaced(kvtool, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"mine")
    made = kvtool(*LOWER, "--no-verify", "--phases", "prefill=5,decode=1", "-o", tmp_path)
    assert made.exit_code == 2
    assert f"{name}` exists and contains something else" in made.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"mine"}


def test_the_same_again_is_written_again(kvtool, tmp_path: Path) -> None:
    for _ in range(2):
        made = kvtool(*LOWER, "--no-verify", "--phases", "prefill=5,decode=1", "-o", tmp_path)
        assert made.exit_code == 0, made.stderr


def test_a_dry_run_writes_nothing(kvtool, tmp_path: Path) -> None:
    result = kvtool(*LOWER, "--phases", "prefill=5", "-o", tmp_path / "pair", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert not list(tmp_path.iterdir())
