"""What processes do where Linux's ways are not there; files have tests of their own in `core`."""

from __future__ import annotations

import builtins
import ctypes
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnx_kvtool.cli.app import ending_in_order
from onnx_kvtool.core.machine import bounded_memory
from onnx_kvtool.lint import jobs
from onnx_kvtool.lint.jobs import _is_alone
from onnx_kvtool.runtime import memory


@pytest.fixture
def without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """No files that a kernel of Linux shows."""
    real = builtins.open

    def open_(path: Any, *rest: Any, **more: Any) -> Any:
        if str(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(path)
        return real(path, *rest, **more)

    monkeypatch.setattr(builtins, "open", open_)


class FakeKernel:
    """kernel32 of a machine with 7 GiB left, for a process that has 3 MiB and once had 5.

    Attributes:
        refuses: Whether its calls fail.
    """

    refuses = False

    def __init__(self, name: str) -> None:
        assert name == "kernel32"
        self.GetCurrentProcess = FakeHandle()

    def GlobalMemoryStatusEx(self, status: Any) -> int:
        found = status._obj
        assert found.length == ctypes.sizeof(found) == 64
        found.available_physical, found.available_virtual = 7 << 30, 1 << 47
        return not self.refuses

    def K32GetProcessMemoryInfo(self, process: Any, counters: Any, size: Any) -> int:
        found = counters._obj
        assert process.value == 2**64 - 1
        assert size.value == found.length == ctypes.sizeof(found) == 72
        found.working_set, found.peak_working_set = 3 << 20, 5 << 20
        return not self.refuses


class FakeHandle:
    """A function of a library, which has a type of what it returns."""

    restype: Any = ctypes.c_int

    def __call__(self) -> int:
        assert self.restype is ctypes.c_void_p
        return 2**64 - 1


@pytest.mark.parametrize("refuses", [False, True])
def test_windows_is_asked_for_memory(
    monkeypatch: pytest.MonkeyPatch, without_proc: None, refuses: bool
) -> None:
    monkeypatch.setattr(ctypes, "WinDLL", FakeKernel, raising=False)
    monkeypatch.setattr(FakeKernel, "refuses", refuses)
    monkeypatch.delattr(os, "sysconf", raising=False)
    found = memory.available_memory(), memory.used_memory(), memory.peak_memory()
    assert found == ((None,) * 3 if refuses else (7 << 30, 3 << 20, 5 << 20))


@pytest.mark.parametrize(
    ("sysconf", "expected"),
    [
        pytest.param({"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 7}, 4096 * 7, id="macOS"),
        pytest.param({"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": -1}, None, id="not said"),
        pytest.param(None, None, id="neither"),
    ],
)
def test_memory_is_what_the_system_says_or_not_known(
    monkeypatch: pytest.MonkeyPatch,
    without_proc: None,
    sysconf: dict[str, int] | None,
    expected: int | None,
) -> None:
    monkeypatch.delattr(ctypes, "WinDLL", raising=False)
    if sysconf is None:
        monkeypatch.delattr(os, "sysconf", raising=False)
    else:
        monkeypatch.setattr(os, "sysconf", sysconf.__getitem__, raising=False)
    assert memory.available_memory() == expected
    assert memory.used_memory() is None and memory.peak_memory() is None


@pytest.mark.forks
def test_a_library_without_malloc_trim_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: None) -> object:
        raise TypeError("Windows wants a name")

    memory._trim.cache_clear()
    monkeypatch.setattr(memory.ctypes, "CDLL", refuse)
    try:
        memory.give_back(at_once=True)
    finally:
        memory._trim.cache_clear()


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_memory_is_bounded_on_linux_alone(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setitem(sys.modules, "resource", None)  # which cannot be imported then
    with bounded_memory(1):
        assert len(bytearray(1 << 20)) == 1 << 20


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_no_process_is_copied_but_on_linux(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert not _is_alone()


def test_signals_that_a_system_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP", raising=False)
    with pytest.raises(SystemExit) as end, ending_in_order():
        signal.raise_signal(signal.SIGTERM)
    assert end.value.code == 128 + signal.SIGTERM


def test_the_break_key_of_windows_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    number = getattr(signal, "SIGBREAK", None) or signal.SIGUSR2
    monkeypatch.setattr(signal, "SIGBREAK", number, raising=False)
    with pytest.raises(SystemExit) as end, ending_in_order():
        signal.raise_signal(number)
    assert end.value.code == 128 + number


def test_a_worker_of_windows_tidies_up_when_its_parent_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[str, Any]] = []

    def noting(name: str) -> Callable[[Any], None]:
        return lambda value: done.append((name, value))

    def kill(process: int, number: int) -> None:
        raise AssertionError("this ends a process of Windows at once")

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(jobs.multiprocessing, "parent_process", lambda: SimpleNamespace(sentinel=7))
    monkeypatch.setattr(jobs, "wait", noting("wait"))
    monkeypatch.setattr(jobs._thread, "interrupt_main", noting("interrupt"))
    monkeypatch.setattr(jobs.time, "sleep", noting("sleep"))
    monkeypatch.setattr(jobs.os, "_exit", noting("exit"))
    monkeypatch.setattr(jobs.os, "kill", kill)
    jobs._watch_parent()
    assert done[:2] == [("wait", [7]), ("interrupt", signal.SIGTERM)]
    assert ("exit", 128 + signal.SIGTERM) in done


@pytest.mark.long
def test_no_file_of_tests_needs_linux_to_be_read(root: Path) -> None:
    """One that Windows cannot import would end the run of all others there."""
    needs = re.compile(r"^(?:import|from) (?:fcntl|grp|pty|pwd|resource|termios)\b", re.MULTILINE)
    ignored = root / "tests" / "faults"
    paths = [path for path in (root / "tests").rglob("*.py") if ignored not in path.parents]
    assert len(paths) > 300
    assert [path for path in paths if needs.search(path.read_text(encoding="utf-8"))] == []
