"""A process that has imported kvtool and forks a child for each command, within milliseconds.

`python -m tests.faults.zygote` reads jobs from standard input, a line of JSON each, and answers
each with a line. A child is a whole process: it can be killed, run out of memory, and change its
user.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.faults.points import Points

_APPEND = os.O_WRONLY | os.O_APPEND
_PIPE_BYTES = 1 << 20
_MODULES = (
    *(
        "numpy.random",
        "onnx.checker",
        "onnx.inliner",
        "onnx.printer",
        "onnx.reference",
        "onnxruntime",
    ),
    *("onnx_kvtool.cli.app", "onnx_kvtool.report.text"),
    *(
        f"onnx_kvtool.commands.{name}"
        for name in ("check", "evaluate", "infer", "inspect", "lower", "raise_", "verify")
    ),
)


def _imports() -> None:
    """Import what any command imports, so that no child has to."""
    for name in _MODULES:
        importlib.import_module(name)


def _child(job: dict[str, Any], pipes: dict[str, tuple[int, int]]) -> None:
    """Be the process of a job; does not return.

    Args:
        job: What to do.
        pipes: Where to write what would otherwise go to files.
    """
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(job["stdin"], os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            is_file = name not in pipes
            os.dup2(os.open(job[name], _APPEND) if is_file else pipes[name][1], number)
        # The streams remember whether what they wrote to could be wound back.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        trace = os.open(os.devnull if pipes else job["trace"], _APPEND)
        os.chdir(job["cwd"])
        _limit(resource.RLIMIT_FSIZE, job["file_bytes"])
        if job["spare_bytes"] is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + job["spare_bytes"])
        if job["is_unprivileged"] and os.geteuid() == 0:
            _drop_capabilities()
        os.environ.update(job["environment"])
        Points(trace, job["at"], job["fault"]).install()
        from onnx_kvtool.cli.app import main as kvtool
        from onnx_kvtool.verification import affordable

        if job["patience"] is not None:
            affordable._LEAST_SECONDS = job["patience"]

        sys.argv = ["kvtool", *job["arguments"]]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = _exit_code(kvtool)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:  # noqa: BLE001 - nothing may get back into the loop of the parent
        code = 1
        traceback.print_exc()
    finally:
        os._exit(code)


def _drop_capabilities() -> None:
    """Give up what makes root pass over the modes of files; the own files stay the own."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # the third version, for this process
    if libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")


def _limit(kind: int, bound: int | None) -> None:
    if bound is not None:
        resource.setrlimit(kind, (bound, resource.getrlimit(kind)[1]))


def _exit_code(run: Any) -> int:
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    return 0


def _wait(child: int, seconds: float) -> tuple[int, int] | None:
    """Return the status and peak memory of a child that ends in time; None if it does not."""
    descriptor = os.pidfd_open(child)
    try:
        if not select.select([descriptor], [], [], max(0.0, seconds))[0]:
            return None
    finally:
        os.close(descriptor)
    return _reaped(child)


def _reaped(child: int) -> tuple[int, int]:
    """Return the status of a child, and the most bytes that it or a child of it had."""
    _, status, usage = os.wait4(child, 0)
    return status, usage.ru_maxrss << 10


def _run(job: dict[str, Any]) -> dict[str, Any]:
    start = time.monotonic()
    # A limit on files would cut messages short; nobody reads a pipe before the end, though.
    pipes = {n: _pipe() for n in ("stdout", "stderr") if job["file_bytes"] is not None}
    child = os.fork()
    if child == 0:
        _child(job, pipes)
    is_late = False
    status = None
    if job["signal_after"] is not None:
        status = _wait(child, job["signal_after"])
        if status is None:
            os.kill(child, job["signal"])
    if status is None:
        status = _wait(child, job["seconds"])
    if status is None:
        is_late = True
        os.kill(child, signal.SIGKILL)
        status = _reaped(child)
    for name, (reader, writer) in pipes.items():
        os.close(writer)
        with open(reader, "rb") as stream, open(job[name], "wb") as file:
            file.write(stream.read())
    return {
        "code": os.waitstatus_to_exitcode(status[0]),
        "late": is_late,
        "peak": status[1],
        "seconds": time.monotonic() - start,
    }


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer


def main() -> None:
    """Answer jobs until standard input ends."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
    _imports()
    warnings.resetwarnings()
    gc.collect()
    gc.freeze()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answer = _run(json.loads(line))
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
