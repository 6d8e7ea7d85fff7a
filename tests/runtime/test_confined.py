"""Work in a process of its own: what comes back, and what ends it."""

import dataclasses
import errno
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import silent
from onnx_kvtool.runtime.confined import Exceeded, Limits, confined, is_confining
from onnx_kvtool.runtime.errors import TooLarge

pytestmark = [
    pytest.mark.forks,
    pytest.mark.skipif(not is_confining(), reason="limits hold on Linux alone"),
]

AMPLE = Limits(60, 1 << 30)


@pytest.mark.long
def test_the_result_and_progress_come_back():
    said = []

    def work(progress):
        progress("verifying, case", 2, 3)
        return os.getpid(), np.arange(3 << 20)

    process, array = confined(work, AMPLE, lambda *what: said.append(what))
    assert process != os.getpid()
    assert array[-1] == (3 << 20) - 1
    assert said == [("verifying, case", 2, 3)]


@pytest.mark.long
def test_an_error_comes_back_with_its_attributes():
    def work(_):
        raise TooLarge("too large", help="take less", needed=7)

    with pytest.raises(TooLarge, match="too large") as raised:
        confined(work, AMPLE, silent)
    assert (raised.value.needed, raised.value.help) == (7, "take less")


def test_a_bug_comes_back_with_its_traceback():
    def planted(_):
        raise AssertionError("planted")

    with pytest.raises(AssertionError, match="planted") as raised:
        confined(planted, AMPLE, silent)
    assert "in planted" in str(raised.value.__cause__)


def _sleep(_):
    time.sleep(60)


def _match(_):
    re.match("(a+)+$", "a" * 64 + "b")  # holds the interpreter's lock, and never ends


def _fill(_):
    held = [np.ones(1 << 21) for _ in range(1 << 7)]  # 2 GiB
    return len(held)


def _claim(_):
    return np.ones(1 << 50)


def _crash(_):
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(_):
    os._exit(3)


ENDED = {
    "sleeps": (_sleep, "time", "the runs took more than 0.2 s and were ended"),
    "searches without end": (_match, "time", "the runs took more than 0.2 s and were ended"),
    "fills the memory": (_fill, "memory", "the runs took more than 64 MiB of memory"),
    "asks for a petabyte": (_claim, "memory", "the runs took more than 64 MiB of memory"),
    "crashes": (_crash, "crash", "the runs ended their process (SIGKILL)"),
    "leaves": (_leave, "crash", "the runs ended their process (exit code 3)"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", ENDED)
def test_work_that(what, monkeypatch):
    work, limit, message = ENDED[what]
    seconds = 0.2 if limit == "time" else 60
    children, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: children.append(fork()) or children[-1])
    with pytest.raises(Exceeded, match=re.escape(message)) as raised:
        confined(work, Limits(seconds, 64 << 20), silent)
    assert raised.value.what == limit
    with pytest.raises(ChildProcessError):  # nothing is left of it
        os.waitpid(*children, os.WNOHANG)


def test_no_memory_to_begin_is_no_crash(monkeypatch):
    def lacking():
        raise MemoryError

    monkeypatch.setattr("onnx_kvtool.runtime.confined.gc.freeze", lacking)
    with pytest.raises(MemoryError):
        confined(lambda _: 1, Limits(60, 64 << 20), silent)
    with pytest.raises(Exceeded, match="more than 64 MiB of memory"):
        confined(lambda _: 1, Limits(60, 64 << 20, is_strict=True), silent)


SHORTAGES = {
    "a library that does not load": ImportError("std::bad_alloc"),
    "the system": OSError(errno.ENOMEM, "Cannot allocate memory"),
}


@pytest.mark.parametrize("error", SHORTAGES.values(), ids=SHORTAGES)
def test_what_fails_under_a_strict_limit_for_lack_of_memory_is_that_limit(error):
    def work(_):
        raise error

    with pytest.raises(type(error)):
        confined(work, AMPLE, silent)
    with pytest.raises(Exceeded, match="more than"):
        confined(work, dataclasses.replace(AMPLE, is_strict=True), silent)


@pytest.mark.long
def test_a_strict_limit_holds_between_two_looks_at_the_memory(monkeypatch):
    monkeypatch.setattr("onnx_kvtool.runtime.confined._LOOK", 60)
    with pytest.raises(Exceeded, match="more than 64 MiB of memory"):
        confined(_fill, Limits(60, 64 << 20, is_strict=True), silent)


@pytest.mark.long
def test_memory_of_the_parent_does_not_count():
    held = np.ones(1 << 25)  # 256 MiB
    assert confined(lambda _: held[7], Limits(60, 64 << 20), silent) == 1


@pytest.mark.long
def test_an_error_of_kvtool_is_made_again_whatever_it_takes():
    def work(_):
        raise Exceeded("time", "inner", help="wait")

    with pytest.raises(KvtoolError, match="inner") as raised:
        confined(work, AMPLE, silent)
    assert isinstance(raised.value, Exceeded) and raised.value.what == "time"


_ORPHAN = """
import os, sys, time
from onnx_kvtool.core.machine import silent
from onnx_kvtool.runtime.confined import Limits, confined
def work(progress):
    print(os.getpid(), flush=True)
    time.sleep(60)
confined(work, Limits(60, 1 << 30), silent)
"""


@pytest.mark.long
def test_it_ends_with_a_parent_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", _ORPHAN], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        try:
            with open(f"/proc/{child}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child is still there")
