"""A bound on what a block of foreign code may allocate."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

__all__ = ["bounded_memory"]


@contextlib.contextmanager
def bounded_memory(spare: int) -> Iterator[None]:
    """Have allocations in the block fail once the process has grown by `spare` bytes.

    C++ code that computes sizes from a hostile model would otherwise fill the memory of the machine
    and be killed. Other threads are bound as well. Works on Linux only, where the address space of
    a process has a limit that is kept; elsewhere the block runs unbounded.

    Args:
        spare: Bytes of address space that the block may take beyond what the process has.

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
    """Return the bytes of address space that the process has; None where that is not known."""
    if sys.platform != "linux":
        return None
    import resource

    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):  # a container without /proc
        return None
