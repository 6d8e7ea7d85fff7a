"""Running models in a separate process, which is killed at a limit of time or memory.

The process is forked, which is safe on Linux only. It shares the memory of its parent, so that only
the result has to be sent, and costs about 10 ms. On other systems the work runs in this process,
and nothing limits it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any, Literal, NoReturn, TypeVar

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import Progress, as_shortage
from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.runtime.errors import OutOfMemory
from onnx_kvtool.runtime.memory import bound_data, private_memory

_Result = TypeVar("_Result")

_LOOK = 0.02
"""Seconds between two checks of the memory of the process."""

_NO_MEMORY = 75
"""Exit code of a process that had no memory to start its work, or to answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of work.

    Attributes:
        seconds: Wall time.
        memory: Bytes beyond those of this process; file mappings do not count.
        is_strict: Whether an allocation fails that goes an eighth beyond `memory`. Otherwise the
            process may exceed it between two checks. Private file mappings, as onnxruntime makes of
            weights, count here.
    """

    seconds: float
    memory: int
    is_strict: bool = False


class Exceeded(KvtoolError):
    """Work reached a limit, or ended its process (exit 1).

    Attributes:
        what: The limit, or `crash`.
    """

    def __init__(
        self, what: Literal["time", "memory", "crash"], message: str, *, help: str | None = None
    ) -> None:
        super().__init__(message, help=help)
        self.what = what


def is_confining() -> bool:
    """Return whether this system enforces limits."""
    return sys.platform == "linux"


def confined(work: Callable[[Progress], _Result], limits: Limits, progress: Progress) -> _Result:
    """Run work in a separate process and return its result, which has to be picklable.

    The work is called with a function that reports progress. Its side effects are lost.

    Raises:
        Exceeded: If the work reached a limit, or crashed its process.
        Exception: Whatever the work raises; the traceback in its process is the cause.
    """
    if not is_confining():
        return work(progress)
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Other threads may hold locks: those of numpy and onnxruntime are idle, and the child
        # starts its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _be_the_child(work, theirs, limits)
    theirs.close()
    try:
        result: _Result = _await(child, ours, limits, progress)
        return result
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _await(child: int, answers: Connection, limits: Limits, progress: Progress) -> Any:
    """Return the result of the process `child`."""
    end = time.monotonic() + limits.seconds
    before = private_memory(os.getpid()) or 0
    while True:
        if not answers.poll(_LOOK):
            if time.monotonic() > end:
                took = f"{limits.seconds:g} s"
                raise Exceeded("time", f"the runs took more than {took} and were ended")
            if (private_memory(child) or 0) - before > limits.memory:
                raise _too_much(limits)
            continue
        try:
            kind, *content = answers.recv()
        except (EOFError, ConnectionError):
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code == _NO_MEMORY:
                raise (_too_much(limits) if limits.is_strict else MemoryError()) from None
            raise Exceeded("crash", f"the runs ended their process ({_fate(code)})") from None
        if kind == "progress":
            progress(*content)
        elif kind == "result":
            return content[0]
        elif kind == "memory":
            raise _too_much(limits)
        else:
            error, text = content
            raise error from _Remote(text)


def _too_much(limits: Limits) -> Exceeded:
    allowed = binary_bytes(limits.memory)
    return Exceeded("memory", f"the runs took more than {allowed} of memory and were ended")


class _Remote(Exception):
    """Carries the traceback of another process."""


def _fate(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _be_the_child(
    work: Callable[[Progress], object], answers: Connection, limits: Limits
) -> NoReturn:
    """Do the work, answer, and exit without the parent's clean-up."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent kills this process
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        gc.freeze()  # a collection would copy every page of the parent
        if limits.is_strict:
            bound_data(limits.memory + limits.memory // 8)

        def report(what: str, part: int = 0, parts: int = 0) -> None:
            answers.send(("progress", what, part, parts))

        answers.send_bytes(_answer(work, limits, report))
        code = 0
    except MemoryError:
        code = _NO_MEMORY
    finally:
        os._exit(code)


def _answer(work: Callable[[Progress], object], limits: Limits, progress: Progress) -> bytes:
    try:
        return pickle.dumps(("result", work(progress)), pickle.HIGHEST_PROTOCOL)
    except (MemoryError, OutOfMemory):
        return pickle.dumps(("memory",))
    except Exception as error:  # noqa: BLE001 # raised again where the result is awaited
        if limits.is_strict and as_shortage(error):  # an allocation that this limit let fail
            return pickle.dumps(("memory",))
        text = "".join(traceback.format_exception(error))
        try:
            return pickle.dumps(("error", error, text))
        except Exception:  # noqa: BLE001 # the attributes of an exception may be anything
            return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}"), text))


_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG: the signal that a process gets when its parent ends."""
