"""Data files follow their model to another directory, and overwrite nothing on the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.core.choices import ExternalData
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
from onnx_kvtool.model_io import places
from onnx_kvtool.model_io.external_data import place_external_data
from onnx_kvtool.model_io.model import read, write
from tests.core.small import external, save, weighted

DATA = np.arange(15, dtype=np.float32).tobytes()
MORE = np.arange(7, dtype=np.float32).tobytes()


def _model(top: Path) -> ir.Model:
    """A model in `home` with a file beside it and one in a sub-directory."""
    home = top / "home"
    (home / "sub").mkdir(parents=True)
    (home / "w.bin").write_bytes(DATA)
    (home / "sub" / "v.bin").write_bytes(MORE)
    message = weighted(
        external("w", [3, 5], location="w.bin"), external("v", [7], location="sub/v.bin")
    )
    return read(save(message, home / "m.onnx"))


def _away(top: Path) -> Path:
    (top / "away").mkdir()
    return top / "away"


def _tree(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize("how", [None, "reference", "link", "copy"])
def test_beside_the_source_there_is_nothing_to_do(tmp_path: Path, how: ExternalData | None) -> None:
    model = _model(tmp_path)
    before = _tree(tmp_path)
    (tmp_path / "home2").symlink_to("home")
    assert place_external_data(model, tmp_path / "home", how) == []
    assert place_external_data(model, tmp_path / "home2", how) == []
    (tmp_path / "home2").unlink()
    assert _tree(tmp_path) == before
    assert (tmp_path / "home" / "w.bin").stat().st_nlink == 1


@pytest.mark.parametrize("how", [None, "copy"])
def test_copies(tmp_path: Path, how: ExternalData | None) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    notes = place_external_data(model, away, how)
    assert [note.split()[0] for note in notes] == ["copied", "copied"]
    write(model, away / "m.onnx")
    assert _tree(away) == ["m.onnx", "sub", "sub/v.bin", "w.bin"]
    assert [tensor.raw_data for tensor in onnx.load(away / "m.onnx").graph.initializer] == [
        DATA,
        MORE,
    ]
    assert (away / "w.bin").stat().st_nlink == 1


def test_links(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    notes = place_external_data(model, away, "link")
    assert [note.split()[0] for note in notes] == ["linked", "linked"]
    assert os.path.samefile(away / "w.bin", tmp_path / "home" / "w.bin")


def test_links_to_what_a_link_points_at(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    (tmp_path / "home" / "w.bin").rename(tmp_path / "home" / "real.bin")
    (tmp_path / "home" / "w.bin").symlink_to("real.bin")
    place_external_data(model, away, "link")
    assert not (away / "w.bin").is_symlink()
    assert (away / "w.bin").read_bytes() == DATA


def test_a_link_that_the_system_refuses_is_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, away = _model(tmp_path), _away(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(KvtoolError, match="Invalid cross-device link") as caught:
        place_external_data(model, away, "link")
    assert caught.value.help == "use --external-data copy"
    assert _tree(away) == []


def test_a_reference_cannot_leave_the_directory(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    with pytest.raises(UsageError, match="cannot leave the directory of its model"):
        place_external_data(model, away, "reference")
    assert _tree(away) == []


@pytest.mark.parametrize("how", ["link", "copy"])
def test_the_same_data_is_left_alone(tmp_path: Path, how: ExternalData) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    place_external_data(model, away, how)
    before = (away / "w.bin").stat()
    notes = place_external_data(model, away, how)
    assert [note.split(" ", 1)[1] for note in notes] == [
        "is there already, with the data of the source"
    ] * 2
    after = (away / "w.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


IN_THE_WAY = {
    "a file of another size": lambda path: path.write_bytes(b"mine"),
    "a file of the same size": lambda path: path.write_bytes(DATA[:-1] + b"!"),
    "a directory": lambda path: path.mkdir(),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}
if hasattr(os, "mkfifo"):  # Windows has none
    IN_THE_WAY["a pipe"] = os.mkfifo


@pytest.mark.parametrize("how", ["link", "copy"])
@pytest.mark.parametrize("put", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_in_the_way_is_not_overwritten(tmp_path: Path, put, how: ExternalData) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    put(away / "w.bin")
    before = os.lstat(away / "w.bin")
    with pytest.raises(KvtoolError, match="exists and is not the data file of the source"):
        place_external_data(model, away, how)
    after = os.lstat(away / "w.bin")
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert _tree(away) == ["w.bin"]


def test_what_was_placed_is_removed_when_the_next_file_fails(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    (away / "sub").write_bytes(b"no directory")
    with pytest.raises(KvtoolError):
        place_external_data(model, away, None)
    assert _tree(away) == ["sub"]


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    copy_range, calls = places._copy_range, []

    def interrupt(*args: object) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        copy_range(*args)

    monkeypatch.setattr(places, "_copy_range", interrupt)
    with pytest.raises(KeyboardInterrupt):
        place_external_data(model, away, None)
    assert _tree(away) == []


def test_a_hostile_reference_is_not_copied(tmp_path: Path) -> None:
    _model(tmp_path)
    (tmp_path / "secret.bin").write_bytes(DATA)
    message = weighted(external("w", [3, 5], location="../secret.bin"))
    model = read(save(message, tmp_path / "home" / "bad.onnx"))
    (tmp_path / "far" / "away").mkdir(parents=True)
    with pytest.raises(UnreadableModel, match="leaves the directory"):
        place_external_data(model, tmp_path / "far" / "away", None)
    assert _tree(tmp_path / "far") == ["away"]


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    (tmp_path / "home" / "sub" / "v.bin").unlink()
    with pytest.raises(UnreadableModel, match=r"`sub/v\.bin` is not in"):
        place_external_data(model, away, None)
    assert _tree(away) == []


def test_no_directory_is_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of an output called `lowered.onnx`."""
    model, away = _model(tmp_path), _away(tmp_path)
    monkeypatch.chdir(away)
    place_external_data(model, os.path.dirname("lowered.onnx"), None)
    assert _tree(away) == ["sub", "sub/v.bin", "w.bin"]


