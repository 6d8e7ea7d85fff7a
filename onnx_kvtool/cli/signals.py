"""Ending in order when the system asks for it."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

__all__ = ["ending_in_order"]

_NAMES = ("SIGTERM", "SIGHUP", "SIGBREAK")


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM, SIGHUP and SIGBREAK raise `SystemExit`, so that temporary files are removed.

    The exit code is 128 and the number of the signal, as shells report it; so it is for SIGINT
    wherever click has not turned it into an exit. What is ignored, as under nohup, or handled by
    somebody else, stays so. After the block each of them ends the process at once, as there is
    nothing left to be done.
    """
    known = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    numbers = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _end)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from onnx_kvtool.cli.failure import show_interrupted

        show_interrupted()
        sys.exit(128 + signal.SIGINT)
    finally:
        for number in (*numbers, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    # Not twice: what is under way then is the removal of files.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
