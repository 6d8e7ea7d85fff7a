"""What the processes run in: fresh environments, and what is installed there.

One environment has kvtool as its wheel installs it, with compiled modules; the other one has the
peers. Both are made on first use and kept where those of the compatibility tests are
(`KVTOOL_COMPAT_CACHE`). Packages that several of them share have the versions of the interpreter
that runs the benchmarks.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tests.compat.environments import environment

__all__ = ["PEERS", "kvtool_programs", "peer_programs", "repository_programs", "shared_versions"]

PEERS = {
    "onnx-doctor": "0.2.0",
    "onnx-graphsurgeon": "0.6.1",
    "onnxsim": "0.8.1",
    "onnxslim": "0.1.98",
    "polygraphy": "0.53.6",
}
"""The peers that are measured, and onnx-graphsurgeon, which polygraphy needs for the most of it."""

_SHARED = (
    "click",
    "ml_dtypes",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "onnxscript",
    "pathspec",
    "protobuf",
    "rich",
    "sympy",
)
_EXTRAS = ("aiohttp", "distributed", "fsspec")
"""What the extras `dask` and `remote` install."""
_ROOT = Path(__file__).resolve().parents[2]


def shared_versions() -> dict[str, str]:
    """Return the version of each package that both environments and this interpreter have."""
    return {name: version(name) for name in _SHARED}


@cache
def kvtool_programs() -> Path:
    """Return the directory of `kvtool` and `python`, where this checkout is installed anew."""
    return _with_kvtool(_programs("kvtool", shared_versions().items()))


@cache
def repository_programs() -> Path:
    """Return the same of an environment that has Dask and fsspec as well."""
    versions = {**shared_versions(), **{name: version(name) for name in _EXTRAS}}
    return _with_kvtool(_programs("repositories", versions.items()))


def _with_kvtool(programs: Path) -> Path:
    """Install this checkout into an environment, as its wheel does it."""
    command: list[str | Path] = [
        programs / "python",
        "-I",
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
    ]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    subprocess.run(
        [*command, "--force-reinstall", _ROOT],
        env={**variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdout=subprocess.DEVNULL,
        timeout=300,
        check=True,
    )
    return programs


@cache
def peer_programs() -> Path:
    """Return the directory of the programs of the peers and of their `python`."""
    return _programs("peers", {**shared_versions(), **PEERS}.items())


def _programs(name: str, versions: Iterable[tuple[str, str]]) -> Path:
    requirements = tuple(f"{package}=={number}" for package, number in versions)
    digest = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:8]
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return environment(
        f"benchmarks-{name}-{digest}-{python}", ("--only-binary=:all:", *requirements)
    ).parent
