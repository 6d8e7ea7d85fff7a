"""Where results and reports go: into directories, and nowhere that was not meant."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_kvtool.core.errors import UnwritableOutput
from onnx_kvtool.model_io import atomic
from onnx_kvtool.model_io.atomic import check_writable
from tests.grids import each

pytestmark = pytest.mark.long

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"
DECODER = MODELS / "native" / "llama_static.onnx"
EXPORTED = MODELS / "torch_static" / "hand" / "index_copy_bhsd__dynamo_op18.onnx"
OP = ("eval", "--op", "CumSum", "--input", "x=[1, 2]", "--input", "axis=0")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(DECODER, tmp_path / "decoder.opset24.onnx")
    shutil.copy(EXPORTED, tmp_path / "exported.onnx")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each(
    ("command", "name"),
    [
        pytest.param(
            ("lower", "decoder.opset24.onnx", "--no-verify", "-o"),
            "decoder.opset18.onnx",
            id="lower",
        ),
        pytest.param(
            ("lower", "decoder.opset24.onnx", "--target", "onnxruntime@1.17", "--no-verify", "-o"),
            "decoder.onnxruntime-1.17.onnx",
            id="lower for a release",
        ),
        pytest.param(
            ("raise", "exported.onnx", "--assume", "contiguous", "--no-verify", "-o"),
            "exported.raised.onnx",
            id="raise",
        ),
        pytest.param(("infer", "decoder.opset24.onnx", "-o"), "decoder.inferred.onnx", id="infer"),
        pytest.param(
            ("inspect", "exported.onnx", "--format", "html", "-o"),
            "exported.inspect.html",
            id="inspect",
        ),
        pytest.param(("inspect", "exported.onnx", "-o"), "exported.inspect.txt", id="as text"),
        pytest.param(
            ("check", "exported.onnx", "--isolated", "--exit-zero", "--format", "sarif", "-o"),
            "kvtool-check.sarif",
            id="check",
        ),
        pytest.param(
            ("check", "exported.onnx", "--isolated", "--write-baseline"),
            "kvtool-baseline.json",
            id="a baseline",
        ),
        pytest.param((*OP, "--save"), "CumSum.npz", id="eval"),
        pytest.param(("print", "exported.onnx", "-o"), "exported.txt", id="print"),
    ],
)
def test_a_directory_gets_a_file_with_the_name_of_the_default(
    kvtool, directory: Path, command: tuple[str, ...], name: str
) -> None:
    before = sorted(os.listdir(directory))
    result = kvtool(*command, f"out{os.sep}")
    assert result.exit_code == 0, result.stderr
    assert os.listdir("out") == [name]
    os.unlink(os.path.join("out", name))
    assert sorted(os.listdir(directory)) == before


@each(
    ("command", "output", "said"),
    [
        pytest.param("lower", "new/", "create the directory first", id="a directory to come"),
        pytest.param("lower", "new/a.onnx", "create the directory first", id="no such directory"),
        pytest.param("infer", "new/a.onnx", "create the directory first", id="infer"),
        pytest.param("inspect", "new/a.html", "create the directory first", id="inspect"),
        pytest.param("check", "new/a.sarif", "create the directory first", id="check"),
        pytest.param("raise", "exported.onnx/a.onnx", "Not a directory", id="below a file"),
        pytest.param("lower", "decoder.opset24.onnx", "--in-place", id="the input"),
        pytest.param("infer", "./decoder.opset24.onnx", "is the input", id="the input of infer"),
    ],
)
def test_a_wrong_path_is_refused_before_anything_is_read(
    kvtool, command: str, output: str, said: str
) -> None:
    Path("decoder.opset24.onnx").write_bytes(b"no model, which nobody gets to see")
    result = kvtool(command, "decoder.opset24.onnx", "-o", output)
    assert result.exit_code == 2
    assert output in result.stderr and said in result.stderr
    assert not os.path.exists("new")


def test_what_comes_from_standard_input_needs_a_name(kvtool) -> None:
    for command in ("lower", "raise", "infer", "inspect"):
        result = kvtool(command, "-", "-o", "out", input=b"")
        assert result.exit_code == 2
        assert "`out` is a directory, and what comes from standard input" in result.stderr


def test_a_file_in_the_directory_that_nobody_named_is_not_replaced(kvtool) -> None:
    other = Path("out", "decoder.opset18.onnx")
    other.write_bytes(b"something else")
    result = kvtool("lower", "decoder.opset24.onnx", "--no-verify", "-o", "out")
    assert result.exit_code == 2
    assert f"name the output with `-o {other}` to replace it" in result.stderr
    assert other.read_bytes() == b"something else"
    shutil.move("decoder.opset24.onnx", "decoder.opset18.onnx")
    result = kvtool("lower", "decoder.opset18.onnx", "--no-verify", "-o", ".")
    assert result.exit_code == 2 and "is the input" in result.stderr


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_directory_that_cannot_be_written_to(kvtool, monkeypatch, dry_run: bool) -> None:
    closed = os.path.realpath(os.curdir)
    allowed = os.access
    monkeypatch.setattr(
        atomic.os, "access", lambda path, mode: path != closed and allowed(path, mode)
    )
    flags = ["--dry-run"] if dry_run else []
    result = kvtool("lower", "decoder.opset24.onnx", "--no-verify", *flags)
    assert result.exit_code == (0 if dry_run else 2)
    if not dry_run:
        assert "cannot write `.`: Permission denied" in result.stderr
        assert "name another place with `-o OUT`" in result.stderr
    assert kvtool("lower", "decoder.opset24.onnx", "-o", "a.onnx", *flags).exit_code == 2


def test_a_read_only_file_stays(kvtool, monkeypatch) -> None:
    closed = os.path.realpath("exported.onnx")
    allowed = os.access
    monkeypatch.setattr(
        atomic.os, "access", lambda path, mode: path != closed and allowed(path, mode)
    )
    result = kvtool("lower", "exported.onnx", "--in-place")
    assert result.exit_code == 2 and "the file is read-only" in result.stderr


def test_a_pipe_is_a_place(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no named pipes")
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")
    with pytest.raises(UnwritableOutput, match="null character"):
        check_writable("a\0b")


def external(path: Path, location: str) -> None:
    """Write a model whose weight lies in a file, and that file."""
    weight = onnx.TensorProto(name="w", data_type=1, dims=[3])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    graph = onnx.parser.parse_graph("g (float[3] x) => (float[3] y) { y = Add (x, w) }")
    graph.initializer.append(weight)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    (path.parent / location).parent.mkdir(exist_ok=True)
    (path.parent / location).write_bytes(np.arange(3, dtype=np.float32).tobytes())


@each(
    "command",
    [
        ("check", "ext.onnx", "--isolated", "-o", "ext.onnx.data"),
        ("check", ".", "--isolated", "--format", "sarif", "-o", "ext.onnx.data"),
        ("check", "exported.onnx", "--isolated", "--write-baseline", "ext.onnx.data"),
        ("check", "ext.onnx", "--isolated", "--fix", "-o", "ext.onnx.data"),
        ("lower", "decoder.opset24.onnx", "--no-verify", "-o", "ext.onnx.data"),
        ("raise", "exported.onnx", "--no-verify", "-o", "ext.onnx.data"),
        ("infer", "exported.onnx", "-o", "ext.onnx.data"),
        ("inspect", "exported.onnx", "--format", "html", "-o", "ext.onnx.data"),
        ("diff", "exported.onnx", "decoder.opset24.onnx", "--format", "html", "-o", "deep/w.bin"),
        ("print", "exported.onnx", "-o", "ext.onnx.data"),
        ("eval", "exported.onnx", "--random", "--save", "deep/w.bin"),
    ],
)
def test_no_output_is_the_data_of_a_model(
    kvtool, directory: Path, command: tuple[str, ...]
) -> None:
    external(directory / "ext.onnx", "ext.onnx.data")
    external(directory / "other.onnx", "deep/w.bin")
    before = {path: (directory / path).read_bytes() for path in ("ext.onnx.data", "deep/w.bin")}
    result = kvtool(*command)
    assert result.exit_code == 2, result.stderr
    assert "belongs to the model" in result.stderr
    assert before == {path: (directory / path).read_bytes() for path in before}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no /dev/null")
def test_no_data_goes_beside_a_device(kvtool, directory: Path) -> None:
    external(directory / "ext.onnx", "ext.onnx.data")
    assert (
        kvtool("lower", "ext.onnx", "--opset", "17", "--no-verify", "-o", "/dev/null").exit_code
        == 0
    )
    assert not os.path.exists("/dev/ext.onnx.data")