def test_a_directory_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(KvtoolError, match="is not a directory"):
        place_external_data(_model(tmp_path), tmp_path / "none", None)
    assert not (tmp_path / "none").exists()


def test_a_sub_directory_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (away / "sub").symlink_to("../elsewhere")
    with pytest.raises(KvtoolError, match="is a link that leaves"):
        place_external_data(model, away, None)
    assert _tree(tmp_path / "elsewhere") == []
    assert _tree(away) == ["sub"]


def test_a_path_through_a_directory_is_kept_usable(tmp_path: Path) -> None:
    _model(tmp_path)
    away = _away(tmp_path)
    message = weighted(external("w", [3, 5], location="sub/../w.bin"))
    place_external_data(read(save(message, tmp_path / "home" / "m.onnx")), away, None)
    assert _tree(away) == ["sub", "w.bin"]
    assert (away / "sub" / ".." / "w.bin").read_bytes() == DATA


@pytest.mark.long
@pytest.mark.parametrize("tail", [0, 5], ids=["a hole at the end", "data at the end"])
def test_holes_stay_holes(tmp_path: Path, tail: int) -> None:
    home, away = tmp_path / "home", _away(tmp_path)
    home.mkdir()
    size = 64 * 2**20
    with (home / "w.bin").open("wb") as file:
        file.write(b"first")
        file.seek(size // 2)
        file.write(b"middle")
        file.truncate(size)
        file.seek(size - tail)
        file.write(b"x" * tail)
    if (home / "w.bin").stat().st_blocks * 512 >= size // 2:
        pytest.skip("this file system has no holes")
    message = weighted(external("w", [size], dtype=onnx.TensorProto.UINT8, location="w.bin"))
    place_external_data(read(save(message, home / "m.onnx")), away, None)
    assert (away / "w.bin").stat().st_size == size
    assert (away / "w.bin").stat().st_blocks * 512 < size // 2
    assert (away / "w.bin").read_bytes() == (home / "w.bin").read_bytes()


def test_a_file_system_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, away = _model(tmp_path), _away(tmp_path)

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refuse)
    place_external_data(model, away, "copy")
    assert (away / "w.bin").read_bytes() == DATA


def test_data_goes_again_when_the_model_cannot_be_written(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)

    def fail() -> None:
        assert _tree(away) == ["sub", "sub/v.bin", "w.bin"]
        raise KvtoolError("the disk is full")

    with pytest.raises(KvtoolError, match="the disk is full"):
        place_external_data(model, away, "copy", then=fail, is_done=lambda: False)
    assert _tree(away) == []


def test_data_stays_with_a_model_that_is_written_before_an_interrupt(tmp_path: Path) -> None:
    model, away = _model(tmp_path), _away(tmp_path)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place_external_data(model, away, "copy", then=interrupt, is_done=lambda: True)
    assert _tree(away) == ["sub", "sub/v.bin", "w.bin"]
