"""A file is written as a whole or stays as it was, whatever goes wrong."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.model_io import model as model_module
from onnx_kvtool.model_io.atomic import replacing, write_bytes
from onnx_kvtool.model_io.model import read, serialize, write
from tests.core.small import external, plain, save, weighted

OLD = b"what was there"
NEW = b"what comes"


def _listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_file_gets_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "m.onnx", NEW)
    finally:
        os.umask(before)
    assert (tmp_path / "m.onnx").read_bytes() == NEW
    assert stat.S_IMODE((tmp_path / "m.onnx").stat().st_mode) == 0o640
    assert _listing(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)
    path.chmod(mode)
    write_bytes(path, NEW)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (NEW, mode)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "m.onnx").write_bytes(OLD)
    link = tmp_path / "link.onnx"
    link.symlink_to("far/m.onnx")
    write_bytes(link, NEW)
    assert link.is_symlink()
    assert (tmp_path / "far" / "m.onnx").read_bytes() == NEW
    assert _listing(tmp_path / "far") == ["m.onnx"]


def test_a_link_to_nothing_creates_what_it_points_at(tmp_path: Path) -> None:
    (tmp_path / "link.onnx").symlink_to("new.onnx")
    write_bytes(tmp_path / "link.onnx", NEW)
    assert (tmp_path / "new.onnx").read_bytes() == NEW


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_bytes(os.devnull, NEW)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_name_of_the_greatest_length(tmp_path: Path) -> None:
    name = "m" * os.pathconf(tmp_path, "PC_NAME_MAX")
    write_bytes(tmp_path / name, NEW)
    assert _listing(tmp_path) == [name]


def _missing_directory(directory: Path) -> Path:
    return directory / "none" / "m.onnx"


def _directory(directory: Path) -> Path:
    (directory / "taken").mkdir()
    return directory / "taken"


def _below_a_file(directory: Path) -> Path:
    (directory / "file").write_bytes(OLD)
    return directory / "file" / "m.onnx"


def _null_character(directory: Path) -> Path:
    return directory / "m\0"


def _link_to_itself(directory: Path) -> Path:
    (directory / "loop").symlink_to("loop")
    return directory / "loop"


PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a directory that is not there": (_missing_directory, "No such file or directory"),
    "a directory in place of the file": (_directory, "Is a directory"),
    "a path through a file": (_below_a_file, "Not a directory"),
    "a null character": (_null_character, "null character"),
    "a link to itself": (_link_to_itself, "Too many levels of symbolic links"),
}


@pytest.mark.parametrize(("make", "words"), PLACES.values(), ids=PLACES)
def test_places_that_cannot_be_written(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    path = make(tmp_path)
    before = _listing(tmp_path)
    with pytest.raises(KvtoolError, match="cannot write") as caught:
        write_bytes(path, NEW)
    assert words in caught.value.message
    assert _listing(tmp_path) == before


# Where the system may fail, and how.
FAILURES: dict[str, tuple[str, BaseException]] = {
    "no permission to create a file": ("open", PermissionError(errno.EACCES, "Permission denied")),
    "a read-only file system": ("open", OSError(errno.EROFS, "Read-only file system")),
    "no space at the end": ("fsync", OSError(errno.ENOSPC, "No space left on device")),
    "an error of the disk": ("fsync", OSError(errno.EIO, "Input/output error")),
    "permissions that cannot be set": ("chmod", PermissionError(errno.EPERM, "Not permitted")),
    "a name that cannot be taken": ("replace", PermissionError(errno.EACCES, "Permission denied")),
    "an interrupt while writing": ("fsync", KeyboardInterrupt()),
    "an interrupt while renaming": ("replace", KeyboardInterrupt()),
    "no memory": ("fsync", MemoryError()),
}


# Permissions are set only where a file is replaced.
ATTEMPTS = [(name, True) for name in FAILURES] + [
    (name, False) for name, (call, _) in FAILURES.items() if call != "chmod"
]


@pytest.mark.parametrize(
    ("name", "exists"),
    ATTEMPTS,
    ids=[f"{name}, {'over a file' if over else 'where none is'}" for name, over in ATTEMPTS],
)
def test_failures_leave_everything_as_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    exists: bool,
) -> None:
    call, failure = FAILURES[name]
    path = tmp_path / "m.onnx"
    if exists:
        path.write_bytes(OLD)

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(os, call, fail)
    expected = KvtoolError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected) as caught:
        write_bytes(path, NEW)
    monkeypatch.undo()
    if isinstance(failure, OSError):
        assert caught.value.message == f"cannot write `{path}`: {failure.strerror}"
    assert _listing(tmp_path) == (["m.onnx"] if exists else [])
    assert not exists or path.read_bytes() == OLD


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)

    def fill() -> None:
        with replacing(path) as file, open("/dev/full", "wb", buffering=0) as full:
            file.write(NEW)
            full.write(NEW)

    with pytest.raises(KvtoolError, match="No space left on device"):
        fill()
    assert (path.read_bytes(), _listing(tmp_path)) == (OLD, ["m.onnx"])


def test_an_error_of_the_caller_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)

    def fail() -> None:
        with replacing(path) as file:
            file.write(NEW)
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fail()
    assert (path.read_bytes(), _listing(tmp_path)) == (OLD, ["m.onnx"])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_read_only_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(KvtoolError, match="Permission denied"):
            write_bytes(tmp_path / "m.onnx", NEW)
    finally:
        tmp_path.chmod(0o700)
    assert _listing(tmp_path) == []


def test_write_takes_the_bytes_it_is_given(tmp_path: Path) -> None:
    model = read(save(plain(), tmp_path / "m.onnx"))
    write(model, tmp_path / "out.onnx", data=NEW)
    assert (tmp_path / "out.onnx").read_bytes() == NEW


def test_write_serialises(tmp_path: Path) -> None:
    model = read(save(plain(), tmp_path / "m.onnx"))
    write(model, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == serialize(model)


def test_a_model_may_replace_itself(tmp_path: Path) -> None:
    path = save(plain(), tmp_path / "m.onnx")
    model = read(path)
    model.graph.name = "changed"
    write(model, path)
    assert onnx.load(path).graph.name == "changed"


class FakeOutput:
    def __init__(self, buffer: io.RawIOBase | io.BytesIO) -> None:
        self.buffer = buffer


def test_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read(save(plain(), tmp_path / "m.onnx"))
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", FakeOutput(output))
    write(model, "-")
    assert output.getvalue() == serialize(model)


def test_standard_output_that_is_closed_on_the_other_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = read(save(plain(), tmp_path / "m.onnx"))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdout", FakeOutput(pipe))
        with pytest.raises(KvtoolError, match="cannot write to standard output: Broken pipe"):
            write(model, "-")


@pytest.mark.parametrize("name", ["w.bin", "./w.bin", "link.onnx"])
def test_the_weights_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(60))
    (tmp_path / "link.onnx").symlink_to("w.bin")
    model = read(save(weighted(external("w", [3, 5], location="w.bin")), tmp_path / "m.onnx"))
    with pytest.raises(UsageError, match="contains the weights of the model"):
        write(model, os.path.join(tmp_path, name))
    assert (tmp_path / "w.bin").read_bytes() == bytes(60)


def test_a_model_over_2_gib_is_refused_before_it_is_copied(tmp_path: Path) -> None:
    model = ir.from_proto(plain())
    # Zeros that are never written to take no memory.
    huge = ir.Tensor(np.zeros(2**31, np.uint8), name="huge")
    model.graph.initializers.add(ir.Value(name="huge", const_value=huge))
    with pytest.raises(KvtoolError, match="larger than 2 GiB") as caught:
        write(model, tmp_path / "m.onnx")
    assert "external data" in (caught.value.help or "")
    assert _listing(tmp_path) == []


def test_a_model_that_grows_over_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = read(save(plain(), tmp_path / "m.onnx"))
    monkeypatch.setattr(model_module, "MAX_MESSAGE_BYTES", 100)
    with pytest.raises(KvtoolError, match="larger than 2 GiB"):
        serialize(model)


def test_a_model_without_a_written_form_is_refused(tmp_path: Path) -> None:
    model = ir.from_proto(plain())
    model.graph.initializers["w"].const_value = None
    with pytest.raises(KvtoolError, match="initializer `w` has no value"):
        write(model, tmp_path / "m.onnx")
    assert _listing(tmp_path) == []


def test_a_model_may_be_written_where_it_was_read_again_and_again(tmp_path: Path) -> None:
    path = save(plain(), tmp_path / "m.onnx")
    model = read(path)
    for name in ("one", "two"):
        model.graph.name = name
        write(model, path)
        assert onnx.load(path).graph.name == name


def test_a_model_that_another_process_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    path = save(plain(), tmp_path / "m.onnx")
    model = read(path)
    path.write_bytes(NEW)
    with pytest.raises(KvtoolError, match="another process has changed it"):
        write(model, path)
    assert path.read_bytes() == NEW
    write(model, tmp_path / "elsewhere.onnx")
