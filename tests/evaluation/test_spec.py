"""SPEC: files in every form, literals, element types in front, and what is wrong with each."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.evaluation.spec import read_spec
from tests.grids import each

X = np.arange(6, dtype=np.float32).reshape(2, 3)
BF16 = np.array([[1.5, -2]], ml_dtypes.bfloat16)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("big.npy", X.astype(">f4"))
    np.save("fortran.npy", np.asfortranarray(X))
    np.save("text.npy", np.array(["ab", "c"]))
    np.save("bytes.npy", np.array([b"ab", b"c"]))
    np.save("raw.npy", BF16.view("V2"))
    np.save("bits.npy", BF16.view(np.uint16))
    np.save("records.npy", np.zeros(2, [("a", "f4"), ("b", "i4")]))
    np.save("dates.npy", np.zeros(2, "M8[s]"))
    np.save("objects.npy", np.array([{}, 1], object), allow_pickle=True)
    np.savez("x.npz", **{"in:x": X, "y": X + 1})
    np.savez("empty.npz")
    Path("pickled.npz").write_bytes(b"\x80\x04K\x01.")
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:-4])
    Path("cut.npz").write_bytes(Path("x.npz").read_bytes()[:-40])
    Path("none.npy").write_bytes(b"")
    Path("huge.npy").write_bytes(
        Path("x.npy").read_bytes().replace(b"(2, 3), }" + b" " * 12, b"(2000000000000, 3), }")
    )
    Path("x.pb").write_bytes(numpy_helper.from_array(X).SerializeToString())
    Path("bf16.pb").write_bytes(numpy_helper.from_array(BF16).SerializeToString())
    Path("text.pb").write_bytes(
        numpy_helper.from_array(np.array(["ab"], object)).SerializeToString()
    )
    outside = numpy_helper.from_array(X)
    outside.ClearField("raw_data")
    outside.data_location = onnx.TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="/etc/passwd")
    Path("outside.pb").write_bytes(outside.SerializeToString())
    short = numpy_helper.from_array(X)
    short.raw_data = b"123"
    Path("short.pb").write_bytes(short.SerializeToString())
    Path("noise.pb").write_bytes(bytes(range(255, 0, -1)))
    Path("typeless.pb").write_bytes(onnx.TensorProto(name="x").SerializeToString())
    Path("folder.npy").mkdir()


@each(
    ("text", "declared", "expected"),
    [
        pytest.param("x.npy", None, X, id="a .npy file"),
        pytest.param("./x.npy", "float32", X, id="a path, of the declared type"),
        pytest.param("float32:x.npy", None, X, id="a file with the type that it has in front"),
        pytest.param("big.npy", None, X, id="the other byte order"),
        pytest.param("fortran.npy", None, X, id="the other order of elements"),
        pytest.param("x.npz:in:x", None, X, id="an array of a .npz file, with a colon in its key"),
        pytest.param("x.npz:y", None, X + 1, id="another array of it"),
        pytest.param("x.pb", None, X, id="a TensorProto"),
        pytest.param("bf16.pb", None, BF16, id="a TensorProto of a type that numpy lacks"),
        pytest.param("raw.npy", "bfloat16", BF16, id="raw bytes of the declared type"),
        pytest.param("bfloat16:raw.npy", None, BF16, id="raw bytes with a type in front"),
        pytest.param("bfloat16:bits.npy", None, BF16, id="bits with a type in front"),
        pytest.param("text.npy", None, np.array(["ab", "c"], object), id="text"),
        pytest.param("bytes.npy", None, np.array(["ab", "c"], object), id="text as bytes"),
        pytest.param("text.pb", None, np.array(["ab"], object), id="text in a TensorProto"),
        pytest.param("[[1, 2]]", None, np.array([[1, 2]]), id="a literal by itself"),
        pytest.param("[1]", "float16", np.array([1], np.float16), id="a literal, declared"),
        pytest.param(
            "int8:[1]", "int64", np.array([1], np.int8), id="the type in front comes first"
        ),
        pytest.param("bfloat16: [[1.5, -2]]", None, BF16, id="space after the type"),
        pytest.param("-5", None, np.array(-5), id="a scalar"),
        pytest.param("true", None, np.array(True), id="a flag"),
        pytest.param('["x.npz:y"]', None, np.array(["x.npz:y"], object), id="text like an archive"),
        pytest.param('"x.npy"', None, np.array("x.npy", object), id="text that looks like a file"),
    ],
)
def test_value(text, declared, expected) -> None:
    dtype = None if declared is None else ir.DataType[declared.upper().replace("FLOAT32", "FLOAT")]
    found = read_spec(text).value(dtype)
    assert found.dtype == expected.dtype
    assert found.dtype.isnative
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@each(
    ("text", "message"),
    [
        pytest.param("no.npy", "`no.npy` does not exist", id="no .npy file"),
        pytest.param("no.npz:x", "`no.npz` does not exist", id="no .npz file"),
        pytest.param("no.pb", "`no.pb` does not exist", id="no .pb file"),
        pytest.param("folder.npy", "is a directory", id="a directory"),
        pytest.param("cut.npy", "`cut.npy` cannot be read", id="a truncated .npy file"),
        pytest.param("cut.npz:y", "`cut.npz` cannot be read", id="a truncated .npz file"),
        pytest.param("none.npy", "`none.npy` cannot be read", id="an empty file"),
        pytest.param("huge.npy", "`huge.npy` cannot be read", id="more elements than memory"),
        pytest.param("objects.npy", "`objects.npy` cannot be read", id="pickled objects"),
        pytest.param("pickled.npz:x", "`pickled.npz` cannot be read", id="a pickle"),
        pytest.param("noise.pb", "is no TensorProto", id="bytes that are no TensorProto"),
        pytest.param("typeless.pb", "it has no element type", id="a TensorProto without a type"),
        pytest.param("outside.pb", "refers to another file", id="values in another file"),
        pytest.param("short.pb", "`short.pb` cannot be read", id="too few values"),
    ],
)
def test_a_file_that_cannot_be_read(text, message) -> None:
    with pytest.raises(UnreadableModel, match=message):
        read_spec(text).value(None)


@each(
    ("text", "declared", "message", "help"),
    [
        pytest.param("x.npz", None, "names no array", "x.npz:KEY", id="no key"),
        pytest.param("x.npz:in:y", None, "no array `in:y`", "did you mean `x.npz:in:x`?", id="key"),
        pytest.param("empty.npz:x", None, "no array `x`", "it is empty", id="an empty archive"),
        pytest.param("abc", None, "neither a file", None, id="a word"),
        pytest.param("float32:abc", None, "neither a file", None, id="a word with a type"),
        pytest.param("", None, "neither a file", None, id="nothing"),
        pytest.param("[1, 2", None, "is no JSON", None, id="broken JSON"),
        pytest.param(
            "floot32:[1]", None, "no element type `floot32`", "float32", id="a wrong type"
        ),
        pytest.param("zzz:[1]", None, "no element type `zzz`", "there are", id="a far type"),
        pytest.param("int64:x.npy", None, "float32, expected int64", None, id="another type"),
        pytest.param("raw.npy", None, "raw elements of 2 bytes", "bfloat16:", id="raw, unknown"),
        pytest.param(
            "raw.npy", "float32", "raw elements of 2 bytes, exp", None, id="raw, too wide"
        ),
        pytest.param("raw.npy", "string", "raw elements of 2 bytes, exp", None, id="raw for text"),
        pytest.param("uint8:bits.npy", None, "uint16, expected uint8", None, id="bits, narrower"),
        pytest.param("float16:bits.npy", None, "uint16, expected float16", None, id="a numpy type"),
        pytest.param("records.npy", "float64", "records", None, id="records"),
        pytest.param("dates.npy", None, "datetime64", None, id="dates"),
    ],
)
def test_a_spec_that_is_wrong(text, declared, message, help) -> None:
    dtype = {
        None: None,
        "float32": ir.DataType.FLOAT,
        "float64": ir.DataType.DOUBLE,
        "string": ir.DataType.STRING,
    }[declared]
    with pytest.raises(UsageError, match=message) as caught:
        read_spec(text).value(dtype)
    assert help is None or help in (caught.value.help or "")
