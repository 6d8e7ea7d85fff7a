"""What macOS and Windows lack or do otherwise, by systems that are made to look like them."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from onnx_kvtool.cli.output import reader_has_gone
from onnx_kvtool.core.errors import UnwritableOutput
from onnx_kvtool.model_io import atomic
from onnx_kvtool.model_io.atomic import write_bytes
from onnx_kvtool.model_io.places import is_inside, is_same, place_files

OLD, NEW = b"what was there", b"what comes"
STALE = ".kvtool-0123456789abcdef.tmp"


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """No locks, no owners, no waiting for a directory; returns the pauses that were made."""
    pauses: list[float] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(atomic, "fcntl", raising=False)
    monkeypatch.delattr(os, "chown", raising=False)
    monkeypatch.setattr(atomic.time, "sleep", pauses.append)
    return pauses


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_replaced_without_locks_and_owners(tmp_path: Path, windows: list[float]) -> None:
    (tmp_path / STALE).write_bytes(OLD)
    target = tmp_path / "m.onnx"
    target.write_bytes(OLD)
    write_bytes(target, NEW)
    assert target.read_bytes() == NEW and windows == []
    assert names(tmp_path) == [STALE, "m.onnx"]  # whether it is in use nobody can tell


def refusing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let so many renames fail as where a scanner has the file open."""
    rename, refused = os.replace, []

    def replace(source: str, target: str) -> None:
        if len(refused) < times:
            refused.append(source)
            raise PermissionError(errno.EACCES, "another process has the file open")
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)


def test_a_file_that_is_being_scanned_is_replaced_a_little_later(
    tmp_path: Path, windows: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, 2)
    write_bytes(tmp_path / "m.onnx", NEW)
    assert (tmp_path / "m.onnx").read_bytes() == NEW
    assert len(windows) == 2


def test_a_file_that_stays_open_is_not_replaced_and_nothing_is_left(
    tmp_path: Path, windows: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.onnx").write_bytes(OLD)
    refusing(monkeypatch, 1000)
    with pytest.raises(UnwritableOutput, match="another process has the file open"):
        write_bytes(tmp_path / "m.onnx", NEW)
    assert (tmp_path / "m.onnx").read_bytes() == OLD
    assert names(tmp_path) == ["m.onnx"]
    assert 1 < sum(windows) < 3


def test_elsewhere_a_rename_that_is_refused_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    refusing(monkeypatch, 1)
    with pytest.raises(UnwritableOutput):
        write_bytes(tmp_path / "m.onnx", NEW)


@pytest.mark.parametrize(
    ("number", "is_written"),
    [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False), (errno.ENOSPC, False)],
    ids=["cannot be asked", "not supported", "a broken disk", "a full disk"],
)
def test_a_file_system_that_cannot_be_asked_to_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_written: bool
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if is_written:
        write_bytes(tmp_path / "m.onnx", NEW)
    else:
        with pytest.raises(UnwritableOutput):
            write_bytes(tmp_path / "m.onnx", NEW)
    assert names(tmp_path) == (["m.onnx"] if is_written else [])


def placed(tmp_path: Path, how: str) -> Path:
    source, directory = tmp_path / "source.data", tmp_path / "out"
    directory.mkdir()
    with source.open("wb") as file:
        file.write(OLD)
        file.seek(1 << 20)
        file.write(NEW)
    place_files([("deep/w.data", os.fspath(source))], os.fspath(directory), how, lambda: None)
    assert (directory / "deep" / "w.data").read_bytes() == source.read_bytes()
    return directory


def test_a_system_that_does_not_tell_of_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    monkeypatch.delattr(os, "SEEK_HOLE", raising=False)
    placed(tmp_path, "copy")


def test_a_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "link")
    with pytest.raises(UnwritableOutput, match="cannot link") as error:
        placed(tmp_path, "link")
    assert error.value.help == "use --external-data copy"
    assert names(tmp_path / "out") == []


def test_two_names_of_one_file_are_the_same(tmp_path: Path) -> None:
    """As `A` and `a` are where case does not count, which links stand for here."""
    (tmp_path / "a").write_bytes(OLD)
    os.link(tmp_path / "a", tmp_path / "A.other")
    (tmp_path / "b").write_bytes(OLD)
    assert is_same(tmp_path / "a", tmp_path / "A.other")
    assert not is_same(tmp_path / "a", tmp_path / "b")
    assert is_same(tmp_path / "to come", tmp_path / "x" / ".." / "to come")
    assert not is_same(tmp_path / "a", tmp_path / "to come")
    assert not is_same("a\0b", tmp_path / "a")


def test_what_is_on_another_drive_is_not_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    def commonpath(paths: tuple[str, ...]) -> str:
        raise ValueError("Paths don't have the same drive")

    assert is_inside("/a/b/c", "/a/b") and not is_inside("/a/bc", "/a/b")
    monkeypatch.setattr(os.path, "commonpath", commonpath)
    assert not is_inside("D:/c", "C:/b")


@pytest.mark.parametrize(
    ("platform", "error", "expected"),
    [
        ("win32", OSError(errno.EINVAL, "Invalid argument"), True),
        ("linux", OSError(errno.EINVAL, "Invalid argument"), False),
        ("win32", OSError(errno.ENOSPC, "No space left"), False),
        ("linux", BrokenPipeError(), True),
        ("win32", None, False),
    ],
)
def test_a_reader_that_has_gone_is_known_by_its_error(
    monkeypatch: pytest.MonkeyPatch, platform: str, error: OSError | None, expected: bool
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert reader_has_gone(error) is expected
