"""How much memory is left."""

from __future__ import annotations

import os

__all__ = ["available_memory"]


def available_memory() -> int | None:
    """Return the bytes of memory that can still be had; None where the system does not say."""
    found = [_meminfo(), _limit("/sys/fs/cgroup/memory.max")]
    known = [number for number in found if number is not None]
    if known:
        return min(known)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None


def _meminfo() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
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
