"""Budgets, shortage, a bound on memory, the cycle collector, and progress."""

from __future__ import annotations

import contextlib
import errno
import gc
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from onnx_kvtool.core.errors import KvtoolError, Shortage, UsageError
from onnx_kvtool.core.words import binary_bytes, bytes_of

# The limits of verification.


@dataclass(frozen=True, slots=True)
class Budget:
    """Approximate memory and time for the comparison of two models.

    Attributes:
        memory: Bytes for both models with their inputs and outputs.
        seconds: Time after which no further case is begun.
    """

    memory: int = 256 << 20
    seconds: float = 5.0

    @staticmethod
    def parse(text: str | None) -> Budget:
        """Return the budget for a text such as `1GiB`, `30s` or `1GiB,30s`; defaults for the rest.

        Raises:
            UsageError: If the text is of another form, or allows nothing.
        """
        memory, seconds = Budget().memory, Budget().seconds
        for part in [] if text is None else text.split(","):
            time = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min)\s*", part)
            size = None if time else bytes_of(part)
            if time:
                seconds = float(time[1]) * (60 if time[2] == "min" else 1)
            elif size:
                memory = size
            else:
                seconds = math.nan
            if not seconds > 0:
                raise UsageError(
                    f"the budget of verification is `{text}`, "
                    "expected memory, time or both, such as `1GiB`, `30s` or `1GiB,30s`"
                )
        return Budget(memory, seconds)

    def __str__(self) -> str:
        return f"{binary_bytes(self.memory)} and {self.seconds:g} s"


_NEED_VERIFICATION = ("verify_steps", "verify_budget", "thorough", "strict")


def check_verified(verify: bool | None, asked: Mapping[str, Any]) -> None:
    """Refuse arguments that need verification if it is switched off.

    Raises:
        UsageError: For the first such argument.
    """
    for name in _NEED_VERIFICATION if verify is False else ():
        if asked[name] is not None and asked[name] is not False:
            flag = name.replace("_", "-")
            raise UsageError(
                f"`--{flag}` needs verification, which `--no-verify` switches off",
                help="leave one of them out",
            )


# A shortage of the machine, as opposed to a bug in kvtool.


_PROTOBUF_SAYS = ("Arena alloc failed", "to serialize proto")
"""Messages of protobuf 6 if it gets no memory for a message that is not too large."""


_RESERVE = [bytes(4 * 2**20)]
"""Kept for the message that there is no memory; its pages are never written to."""


def free_reserve() -> None:
    """Make room for a last message."""
    _RESERVE.clear()


def as_shortage(error: Exception) -> KvtoolError | None:
    """Return the error for an exception that the machine caused; None for any other.

    The cause is that there was no memory, or that a library did not load, as happens then.
    """
    free_reserve()
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(text in str(error) for text in _PROTOBUF_SAYS)
        or (isinstance(error, SystemError) and "without exception set" in str(error))
    ):
        return Shortage(
            "there is not enough memory",
            help="give the process more memory, or use a smaller model",
        )
    if isinstance(error, ImportError) and not (error.name or "").startswith("onnx_kvtool"):
        text = " ".join(str(error).split())[:200]
        return Shortage(
            f"a library cannot be loaded: {text or error.name or 'without a reason'}",
            help="give the process more memory, or install the packages of kvtool again",
        )
    return None


# A bound on memory. The process that infers apart from this one reads this file and no other.


@contextlib.contextmanager
def bounded_memory(spare: int) -> Iterator[None]:
    """Have allocations in the block fail once the process has grown by `spare` bytes.

    Without a bound, C++ code that computes sizes from a hostile model fills the memory of the
    machine until the system kills it. The bound applies to all threads. It needs Linux, which
    enforces a limit on the address space; elsewhere the block runs unbounded.

    Raises:
        MemoryError: From within the block, where it takes more.
    """
    size = _address_space()
    if size is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = size + spare
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Return the bytes of address space that the process has; None where that is unknown."""
    if sys.platform != "linux":
        return None
    import resource

    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):  # a container without /proc
        return None


# Pausing Python's cycle collector while a model is built or written.


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cycle collector for the block, in all threads of the process.

    A model is one large cycle that is all alive: while 100,000 objects are added to it, the
    collector walks all of it again and again and finds nothing, which takes a third of the time.
    A block within a block changes nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def collect_rarely() -> None:
    """Let Python's cycle collector run after 500,000 new objects."""
    # The imports and the model of one command are 400,000 objects that live until it ends: with
    # Python's threshold of 700, the collector goes through all of them again and again and frees
    # none, which takes a tenth of the time. A check of many files still drops them.
    gc.set_threshold(500_000, 2, 2)


# Progress, for whoever waits.


class Progress(Protocol):
    """Receives the current activity; callable at any rate, never raises."""

    def __call__(self, what: str, part: int = 0, parts: int = 0) -> None:
        """Report the activity that begins.

        Args:
            what: In a few words (`reading the model`); a noun that is counted comes last
                (`verifying, case`).
            part: The part that is begun, from 1; 0 where parts are not counted.
            parts: How many there are; 0 likewise.
        """


def silent(what: str, part: int = 0, parts: int = 0) -> None:
    """Ignore progress: for callers that show none."""
