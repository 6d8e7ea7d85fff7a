"""Run one command under limits and say what it took; a program of its own, on the standard library.

The peak memory that the system gives for a process begins with that of the process it was forked
from. A benchmark, which holds models, would lend its own to what it measures; this program is
small. It reads a request (`command`, `seconds`, `bytes`) as JSON from standard input and answers in
JSON on standard output.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

_SHOWN = 20_000
"""Bytes of what the command printed that are handed on: the last ones."""


def main() -> None:
    """Answer the request."""
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    killed = threading.Event()
    with tempfile.TemporaryFile() as printed:
        begin = time.perf_counter()
        process = subprocess.Popen(
            request["command"],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # On a busy machine the command would take its memory before a limit set from outside.
            # No thread runs yet, so that forking is safe.
            preexec_fn=lambda: _bound(request["bytes"]),  # noqa: PLW1509
        )

        def kill() -> None:
            killed.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(request["seconds"], kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        timer.cancel()
        printed.seek(max(0, printed.tell() - _SHOWN))
        text = printed.read().decode(errors="replace")
    answer = {
        "seconds": seconds,
        "processor": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10),
        "exit_code": os.waitstatus_to_exitcode(status),
        "killed": killed.is_set(),
        "printed": text,
    }
    json.dump(answer, sys.stdout)


def _bound(bytes_: int) -> None:
    """Let this process take so much address space at most, where the system keeps count of it."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))


if __name__ == "__main__":
    main()
