"""Work on many files on the user's Dask cluster."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from onnx_kvtool import __version__
from onnx_kvtool.core.errors import Shortage, UsageError

_AHEAD = 16
"""Files to submit ahead, for each thread of the cluster."""

_PATIENCE = 30  # seconds to wait for an answer of a cluster
_KNOCK = 5  # seconds to wait for a scheduler's connection and greeting
_MOST_FRAMES = 1_000  # of the greeting: its first eight bytes are their number

_LOST = 300  # seconds without any worker after which none is expected to come back

_one_at_a_time = threading.Lock()

T = TypeVar("T")


@contextlib.contextmanager
def run_on_cluster(
    work: Callable[[str], T], items: Sequence[str], address: str, died: Callable[[str], T]
) -> Iterator[Iterator[T]]:
    """Give the block `work(item)` for each item, in the order of the items.

    Another worker does the work of a lost one. If workers die repeatedly at an item, it is done
    once more alone, because another item may have been the cause. If that kills a worker, too,
    `died` makes the result.

    Args:
        work: The work. It does not raise; it is picklable, and so are its results. A worker does it
            in the current directory of this process, if it has that directory.
        items: The items.
        address: Address of the scheduler, such as `tcp://10.0.0.1:8786`.
        died: Makes the result of an item that kills workers.

    Raises:
        UsageError: If Dask is not installed, if no scheduler answers, or if there is no worker, or
            one with another version of kvtool.
        Shortage: In the block, if there is no worker for five minutes.
    """
    distributed = _distributed()
    try:
        _knock(address)
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"no scheduler of Dask answers at `{address}`",
            help="start one with `dask scheduler`, and name the address that it prints",
        ) from error
    with client:
        threads = _threads(client, address)
        yield _results(distributed, client, work, items, died, _AHEAD * threads)


def _knock(address: str) -> None:
    """Open a connection to a scheduler, wait for its greeting, and close it.

    Dask itself tries for half a minute if nobody listens, and waits forever for a silent server.

    Raises:
        OSError: If nobody answers at a host and port; no other address is looked at.
    """
    place = re.fullmatch(r"(?:(tcp|tls|wss?)://)?\[?([^/]+?)\]?:([0-9]{1,5})/?", address)
    if place is None:
        return
    import dask.config

    scheme = place[1] or dask.config.get("distributed.comm.default-scheme", "tcp")
    with socket.create_connection((place[2], int(place[3])), timeout=_KNOCK) as connection:
        if scheme == "tcp":  # elsewhere the client speaks first
            frames = int.from_bytes(connection.recv(8), "little")
            if not 0 < frames < _MOST_FRAMES:
                raise ConnectionError("what answers is no scheduler")


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            "`--dask` needs the package `distributed`, which is not installed",
            help="`pip install 'onnx-kvtool[dask]'`",
        ) from error
    return distributed


def _threads(client: Any, address: str) -> int:
    """Return the number of threads of the workers. All workers have this version of kvtool."""
    versions: dict[str, str | None] = client.run(_installed)
    if not versions:
        raise UsageError(
            f"the scheduler at `{address}` has no worker",
            help=f"start some with `dask worker {address}`",
        )
    for worker, version in sorted(versions.items()):
        if version != __version__:
            has = "no kvtool" if version is None else f"kvtool {version}"
            raise UsageError(
                f"the worker `{worker}` has {has}, expected {__version__}",
                help=f"`pip install onnx-kvtool=={__version__}` where the workers run",
            )
    return sum(client.nthreads().values())


def _installed() -> str | None:
    """Return the version of kvtool on a worker; None if it has none."""
    # Sent as a whole: a worker without kvtool could not import this module.
    import importlib

    try:
        return str(importlib.import_module("onnx_kvtool").__version__)
    except ImportError:
        return None


_installed.__module__ = "__main__"


def _results(
    distributed: Any,
    client: Any,
    work: Callable[[str], T],
    items: Sequence[str],
    died: Callable[[str], T],
    ahead: int,
) -> Iterator[T]:
    """Yield results in order; at most `ahead` items are under way."""
    place = os.getcwd()

    def submitted(item: str) -> Any:
        return client.submit(_there, work, item, place, pure=False)

    todo = iter(items)
    begun: deque[tuple[str, Any]] = deque(
        (item, submitted(item)) for item in itertools.islice(todo, ahead)
    )

    def waited(ask: Callable[..., Any]) -> Any:
        return _waited(distributed, client, ask)

    while begun:
        item, future = begun.popleft()
        try:
            result = waited(future.result)
        except distributed.KilledWorker:
            for _, other in begun:
                waited(other.exception)  # so that nothing else runs on the workers
            try:
                result = waited(submitted(item).result)
            except distributed.KilledWorker:
                result = died(item)
        begun.extend((item, submitted(item)) for item in itertools.islice(todo, 1))
        yield result


def _waited(distributed: Any, client: Any, ask: Callable[..., Any]) -> Any:
    """Return the result of a future; wait as long as there are workers.

    A nanny does not restart a worker that dies while it starts, and Dask waits forever for others.
    """
    since = time.monotonic()
    while True:
        try:
            return ask(timeout=min(_PATIENCE, _LOST))
        except distributed.TimeoutError:  # noqa: PERF203 - once in half a minute
            if client.nthreads():
                since = time.monotonic()
            elif time.monotonic() - since >= _LOST:
                raise Shortage(
                    f"the cluster has had no worker for {_LOST} seconds, and models are left",
                    help="start workers, and check again: `--cache-dir` keeps what is done",
                ) from None


def _there(work: Callable[[str], T], item: str, place: str) -> T:
    """Do the work on a worker, one item at a time, as in a separate process."""
    with _one_at_a_time:
        here = os.getcwd()
        with contextlib.suppress(OSError):  # files that are named by URLs need no directory
            os.chdir(place)
        try:
            return work(item)
        finally:
            os.chdir(here)
