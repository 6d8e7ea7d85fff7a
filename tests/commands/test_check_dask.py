"""Files on a cluster of Dask: nothing is lost with a worker, and no model stops the run."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnx_kvtool.commands import check_dask
from onnx_kvtool.commands.check import run, stream
from onnx_kvtool.commands.check_dask import run_on_cluster
from onnx_kvtool.commands.requests import CheckRequest
from onnx_kvtool.core.errors import Shortage, UsageError
from onnx_kvtool.lint.report import CheckReport, FileReport

pytestmark = pytest.mark.long

distributed = pytest.importorskip("distributed")

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "fixtures"


def small(item: str) -> str:
    """Kill the worker if told to; else take a moment, and double the item."""
    if item == "kills":
        os._exit(7)
    time.sleep(0.02)
    return item * 2


def died(item: str) -> str:
    return f"{item} died"


def nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_kvtool.commands.check_dask._PATIENCE", 1)


def test_no_scheduler_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_there(monkeypatch)
    with (
        pytest.raises(UsageError, match=r"no scheduler of Dask answers at `tcp://127\.0\.0\.1:9`"),
        run_on_cluster(small, ["a"], "tcp://127.0.0.1:9", died),
    ):
        pass


def test_without_dask_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="needs the package `distributed`") as caught:
        run(CheckRequest(paths=("a.onnx",), isolated=True, dask="tcp://127.0.0.1:9"))
    assert caught.value.help == "`pip install 'onnx-kvtool[dask]'`"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"fix": True}, "`--fix` replaces files"),
        ({"paths": ("-",)}, "standard input"),
    ],
)
def test_what_workers_cannot_do_is_refused(flags: dict[str, object], message: str) -> None:
    options = {"paths": ("a.onnx",), "isolated": True, "dask": "tcp://127.0.0.1:9", **flags}
    with pytest.raises(UsageError, match=message):
        run(CheckRequest(**options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Two worker processes, which come back when they die."""
    import dask

    failures = dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with (
        failures,
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
    ):
        yield made


@pytest.mark.slow
def test_a_poisonous_item_is_told_and_the_others_are_done(cluster) -> None:  # type: ignore[no-untyped-def]
    items = [*map(str, range(40)), "kills", *map(str, range(40, 60))]
    with run_on_cluster(small, items, cluster.scheduler_address, died) as results:
        found = list(results)
    assert found == [died(item) if item == "kills" else item * 2 for item in items]


@pytest.mark.slow
def test_a_cluster_that_has_lost_all_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_dask, "_LOST", 1)
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as made,
        run_on_cluster(small, [*map(str, range(200))], made.scheduler_address, died) as results,
    ):
        made.scale(0)
        with pytest.raises(Shortage, match="no worker for 1 seconds, and models are left"):
            list(results)


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_loses_nothing(
    cluster, tmp_path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    sources = sorted(p for p in FIXTURE.rglob("*.onnx") if p.stat().st_size < 20_000)
    for number in range(60):
        shutil.copy(sources[number % len(sources)], tmp_path / f"{number:02}.onnx")
    monkeypatch.chdir(tmp_path)
    here = CheckRequest(paths=(".",), isolated=True)
    expected = run(here).to_json()
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        pids = client.run(os.getpid)
        assert len(pids) == 2

    files: list[FileReport] = []

    def take(file: FileReport) -> None:
        files.append(file)
        if len(files) == 5:
            os.kill(next(iter(pids.values())), signal.SIGKILL)

    stream(CheckRequest(paths=(".",), isolated=True, dask=cluster.scheduler_address), take)
    assert CheckReport(tuple(files)).to_json() == expected


@pytest.mark.parametrize(
    ("scheme", "greeting"),
    [
        ("ws://", None),
        *itertools.product(("tcp://", ""), (None, b"", b"HTTP/1.0 400 Bad Request\r\n\r\n")),
    ],
)
def test_what_is_no_scheduler_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, scheme: str, greeting: bytes | None
) -> None:
    """Nobody listens, or what listens is silent or speaks otherwise."""

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("Dask was asked, which takes half a minute or does not end")

    def greet() -> None:
        with contextlib.suppress(OSError):
            listener.accept()[0].sendall(greeting or b"")

    monkeypatch.setattr("distributed.Client", asked)
    monkeypatch.setattr("onnx_kvtool.commands.check_dask._KNOCK", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if greeting is None:
            listener.close()
        elif greeting:
            threading.Thread(target=greet, daemon=True).start()
        with (
            pytest.raises(UsageError, match="no scheduler of Dask answers"),
            run_on_cluster(small, ["a"], f"{scheme}127.0.0.1:{port}", died),
        ):
            pass
