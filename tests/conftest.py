"""Fixtures and settings that every test shares."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from click.testing import CliRunner, Result
from packaging.version import Version

from onnx_kvtool.cli import app
from onnx_kvtool.runtime import confined as room
from onnx_kvtool.runtime import memory

ROOT = Path(__file__).resolve().parent.parent

_WIDE = 30
"""Files of tests from which on starting several processes pays."""
_PROCESSES = 8
"""Most processes: each takes half a gigabyte."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Share many tests out among processes, where pytest-xdist is there and `-n` is not given.

    Not so the slow ones, which take the memory or measure the time of the whole machine, nor those
    of other releases, which install an environment where there is none.
    """
    option = config.option
    # A worker runs this hook as well, and is not to have workers of its own.
    if not config.pluginmanager.hasplugin("xdist") or _is_worker():
        return
    if option.numprocesses is not None:
        return
    is_alone = _asks(config, "slow") or _asks(config, "compat")
    if is_alone or option.collectonly or option.usepdb or option.trace:
        return
    paths = [Path(path.partition("::")[0]) for path in config.args]
    if sum(len([*path.rglob("test_*.py")]) for path in paths if path.is_dir()) >= _WIDE:
        option.numprocesses = min(_processors(), _PROCESSES)
        # A thread of numpy for each processor in each of them would only wait for the others.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        option.dist = "worksteal"  # neighbours stay together, and share what a module caches


def _asks(config: pytest.Config, mark: str) -> bool:
    """Return whether `-m` selects what has a mark."""
    asked = config.option.markexpr
    return mark in asked and f"not {mark}" not in asked


def pytest_configure(config: pytest.Config) -> None:
    """Say what a property draws, and where bytecode is kept.

    A property that fails prints how to run the very example again; time limits are for benchmarks.
    CI draws the same examples each time, so that what lands does not depend on luck; every other
    run searches on.
    """
    if sys.dont_write_bytecode and not _has_workers(config):
        _keep_bytecode(config)
    # pytest rewrites hypothesis, a second of work, and keeps that where bytecode is kept.
    from hypothesis import settings

    from tests.grids import drawn

    settings.register_profile(
        "kvtool",
        drawn(exhaustive=_asks(config, "exhaustive"), slow=_asks(config, "slow")),
        deadline=None,
        print_blob=True,
        derandomize="CI" in os.environ,
    )
    settings.load_profile("kvtool")


def _keep_bytecode(config: pytest.Config) -> None:
    """Keep the bytecode of tests, and of the processes that they start, in the cache of pytest.

    Where nothing is to be written beside the sources, every run rewrites the assertions of each
    module of tests, and each of hundreds of processes compiles all of kvtool: a quarter of a run.
    """
    if not hasattr(config, "cache"):  # `-p no:cacheprovider`
        return
    # What is installed has bytecode, which is not looked for once this is set.
    import onnx_ir  # noqa: F401
    import onnxruntime  # noqa: F401

    directory = str(config.cache.mkdir("bytecode"))
    sys.pycache_prefix, sys.dont_write_bytecode = directory, False
    os.environ["PYTHONPYCACHEPREFIX"] = directory
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _has_workers(config: pytest.Config) -> bool:
    return bool(getattr(config.option, "numprocesses", None)) and not _is_worker()


def _is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # neither macOS nor Windows has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="run one case of each test, and no property test or long one: the loop while working",
    )


def _left_out(config: pytest.Config) -> set[str]:
    """Return the marks of cases that `-m` and `--quick` leave out."""
    asked, marks = config.option.markexpr, ("compat", "exhaustive", "slow")
    found = {mark for mark in marks if f"not {mark}" in asked and " or " not in asked}
    return found | {"long"} if config.option.quick else found


_RARE = ("compat", "slow")
"""Marks that one file of ten has. It names them itself, which the exhaustive run holds."""


@functools.cache
def _names(path: Path, mark: str) -> bool:
    return f"mark.{mark}" in path.read_text(encoding="utf-8")


_MARKED = re.compile(r"^pytestmark = .*pytest\.mark\.(\w+)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file all of whose tests are left out, unless it is named."""
    if collection_path.suffix != ".py":
        return None
    asked = config.option.markexpr
    if asked in _RARE:
        return None if _names(collection_path, asked) else True
    found = _MARKED.search(collection_path.read_text(encoding="utf-8"))
    return True if found and found[1] in _left_out(config) else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Leave cases to the exhaustive run, and make none that are left out: it takes as long as many.

    Which of them `-k` and names of cases choose is known when all are made.
    """
    yield
    from tests.grids import thins_out

    config, calls = metafunc.config, metafunc._calls
    for number, call in enumerate(calls):
        if thins_out(metafunc.definition, number):
            call.marks.append(pytest.mark.exhaustive.mark)
    if not config.option.keyword and not any("::" in path for path in config.args):
        unwanted = _left_out(config)
        kept = [call for call in calls if unwanted.isdisjoint(mark.name for mark in call.marks)]
        calls[:] = kept[: 1 if config.option.quick else None] or calls[:1]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Leave the first case of each test for `--quick`, of those that other options select.

    Properties are left out first: where there is none, hypothesis does not read all of kvtool for
    the constants in it.
    """
    if not config.option.quick:
        return (yield)
    _leave(items, [item for item in items if not _is_property(item)], config)
    yield
    first: dict[str, pytest.Item] = {}
    for item in items:
        if item.get_closest_marker("long") is None:
            first.setdefault(item.nodeid.partition("[")[0], item)
    _leave(items, [*first.values()], config)
    return None


