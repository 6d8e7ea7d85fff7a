"""Temporary files are gone when they should be, and those in use are left alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_kvtool.core.errors import UnwritableOutput
from onnx_kvtool.model_io.atomic import remove_stale, replacing, stamp, temporary_file, write_bytes

OLD = b"what was there"
NEW = b"what comes"
STALE = ".kvtool-0123456789abcdef.tmp"

posix = pytest.mark.skipif(sys.platform == "win32", reason="no locks that end with a process")


@pytest.mark.long
@posix
def test_what_a_killed_process_left_is_removed_by_the_next_that_writes(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from onnx_kvtool.model_io.atomic import temporary_file\n"
        "with temporary_file(sys.argv[1], 0o666): os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.fspath(root)}
    subprocess.run([sys.executable, "-c", program, tmp_path], env=environment, check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".kvtool-") and left.name.endswith(".tmp")
    write_bytes(tmp_path / "m.onnx", NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_file_in_use_is_left_alone(tmp_path: Path) -> None:
    with temporary_file(os.fspath(tmp_path), 0o666) as (path, descriptor):
        os.close(descriptor)
        remove_stale(os.fspath(tmp_path))
        assert os.path.exists(path)
        os.replace(path, tmp_path / "m.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@posix
def test_a_file_that_is_removed_before_it_is_claimed_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, removed = os.open, []

    def open_and_lose(path: str, flags: int, mode: int = 0o777) -> int:
        descriptor = opened(path, flags, mode)
        if not removed:
            removed.append(path)
            os.unlink(path)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    with temporary_file(os.fspath(tmp_path), 0o666) as (path, descriptor):
        os.close(descriptor)
        assert removed and path != removed[0]
        assert os.path.exists(path)


@posix
@pytest.mark.parametrize("name", ["model.tmp", ".kvtool.tmp", f"{STALE}.onnx", ".kvtool-0.tmp"])
def test_files_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(OLD)
    (tmp_path / STALE).write_bytes(OLD)
    remove_stale(os.fspath(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@posix
def test_neither_links_nor_pipes_nor_directories_are_touched(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(OLD)
    (tmp_path / STALE).symlink_to("kept")
    os.mkfifo(tmp_path / STALE.replace("0", "1"))
    (tmp_path / STALE.replace("0", "2")).mkdir()
    remove_stale(os.fspath(tmp_path))
    assert len(list(tmp_path.iterdir())) == 4


def test_a_directory_that_is_not_there_holds_nothing_stale(tmp_path: Path) -> None:
    remove_stale(os.fspath(tmp_path / "none"))


@posix
def test_a_private_file_is_private_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)
    path.chmod(0o640)
    with replacing(path) as file:
        file.write(NEW)
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_the_owner_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)
    os.chown(path, 65534, 65533)
    write_bytes(path, NEW)
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65533)


@posix
def test_an_owner_that_cannot_be_kept_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)
    tried: list[tuple[int, int]] = []

    def refuse(path: str, uid: int, gid: int) -> None:
        tried.append((uid, gid))
        raise PermissionError

    found = os.stat(path)
    other = os.stat_result((*found[:4], found.st_uid + 1, found.st_gid + 1, *found[6:]))
    monkeypatch.setattr(os, "chown", refuse)
    monkeypatch.setattr(os, "stat", lambda p: other if os.fspath(p) == str(path) else found)
    write_bytes(path, NEW)
    assert path.read_bytes() == NEW
    assert tried == [(found.st_uid + 1, found.st_gid + 1), (-1, found.st_gid + 1)]


def test_a_file_that_must_not_be_written_to_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to any file
    with pytest.raises(UnwritableOutput, match=r"m\.onnx`: the file is read-only$"):
        write_bytes(path, NEW)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("m.onnx", OLD)]


def test_another_hard_link_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(OLD)
    os.link(tmp_path / "m.onnx", tmp_path / "other.onnx")
    write_bytes(tmp_path / "m.onnx", NEW)
    assert (tmp_path / "other.onnx").read_bytes() == OLD


@pytest.mark.parametrize("what", ["changed", "replaced by an equal one", "removed"])
def test_a_file_that_is_not_the_expected_one_is_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)
    before = stamp(path)
    (tmp_path / "other").write_bytes(OLD)
    if what == "changed":
        path.write_bytes(OLD + OLD)
    elif what == "removed":
        path.unlink()
    else:
        os.replace(tmp_path / "other", path)
    left = sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir())
    with pytest.raises(UnwritableOutput, match="another process has changed it") as caught:
        write_bytes(path, NEW, expected=before)
    assert caught.value.help == "run the command again"
    assert sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir()) == left


def test_the_expected_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OLD)
    write_bytes(path, NEW, expected=stamp(path))
    assert path.read_bytes() == NEW
