"""What Windows says of memory, which has no files that tell it."""

from __future__ import annotations

import ctypes
from typing import Any


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


def available_memory() -> int | None:
    """Return the bytes that can be had without paging; None elsewhere, or if Windows refuses.

    A process may have fewer addresses than that, as one of 32 bits has.
    """
    if (kernel := _kernel()) is None:
        return None
    status = _Status(length=ctypes.sizeof(_Status))
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(min(status.available_physical, status.available_virtual))


def used_memory() -> int | None:
    """Return the bytes that this process has; None elsewhere, or if Windows refuses."""
    counters = _counters()
    return None if counters is None else counters.working_set


def peak_memory() -> int | None:
    """Return the most bytes that this process ever had; None elsewhere, or if Windows refuses."""
    counters = _counters()
    return None if counters is None else counters.peak_working_set


def _counters() -> Any | None:
    if (kernel := _kernel()) is None:
        return None
    counters = _Counters(length=ctypes.sizeof(_Counters))
    kernel.GetCurrentProcess.restype = ctypes.c_void_p  # a handle, -1 of the width of a pointer
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    size = ctypes.c_uint32(counters.length)
    found = kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), size)
    return counters if found else None


def _kernel() -> Any | None:
    """Return the library of the system; None elsewhere."""
    load = getattr(ctypes, "WinDLL", None)
    return None if load is None else load("kernel32")
