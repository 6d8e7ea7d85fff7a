"""Telling that the machine fell short from that kvtool is wrong."""

from __future__ import annotations

import errno

from onnx_kvtool.core.errors import KvtoolError, Shortage

__all__ = ["as_shortage"]

_PROTOBUF_SAYS = ("Arena alloc failed", "to serialize proto")
"""What protobuf 6 says, as an error about the message, where it gets no memory for one that is not
too large."""


def as_shortage(error: Exception) -> KvtoolError | None:
    """Return what to tell the user of an exception that the machine is to blame for.

    Returns:
        An error about memory that could not be had, or about a library that does not load, as
        happens when memory is short; None for any other exception.
    """
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(text in str(error) for text in _PROTOBUF_SAYS)
        or (isinstance(error, SystemError) and "without exception set" in str(error))
    ):
        return Shortage(
            "there is not enough memory",
            help="give the process more, or take a smaller model",
        )
    if isinstance(error, ImportError) and not (error.name or "").startswith("onnx_kvtool"):
        text = " ".join(str(error).split())[:200]
        return Shortage(
            f"a library cannot be loaded: {text or error.name or 'without a reason'}",
            help="give the process more memory, or install the packages of kvtool again",
        )
    return None
