"""Input that cannot be read: a message that names the file, exit code 3, and nothing written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import TensorProto, helper

LFS_POINTER = b"""version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""


def cache_model(**external_data: object) -> onnx.ModelProto:
    """A TensorScatter whose cache is an initializer; its data is outside if a place is given."""
    cache = onnx.numpy_helper.from_array(np.zeros((2, 7, 5), np.float32), "past")
    if external_data:
        cache.ClearField("raw_data")
        cache.data_location = TensorProto.EXTERNAL
        for key, value in external_data.items():
            cache.external_data.add(key=key, value=str(value))
    node = helper.make_node("TensorScatter", ["past", "update", "start"], ["present"], "ts")
    graph = helper.make_graph(
        [node],
        "main",
        [
            helper.make_tensor_value_info("update", TensorProto.FLOAT, [2, 3, 5]),
            helper.make_tensor_value_info("start", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("present", TensorProto.FLOAT, [2, 7, 5])],
        [cache],
    )
    opsets = [helper.make_opsetid("", 24)]
    return helper.make_model(graph, ir_version=11, opset_imports=opsets)


def with_dims(*dims: int) -> bytes:
    model = cache_model(location="past.data")
    model.graph.initializer[0].dims[:] = dims
    return model.SerializeToString()


def external(**external_data: object) -> bytes:
    return cache_model(**external_data).SerializeToString()


BYTES = 2 * 7 * 5 * 4
WHOLE = cache_model().SerializeToString()

CASES = [
    pytest.param(b"", "is empty", id="an empty file"),
    pytest.param(WHOLE[:-40], "is truncated", id="a truncated file"),
    pytest.param(LFS_POINTER, "is a Git LFS pointer", id="a pointer of Git LFS"),
    pytest.param(b"a few lines\nof prose\n", "looks like a text file", id="a text file"),
    pytest.param(bytes(range(255, 0, -1)), "is no ONNX model", id="arbitrary bytes"),
    pytest.param(
        external(location="../past.data"),
        "leaves the directory of the model",
        id="external data outside of the directory",
    ),
    pytest.param(external(location="/etc/passwd"), "is absolute", id="an absolute location"),
    pytest.param(
        external(location="past.data", offset=BYTES), "past.data", id="an offset at the end"
    ),
    pytest.param(
        external(location="past.data", offset=2**62), "past.data", id="an offset far past the end"
    ),
    pytest.param(
        external(location="past.data", length=BYTES + 4), "bytes", id="a length past the end"
    ),
    pytest.param(external(location="past.data", offset=-4), "offset", id="a negative offset"),
    pytest.param(external(location="past.data", length=-4), "length", id="a negative length"),
    pytest.param(with_dims(2, -7, 5), "dim -7 is negative", id="a negative dim"),
    pytest.param(with_dims(2**62, 7, 5), "exceeds", id="an absurd dim"),
]


@pytest.mark.parametrize(("content", "message"), CASES)
@pytest.mark.parametrize("verify", ["--verify", "--no-verify", None])
def test_unreadable_file(kvtool, tmp_path: Path, content, message, verify) -> None:
    (tmp_path / "past.data").write_bytes(bytes(BYTES))
    path = tmp_path / "in.onnx"
    path.write_bytes(content)
    result = kvtool("lower", path, *filter(None, [verify]))
    assert result.exit_code == 3, result.stderr
    first, *rest = result.stderr.splitlines()
    assert first.startswith("kvtool: error: ")
    assert message in first
    assert all(line.startswith("  help: ") for line in rest)
    assert result.stdout == ""
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["in.onnx", "past.data"]
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", WHOLE[:-40], LFS_POINTER])
def test_unreadable_standard_input(kvtool, content) -> None:
    result = kvtool("lower", "-", input=content)
    assert result.exit_code == 3, result.stderr
    assert "standard input" in result.stderr
    assert result.stdout == ""


def test_missing_file_and_directory(kvtool, tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.onnx", "does not exist"), (tmp_path, "is a directory")):
        result = kvtool("lower", path)
        assert result.exit_code == 3
        assert message in result.stderr


def test_external_data_that_is_missing_matters_where_it_is_needed(kvtool, tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    path.write_bytes(external(location="past.data"))
    assert kvtool("lower", path, "--verify").exit_code == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.onnx"]
    assert kvtool("lower", path, "--no-verify").exit_code == 0


@pytest.mark.long
def test_the_whole_model_of_these_cases_is_readable(kvtool, tmp_path: Path) -> None:
    (tmp_path / "past.data").write_bytes(bytes(BYTES))
    for name, content in (("whole", WHOLE), ("external", external(location="past.data"))):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        assert kvtool("lower", path).exit_code == 0
        assert (tmp_path / f"{name}.opset18.onnx").exists()
