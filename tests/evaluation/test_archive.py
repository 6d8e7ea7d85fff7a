"""Values that are saved come back, whatever their type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.core.errors import UnwritableOutput
from onnx_kvtool.evaluation.literal import save_values
from onnx_kvtool.evaluation.spec import read_spec
from onnx_kvtool.ops.traits import DTYPE_NAMES, dtype_named
from onnx_kvtool.verification.inputs.values import any_bits
from tests.grids import each


@pytest.mark.long
@each("name", DTYPE_NAMES)
@each("shape", [(2, 3), (), (0, 5)])
def test_every_type_comes_back(tmp_path: Path, name, shape) -> None:
    dtype = dtype_named(name)
    assert dtype is not None
    array = any_bits(np.random.default_rng(3), dtype, shape)
    path = tmp_path / "x.npz"
    save_values(path, {"a/b": array})
    back = read_spec(f"{path}:a/b").value(dtype)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tolist() == array.tolist()


def test_names_of_any_kind_and_sequences(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    one, two = np.array([1]), np.array([[2.5]])
    save_values(path, {"file": one, "../x": two, "seq": [one, [two, None]], "none": None, "": one})
    with np.load(path) as arrays:
        assert {name: arrays[name].tolist() for name in arrays.files} == {
            "file": [1],
            "../x": [[2.5]],
            "seq[0]": [1],
            "seq[1][0]": [[2.5]],
            "": [1],
        }
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.npz"]


def test_equal_values_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_values(tmp_path / name, {"x": np.arange(5)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"before")
    with pytest.raises(UnwritableOutput, match="null character"):
        save_values(path, {"x": np.arange(5), "y": np.array(["a\0"], object)})
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.npz"]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutput, match="cannot write"):
        save_values(tmp_path / "no" / "x.npz", {"x": np.arange(5)})


def test_bfloat16_is_read_as_the_document_says(tmp_path: Path) -> None:
    dtype = ir.DataType.BFLOAT16.numpy()
    save_values(tmp_path / "x.npz", {"x": np.array([1.5], dtype)})
    assert np.load(tmp_path / "x.npz")["x"].view(dtype).tolist() == [1.5]
