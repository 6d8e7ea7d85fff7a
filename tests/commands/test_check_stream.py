"""Many files: each report is handed on when it is there, and not kept."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_kvtool.commands import check as check_command
from onnx_kvtool.commands.check import stream
from onnx_kvtool.commands.check_file import check_file
from onnx_kvtool.commands.check_settings import Settings
from onnx_kvtool.commands.requests import CheckRequest
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.lint import jobs
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.jobs import run_jobs
from onnx_kvtool.lint.report import FileReport

pytestmark = pytest.mark.long


class Tracked(FileReport):
    """A report of which it can be seen whether it is still there."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose check has begun, each of which has one finding."""
    begun: list[str] = []

    def check_file(path: str, settings: object) -> FileReport:
        begun.append(path)
        place = Location("main", path)
        found = Finding(Diagnostic("KV001", "error", place, "wrong"), "axis-is-batch", "")
        return Tracked(path, (found,))

    monkeypatch.setattr(check_command, "check_file", check_file)
    monkeypatch.setattr(check_command, "find_models", list)
    return begun


def test_a_report_is_handed_on_before_the_next_file_is_begun(counted: list[str]) -> None:
    seen: list[tuple[str, int]] = []

    def take(file: FileReport) -> None:
        seen.append((file.path, len(counted)))

    tally = stream(CheckRequest(paths=("a", "b", "c"), isolated=True), take)
    assert seen == [("a", 1), ("b", 2), ("c", 3)]
    assert (tally.summary.files, tally.summary.error, tally.exit_code) == (3, 3, 1)


def test_reports_are_not_kept(counted: list[str]) -> None:
    alive: list[weakref.ref[FileReport]] = []
    most = 0

    def take(file: FileReport) -> None:
        nonlocal most
        gc.collect()
        most = max(most, sum(ref() is not None for ref in alive))
        alive.append(weakref.ref(file))

    stream(CheckRequest(paths=tuple(map(str, range(50))), isolated=True), take)
    assert len(alive) == 50
    assert most <= 1, "of those before"


class Asked(Sequence[str]):
    """Items that know how far they have been asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.last = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if index >= self.count:
            raise IndexError(index)
        self.last = max(self.last, index + 1)
        return str(index)


@pytest.mark.long
def test_workers_get_no_more_than_they_will_soon_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_AHEAD", 3)
    items = Asked(40)
    with run_jobs(str.upper, items, 2, str) as results:
        assert [int(one) for one in itertools.islice(results, 5)] == [0, 1, 2, 3, 4]
        assert items.last <= 3 * 2 + 5 + 1
        assert len(list(results)) == 35


def test_a_model_is_let_go_of_when_the_next_is_looked_at() -> None:
    """Ten thousand models are never in memory together, whatever is remembered of one."""
    paths = [str(Path(__file__).resolve().parents[2] / "fixtures/encoders/wav2vec2.onnx")]
    settings = Settings(several=True)
    for path in paths:  # what is remembered for good is then there
        check_file(path, settings)
    gc.collect()
    before = sum(isinstance(one, ir.Node) for one in gc.get_objects())
    for path in paths * 3:
        check_file(path, settings)
    gc.collect()
    after = sum(isinstance(one, ir.Node) for one in gc.get_objects())
    assert after == before, "nodes of the last model at most"


def test_what_a_model_leaves_is_freed_at_once() -> None:
    """Python's collector counts objects, and not the megabytes that a few of them hold."""
    path = str(Path(__file__).resolve().parents[2] / "fixtures/models/native/llama_static.onnx")
    settings = Settings(several=True)
    check_file(path, settings)  # what is remembered for good is then there
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(5):
            check_file(path, settings)
        assert len(gc.get_objects()) - before < 100
    finally:
        gc.enable()
