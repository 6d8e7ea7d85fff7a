"""The memory that is available and used, and returning freed memory to the system."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_REST = 0.005
"""Seconds: a model makes some 50 MB at most in this time, and a small one runs several times."""
_last = {"trim": -math.inf}


def give_back(*, at_once: bool = False) -> None:
    """Return freed memory to the system, if the allocator supports that.

    glibc keeps it: runs of a model with values of 30 MB each would hold hundreds of MB. A search of
    the whole heap may take as long as a run of a small model.

    Unless `at_once`, nothing happens within a few milliseconds of the last time.
    """
    trim = _trim()
    if trim is not None and (at_once or time.monotonic() - _last["trim"] > _REST):
        trim(0)
        _last["trim"] = time.monotonic()


@lru_cache(maxsize=1)
def _trim() -> Callable[[int], object] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


def available_memory() -> int | None:
    """Return the bytes of memory that are available; None if the system does not say."""
    found = [
        _field("/proc/meminfo", "MemAvailable:"),
        _limit("/sys/fs/cgroup/memory.max"),
        _windows_available(),
    ]
    known = [number for number in found if number is not None]
    if known:
        return min(known)
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
        return os.sysconf("SC_PAGE_SIZE") * pages if pages > 0 else None
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None


def used_memory() -> int | None:
    """Return the bytes of memory that this process uses; None if the system does not say."""
    return _own("VmRSS:") or _counted("working_set")


def peak_memory() -> int | None:
    """Return the most bytes that this process ever used; None if the system does not say."""
    return _own("VmHWM:") or _counted("peak_working_set")


def private_memory(process: int) -> int | None:
    """Return the bytes that a process uses beside mapped files; None if Linux does not say."""
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            resident, shared = file.read().split()[1:3]
    except (OSError, ValueError):  # not Linux, or the process has ended
        return None
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def bound_data(spare: int) -> None:
    """Let allocations of this process fail after its data has grown by `spare` bytes (Linux)."""
    import resource  # Windows has none

    size = _own("VmData:")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if size is not None and (hard == resource.RLIM_INFINITY or size + spare < hard):
        resource.setrlimit(resource.RLIMIT_DATA, (size + spare, hard))


def _own(field: str) -> int | None:
    # `getrusage` counts what the parent had before it started this program.
    return _field("/proc/self/status", field)


def _field(path: str, field: str) -> int | None:
    """Return the bytes that a line of a file of Linux states in KiB; None elsewhere."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(field):
                    return int(line.split()[1]) << 10
    except OSError:  # not Linux
        return None
    return None


def _limit(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:  # no control groups
        return None
    return int(text) if text.isdigit() else None


# The same on Windows, which has no such files.


class _Status(ctypes.Structure):
    """MEMORYSTATUSEX; types are of fixed widths, since Windows has longs of 4 bytes."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total_physical", ctypes.c_uint64),
        ("available_physical", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended_virtual", ctypes.c_uint64),
    )


class _Counters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        ("peak_working_set", ctypes.c_size_t),
        ("working_set", ctypes.c_size_t),
        ("quotas", ctypes.c_size_t * 4),
        ("page_file", ctypes.c_size_t),
        ("peak_page_file", ctypes.c_size_t),
    )


def _windows_available() -> int | None:
    """Return the bytes that are available without paging; None elsewhere, or if Windows refuses.

    The addresses of a process, such as one of 32 bits, may limit it further.
    """
    if (kernel := _kernel()) is None:
        return None
    status = _Status(length=ctypes.sizeof(_Status))
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(min(status.available_physical, status.available_virtual))


def _counted(field: str) -> int | None:
    """Return a memory counter of this process; None elsewhere, or if Windows refuses."""
    if (kernel := _kernel()) is None:
        return None
    counters = _Counters(length=ctypes.sizeof(_Counters))
    kernel.GetCurrentProcess.restype = ctypes.c_void_p  # a handle, -1 of the width of a pointer
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    size = ctypes.c_uint32(counters.length)
    found = kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), size)
    return getattr(counters, field) if found else None


def _kernel() -> Any | None:
    """Return the library of the system; None elsewhere."""
    load = getattr(ctypes, "WinDLL", None)
    return None if load is None else load("kernel32")
