"""Pipes with a name: what is in them is read, and an empty one does not hang."""

import os
import threading
from pathlib import Path

import pytest

import onnx_kvtool as kv
from onnx_kvtool.lint.settings.files import find_models
from onnx_kvtool.model_io import atomic

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(atomic, "_PATIENCE", 0.2)
    os.mkfifo(tmp_path / "pipe.onnx")
    return tmp_path / "pipe.onnx"


READERS = {
    "load": kv.load,
    "merge": lambda path: kv.merge([path]),
}


@pytest.mark.parametrize("what", ["load", "merge"])
def test_an_empty_pipe_ends_in_an_error(pipe: Path, what: str) -> None:
    with pytest.raises(kv.KvtoolError, match=r"it is a pipe, and nothing is in it after 0\.2 s"):
        READERS[what](os.fspath(pipe))


def test_a_pipe_that_is_written_to_is_read(pipe: Path) -> None:
    writer = threading.Thread(target=pipe.write_bytes, args=(b"7",))
    writer.start()
    with open(pipe, "rb", opener=atomic.patient) as file:
        assert file.read() == b"7"
    writer.join()


def test_a_glob_and_a_directory_pass_over_pipes(pipe: Path) -> None:
    model = pipe.parent / "model.onnx"
    model.touch()
    assert find_models([os.fspath(pipe.parent)]) == [os.fspath(model)]
    assert find_models([os.fspath(pipe.parent / "*.onnx")]) == [os.fspath(model)]
