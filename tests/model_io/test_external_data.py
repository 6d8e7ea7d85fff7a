"""External data is read from where it may be read, and from nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import AttributeProto, TensorProto, helper

from onnx_kvtool.core import walk
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel
from onnx_kvtool.model_io.external_data import (
    ReferenceJudge,
    array,
    check_external_data,
    external_files,
)
from onnx_kvtool.model_io.model import read
from tests.core.small import FLOAT, INT64, branched, external, plain, save, weighted, with_function

# (3, 5) of float32.
DATA = np.arange(15, dtype=np.float32).reshape(3, 5)


def _layout(top: Path) -> Path:
    """A model's directory with data in it, and data outside of it; returns the directory."""
    home = top / "home"
    (home / "sub").mkdir(parents=True)
    for path in (home / "w.bin", home / "sub" / "w.bin", top / "outside.bin"):
        path.write_bytes(DATA.tobytes())
    return home


def _read(home: Path, *tensors: TensorProto) -> ir.Model:
    return read(save(weighted(*tensors), home / "m.onnx"))


SAFE = {
    "a file beside the model": "w.bin",
    "a file in a sub-directory": "sub/w.bin",
    "a path with dots that stays inside": "./sub/../w.bin",
    "doubled slashes": "sub//w.bin",
    "dots in a name": "..w.bin",
}


@pytest.mark.parametrize("location", SAFE.values(), ids=SAFE)
def test_safe_locations(tmp_path: Path, location: str) -> None:
    home = _layout(tmp_path)
    (home / "..w.bin").write_bytes(DATA.tobytes())
    model = _read(home, external("w", [3, 5], location=location, offset=0, length=60))
    check_external_data(model, need_bytes=True)
    assert np.array_equal(array(model.graph.initializers["w"].const_value), DATA)


HOSTILE: dict[str, tuple[str, str]] = {
    "an absolute path": ("/etc/passwd", "is absolute"),
    "a Windows drive": ("C:\\data\\w.bin", "is absolute"),
    "a Windows drive with a relative path": ("c:w.bin", "is absolute"),
    "a network share": ("\\\\server\\share\\w.bin", "is absolute"),
    "a leading backslash": ("\\w.bin", "is absolute"),
    "a parent": ("../outside.bin", "leaves the directory"),
    "a parent in the middle": ("sub/../../outside.bin", "leaves the directory"),
    "a parent that comes back": ("../home/w.bin", "leaves the directory"),
    "a parent in the way of Windows": ("..\\outside.bin", "leaves the directory"),
    "parents in both ways": ("sub\\..\\../outside.bin", "leaves the directory"),
    "a chain of URLs": ("ww::file:///etc/passwd", "is a URL"),
    "a URL": ("file:///etc/passwd", "is a URL"),
    "the end of a chain": ("w.bin::", "is a URL"),
    "an empty location": ("", "names no file"),
    "a null character": ("w.bin\0.txt", "null character"),
    "a link to outside": ("link.bin", "outside the directory"),
    "a link to nothing outside": ("dangling.bin", "outside the directory"),
    "a directory that is a link to outside": ("up/outside.bin", "outside the directory"),
    "a directory": ("sub", "is not a regular file"),
    "the directory of the model": (".", "is not a regular file"),
    "a pipe": ("pipe", "is not a regular file"),
    "a link to itself": ("loop", "Too many levels of symbolic links"),
}


