"""What the numbers were measured on and with."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import onnx_kvtool
from benchmarks.processes.environments import PEERS, shared_versions

__all__ = ["machine", "versions"]


def machine() -> dict[str, str]:
    """Return what describes the machine and Python, without the names of either's places."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    library = " ".join(platform.libc_ver())
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{pages * size / (1 << 30):.0f} GB",
        "system": f"{platform.system()} {platform.machine()}, {library}".rstrip(", "),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def versions() -> dict[str, str]:
    """Return the versions of kvtool, of the peers, and of what both are run with, by package."""
    found = {**shared_versions(), **PEERS}
    return {"onnx-kvtool": onnx_kvtool.__version__, **dict(sorted(found.items()))}


def _processor() -> str:
    """Return what the system calls the processor."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