def _leave(items: list[pytest.Item], kept: list[pytest.Item], config: pytest.Config) -> None:
    known = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in known])
    items[:] = kept


def _is_property(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Search for no garbage while tests are collected: all of a million objects stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of every later search for garbage.

    The threshold is that of the command line, which sets its own.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(500_000)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the exhaustive run draw all examples of properties, and hold where marks are named."""
    # Processes that share tests out know them by name; the order of a set they cannot agree on
    # either, which nobody sees here.
    assert not re.search(r" at 0x[0-9a-f]{6}", item.nodeid), f"an address names {item.nodeid}"
    if not _asks(item.config, "exhaustive"):
        return
    if _is_property(item):
        item.add_marker("exhaustive")
    for mark in item.iter_markers():
        is_named = mark.name not in _RARE or _names(item.path, mark.name)
        assert is_named, f"`pytest -m {mark.name}` passes over {item.path}: it names no such mark"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Tell the process that collects results of a test that it passed, and no more than that.

    Else it is told six things of each test, which takes as long as many a test. What fails is told
    whatever it is.
    """
    if not _is_worker() or item.config.option.xmlpath:  # a file of JUnit has the times of all
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


_confined = room.confined
_test = {"forks": True}


def _done_here(work: Callable[..., Any], limits: room.Limits, progress: Callable[..., None]) -> Any:
    """Do work in this process, and hand on its result as `confined` does, unless a test forks.

    A fork copies the page tables of a process that holds all tests: a tenth of a second each.
    """
    if _test["forks"]:
        return _confined(work, limits, progress)
    kind, *content = pickle.loads(room._answer(work, limits, progress))
    if kind == "memory":
        raise room._too_much(limits)
    if kind == "error":
        raise content[0] from room._Remote(content[1])
    return content[0]


room.confined = _done_here  # before a module takes it from there
_trim = memory._trim


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say where models run, and skip what the installed onnxruntime is too old for.

    Python 3.10 gets no onnxruntime above 1.23.
    """
    _test["forks"] = any(item.get_closest_marker(name) for name in ("forks", "slow", "compat"))
    # The heap of a process that holds all tests takes long to search for memory to give back.
    memory._trim = _trim if _test["forks"] else lambda: None
    for mark in item.iter_markers("needs_onnxruntime"):
        (wanted,) = mark.args
        installed = version("onnxruntime")
        if Version(installed) < Version(wanted):
            pytest.skip(f"needs onnxruntime {wanted}, got {installed}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip a test whose model the onnxruntime of Python 3.10 rejects for its opset or a kernel."""
    try:
        return (yield)
    except Exception as error:
        if Version(version("onnxruntime")) < Version("1.28") and _BEYOND.search(str(error)):
            pytest.skip(f"onnxruntime {version('onnxruntime')}: {error}")
        raise


_BEYOND = re.compile(
    r"Unsupported model IR version|Current official support|Could not find an implementation"
)


@pytest.fixture
def root() -> Path:
    """The directory of the checkout."""
    return ROOT


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text without colour and at a fixed width, whatever the terminal of the tester is."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def kvtool(plain_environment: None) -> Callable[..., Result]:
    """Run `kvtool` with these arguments in this process."""

    def run(*args: str | os.PathLike[str], input: bytes | None = None) -> Result:
        arguments = [os.fspath(arg) for arg in args]
        return CliRunner().invoke(app, arguments, input=input, catch_exceptions=False)

    return run


@pytest.fixture
def kvtool_process(plain_environment: None) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run `kvtool` with these arguments in a process of its own."""

    def run(
        *args: str | os.PathLike[str], input: bytes | None = None, cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "onnx_kvtool", *args]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command,
            input=input,
            cwd=cwd,
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )

    return run