@pytest.mark.parametrize(("location", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_locations(tmp_path: Path, location: str, words: str) -> None:
    home = _layout(tmp_path)
    (home / "link.bin").symlink_to("../outside.bin")
    (home / "dangling.bin").symlink_to("../not-there.bin")
    (home / "up").symlink_to("..")
    (home / "loop").symlink_to("loop")
    os.mkfifo(home / "pipe")
    model = _read(home, external("w", [3, 5], location=location))
    for need_bytes in (False, True):
        with pytest.raises(UnreadableModel) as caught:
            check_external_data(model, need_bytes=need_bytes)
        assert words in caught.value.message
        assert "main, value `w`" in caught.value.message
    with pytest.raises(UnreadableModel):
        array(model.graph.initializers["w"].const_value)


# Entries and type of a tensor of shape `dims`, and what is said of it.
CLAIMS: dict[str, tuple[TensorProto, str]] = {
    "a length that is too short": (
        external("w", [3, 5], location="w.bin", length=56),
        "has 56 bytes, but FLOAT of shape [3, 5] takes 60",
    ),
    "a length that is too long": (
        external("w", [3, 5], location="w.bin", length=64),
        "has 64 bytes, but FLOAT of shape [3, 5] takes 60",
    ),
    "a length that forgets the packing": (
        external("w", [3, 5], dtype=TensorProto.INT4, location="w.bin", length=15),
        "has 15 bytes, but INT4 of shape [3, 5] takes 8",
    ),
    "a negative dim": (
        external("w", [3, -5], location="w.bin"),
        "its shape is [3, -5], but dim -5 is negative",
    ),
    "absurd dims": (
        external("w", [2**40, 2**40], location="w.bin"),
        "the number of elements exceeds 2**63 - 1",
    ),
    "an absurd offset": (
        external("w", [3, 5], location="w.bin", offset=2**63 - 1),
        "the offset 9223372036854775807 of its data is beyond the limit of any file",
    ),
    "strings": (
        external("w", [3], dtype=TensorProto.STRING, location="w.bin"),
        "elements of type STRING cannot be external",
    ),
    "an undefined type": (
        external("w", [3], dtype=TensorProto.UNDEFINED, location="w.bin"),
        "elements of type UNDEFINED cannot be external",
    ),
}


@pytest.mark.parametrize(("tensor", "words"), CLAIMS.values(), ids=CLAIMS)
def test_claims_that_cannot_be_true(tmp_path: Path, tensor: TensorProto, words: str) -> None:
    model = _read(_layout(tmp_path), tensor)
    with pytest.raises(UnreadableModel) as caught:
        check_external_data(model, need_bytes=False)
    assert words in caught.value.message


# A missing file matters only once the bytes are needed, a reference past its end in any case.
BYTES: dict[str, tuple[TensorProto, str]] = {
    "a file that is missing": (
        external("w", [3, 5], location="gone.bin"),
        "its data file `gone.bin` is not in",
    ),
    "a file in a directory that is missing": (
        external("w", [3, 5], location="gone/w.bin"),
        "its data file `gone/w.bin` is not in",
    ),
    "a file that is too short": (
        external("w", [5, 5], location="w.bin"),
        "bytes 0 to 100 of `w.bin` are needed, and the file has 60",
    ),
    "an offset past the end": (
        external("w", [1], location="w.bin", offset=4096, length=4),
        "bytes 4,096 to 4,100 of `w.bin` are needed, and the file has 60",
    ),
    "an offset that leaves too little": (
        external("w", [3, 5], location="w.bin", offset=4),
        "bytes 4 to 64 of `w.bin` are needed, and the file has 60",
    ),
}


@pytest.mark.parametrize(("tensor", "words"), BYTES.values(), ids=BYTES)
def test_bytes_that_are_not_there(tmp_path: Path, tensor: TensorProto, words: str) -> None:
    model = _read(_layout(tmp_path), tensor)
    if "gone" in words:
        check_external_data(model, need_bytes=False)
    else:
        with pytest.raises(UnreadableModel, match=re.escape(words)):
            check_external_data(model, need_bytes=False)
    with pytest.raises(UnreadableModel) as caught:
        check_external_data(model, need_bytes=True)
    assert words in caught.value.message
    with pytest.raises(UnreadableModel):
        array(model.graph.initializers["w"].const_value)


def test_tensors_of_no_elements_need_no_bytes(tmp_path: Path) -> None:
    home = _layout(tmp_path)
    (home / "empty.bin").touch()
    model = _read(home, external("w", [3, 0], location="empty.bin", length=0))
    check_external_data(model, need_bytes=True)
    assert array(model.graph.initializers["w"].const_value).shape == (3, 0)


def test_each_reference_is_judged(tmp_path: Path) -> None:
    model = _read(
        _layout(tmp_path),
        external("good", [3, 5], location="w.bin"),
        external("up", [3, 5], location="../w.bin"),
        external("gone", [3, 5], location="gone.bin"),
        external("short", [3, 5], location="gone.bin", length=1),
    )
    judge = ReferenceJudge(need_bytes=True)
    tensors = [v.const_value for v in model.graph.initializers.values()]
    found = [(t.name, judge.judge(t)) for t in tensors if isinstance(t, ir.ExternalTensor)]
    assert [(name, problem.code) for name, problem in found if problem is not None] == [
        ("up", "external-escape"),
        ("gone", "external-missing"),
        ("short", "external-length"),
    ]
    assert all(p.help for _, p in found if p is not None and p.code != "external-length")


def _hub(top: Path, *, snapshot: str = "snapshots/abc", name: str = "models--o--n") -> Path:
    """The cache of a repository of the Hugging Face hub; returns the directory of the model."""
    blobs, home = top / name / "blobs", top / name / snapshot
    blobs.mkdir(parents=True)
    home.mkdir(parents=True)
    (blobs / "1f").write_bytes(DATA.tobytes())
    message = weighted(external("w", [3, 5], location="w.bin"))
    save(message, blobs / "2e")
    for link, blob in (("w.bin", "1f"), ("m.onnx", "2e")):
        (home / link).symlink_to(os.path.relpath(blobs / blob, home))
    return home


@pytest.mark.parametrize("snapshot", ["snapshots/abc", "snapshots/abc/onnx/fp16"])
def test_links_into_the_blobs_of_the_hub(tmp_path: Path, snapshot: str) -> None:
    model = read(_hub(tmp_path, snapshot=snapshot) / "m.onnx")
    check_external_data(model, need_bytes=True)
    # onnx_ir itself refuses what leaves the directory.
    with pytest.raises(ValueError, match="outside the base directory"):
        model.graph.initializers["w"].const_value.numpy()
    assert np.array_equal(array(model.graph.initializers["w"].const_value), DATA)


def test_links_into_the_blobs_of_the_hub_through_a_linked_directory(tmp_path: Path) -> None:
    home = _hub(tmp_path)
    (tmp_path / "short").symlink_to(home)
    check_external_data(read(tmp_path / "short" / "m.onnx"), need_bytes=True)


def _other_repository(top: Path) -> Path:
    _hub(top, name="models--o--other")
    home = _hub(top)
    (home / "w.bin").unlink()
    (home / "w.bin").symlink_to(top / "models--o--other" / "blobs" / "1f")
    return home


def _below_the_blobs(top: Path) -> Path:
    home = _hub(top)
    (home / "../../blobs/deep").mkdir()
    (home / "../../blobs/deep/1f").write_bytes(DATA.tobytes())
    (home / "w.bin").unlink()
    (home / "w.bin").symlink_to("../../blobs/deep/1f")
    return home


NO_HUB: dict[str, Callable[[Path], Path]] = {
    "the blobs of another repository": _other_repository,
    "a directory in the blobs": _below_the_blobs,
    "a directory that is no repository": lambda top: _hub(top, name="backup"),
    "a directory that is no snapshot": lambda top: _hub(top, snapshot="copies/abc"),
}


@pytest.mark.parametrize("make", NO_HUB.values(), ids=NO_HUB)
def test_links_that_only_look_like_the_hub(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    with pytest.raises(UnreadableModel, match="outside the directory"):
        check_external_data(read(make(tmp_path) / "m.onnx"), need_bytes=False)


def test_a_hard_link_is_read(tmp_path: Path) -> None:
    home = _layout(tmp_path)
    os.link(home / "w.bin", home / "again.bin")
    model = _read(home, external("w", [3, 5], location="w.bin"))
    check_external_data(model, need_bytes=True)
    assert np.array_equal(array(model.graph.initializers["w"].const_value), DATA)


def _attribute(node: onnx.NodeProto, tensor: TensorProto, name: str = "value") -> None:
    node.attribute.add(name=name, type=AttributeProto.TENSOR, t=tensor)


def _everywhere() -> onnx.ModelProto:
    """External tensors in every place that can hold one; each names its place."""
    message = branched()
    message.graph.initializer.append(external("main", [2], location="a.bin"))
    branch = message.graph.node[-1].attribute[0].g
    branch.initializer.append(external("branch", [3], location="a.bin"))
    _attribute(branch.node[0], external("in_branch", [5], location="b.bin"))
    _attribute(message.graph.node[0], external("in_node", [7], location="a.bin"))
    message.graph.node[1].attribute.add(
        name="list",
        type=AttributeProto.TENSORS,
        tensors=[external("", [2], location="a.bin"), helper.make_tensor("t", INT64, [1], [3])],
    )
    function = with_function().functions[0]
    message.opset_import.add(domain="my", version=1)
    _attribute(function.node[0], external("in_function", [3], location="./a.bin"))
    function.attribute_proto.add(
        name="d", type=AttributeProto.TENSOR, t=external("default", [5], location="a.bin")
    )
    message.functions.append(function)
    return message


def test_files_of_every_place(tmp_path: Path) -> None:
    model = read(save(_everywhere(), tmp_path / "m.onnx"))
    files = external_files(model)
    names = ("main", "in_node", "list", "branch", "default")
    assert [(f.location, f.tensors, f.nbytes) for f in files] == [
        ("a.bin", names, 4 * (2 + 7 + 2 + 3 + 5)),
        ("b.bin", ("in_branch",), 4 * 5),
        ("./a.bin", ("in_function",), 4 * 3),
    ]
    assert [f.path for f in files] == [str(tmp_path / name) for name in ("a.bin", "b.bin", "a.bin")]


def test_every_place_is_judged(tmp_path: Path) -> None:
    model = read(save(_everywhere(), tmp_path / "m.onnx"))
    found = {str(p): t for p, t in walk.tensors(model) if isinstance(t, ir.ExternalTensor)}
    assert list(found) == [
        "main, value `main`",
        "main, node `first` (Relu), value `value`",
        "main, node `second` (Neg), value `list`",
        "main/choice.then_branch, value `branch`",
        "main/choice.then_branch, node `yes_op` (Abs), value `value`",
        "my::twice:long, node `inner` (Abs), value `value`",
        "my::twice:long, value `d`",
    ]
    (tmp_path / "a.bin").write_bytes(bytes(28))
    (tmp_path / "b.bin").write_bytes(bytes(20))
    check_external_data(model, need_bytes=True)
    for place, tensor in found.items():
        tensor.base_dir = tmp_path / "gone"
        with pytest.raises(UnreadableModel, match=re.escape(f"{place}: its data file")):
            check_external_data(model, need_bytes=True)
        tensor.base_dir = tmp_path


def test_a_model_made_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.bin").write_bytes(DATA.tobytes())
    model = ir.from_proto(weighted(external("w", [3, 5], location="w.bin")))
    check_external_data(model, need_bytes=True)
    assert external_files(model)[0].path == str(tmp_path / "w.bin")


@pytest.mark.parametrize(("offset", "length"), [(-4, 60), (0, -60)])
def test_negative_numbers_made_in_memory(tmp_path: Path, offset: int, length: int) -> None:
    model = ir.from_proto(plain())
    tensor = ir.ExternalTensor(
        "w.bin", offset, length, ir.DataType.FLOAT, shape=ir.Shape([3, 5]), name="w"
    )
    model.graph.initializers["w"].const_value = tensor
    with pytest.raises(UnreadableModel, match="is negative"):
        check_external_data(model, need_bytes=False)


def test_values_that_do_not_fit_their_shape(tmp_path: Path) -> None:
    message = weighted(TensorProto(name="w", data_type=FLOAT, dims=[3, 5], raw_data=bytes(8)))
    model = read(save(message, tmp_path / "m.onnx"))
    with pytest.raises(UnreadableModel, match="the values of `w` cannot be read"):
        array(model.graph.initializers["w"].const_value)


def test_values_of_a_sparse_initializer_are_refused(tmp_path: Path) -> None:
    message = plain()
    sparse = message.graph.sparse_initializer.add(dims=[3])
    sparse.values.CopyFrom(helper.make_tensor("s", FLOAT, [1], [7.0]))
    model = read(save(message, tmp_path / "m.onnx"))
    with pytest.raises(KvtoolError, match="sparse initializer `s`"):
        array(model.graph.initializers["s"].const_value)
