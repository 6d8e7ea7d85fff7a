"""Standard input, output and error, as far as the caller has left them to the process."""

from __future__ import annotations

import io
import os
import sys

__all__ = ["secure_streams"]


def secure_streams() -> None:
    """Make every standard stream something that can be used, and that fails by an `OSError`.

    A stream that the caller has closed is None in Python, and the next file that is opened gets its
    number: what a library prints would go into a model. In its place comes one that refuses, or,
    for standard error, swallows. Characters that the encoding of a stream lacks are written as
    escapes; a name in a model may hold any character, whatever the locale is.
    """
    # In the order of their numbers, as each takes the lowest that is free.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
