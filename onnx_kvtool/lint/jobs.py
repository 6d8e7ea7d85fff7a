"""Work on many files in worker processes, and their orderly end."""

from __future__ import annotations

import _thread
import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from types import FrameType
from typing import TypeVar

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.guard.early_sympy import put_off

_AHEAD = 64
"""Items for each worker that are submitted ahead: a slow item keeps no other worker idle, and
memory does not fill with ten thousand results."""

T = TypeVar("T")


@contextlib.contextmanager
def run_jobs(
    work: Callable[[str], T],
    items: Sequence[str],
    jobs: int,
    died: Callable[[str], T],
    *,
    may_copy: bool = False,
    prepare: Callable[[], object] = int,
) -> Iterator[Iterator[T]]:
    """Give the block `work(item)` for each item, in the order of the items.

    Worker processes start before the block and end after it.

    Args:
        work: The work; it does not raise. With worker processes, it and its results are picklable.
        items: The items.
        jobs: Number of worker processes; with 1, or one item, this process does the work.
        died: Makes the result of an item whose worker process died; the others still get theirs.
        may_copy: Whether workers may be forks of this process, which saves each a second of
            imports. Only for a process where no other library has threads: a fork inherits
            their locks without the threads. Threads of Python and of onnxruntime prevent a fork;
            those of OpenBLAS end before it.
        prepare: Called in this process before a fork, so that its imports happen once.

    Raises:
        UsageError: In the block, if no worker process starts, as for a script that calls this at
            its top level: each worker would run the script again.
    """
    if jobs <= 1 or len(items) <= 1:
        yield map(work, items)
        return
    may_copy = may_copy and _is_alone()
    if may_copy:
        prepare()

    def past_deaths(first: Iterator[T]) -> Iterator[T]:
        """Yield all results: of the first pool until a worker dies, then of new ones."""
        done = 0
        for result in first:
            yield result
            done += 1
        while done < len(items):
            # A worker died, and which item killed it is unknown: the next in line goes alone.
            with _pool(work, items[done : done + 1], 1) as results:
                yield from list(results) or [died(items[done])]
            done += 1
            with _pool(work, items[done:], jobs) as results:
                for result in results:
                    yield result
                    done += 1

    with _pool(work, items, jobs, may_copy=may_copy and _is_alone()) as results:
        yield past_deaths(results)


@contextlib.contextmanager
def _pool(
    work: Callable[[str], T], items: Sequence[str], jobs: int, *, may_copy: bool = False
) -> Iterator[Iterator[T]]:
    """Give the block the results in order, until all are done or a worker dies."""
    if not items:
        yield iter(())
        return
    context = multiprocessing.get_context("fork" if may_copy else "spawn")
    is_up = context.Event()
    count = min(jobs, len(items))
    with ProcessPoolExecutor(count, context, initializer=begin, initargs=(is_up,)) as executor:

        def submitted() -> Iterator[Future[T]]:
            """Submit one item for each request; none after a worker has died."""
            with contextlib.suppress(BrokenProcessPool):  # which the futures know as well
                for item in items:
                    yield executor.submit(ended_with, work, item)

        def finished() -> Iterator[T]:
            """Yield results until a worker dies, and keep the number of submitted items constant.

            Raises:
                UsageError: If a worker died before any was ready for work: no item is to blame.
            """
            try:
                while begun:
                    result = begun.popleft().result()
                    begun.extend(itertools.islice(waiting, 1))
                    yield result
            except BrokenProcessPool as error:
                if is_up.is_set():
                    return
                raise UsageError(
                    "no worker process could start",
                    help='in a script, call it below `if __name__ == "__main__":`, because each '
                    "worker imports the script; or ask for one job",
                ) from error

        try:
            waiting = submitted()
            begun = deque(itertools.islice(waiting, _AHEAD * count))
            yield finished()
        except BaseException:
            # An interrupt: nobody waits for the workers. The pool notices that they ended and
            # settles what was submitted, which must not be cancelled before (Python 3.11).
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _is_alone() -> bool:
    """Return whether this process can fork, and has no threads that a fork would lose."""
    # The system libraries of macOS keep threads in each process, and Windows cannot copy one.
    if sys.platform != "linux" or "onnxruntime" in sys.modules:
        return False
    return threading.active_count() == 1


_PATIENCE = 5
"""Seconds for a worker to tidy up after the signal to end."""

_at_work = threading.Event()


def begin(is_up: Event) -> None:
    """Make this worker end in order on SIGTERM or after its parent; report that it is ready.

    An interrupt at the keyboard reaches all processes of a terminal; workers leave it to the
    parent, which ends them. The workers of a parent that was killed would wait for work forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_watch_parent, daemon=True).start()
    put_off()
    is_up.set()


def ended_with(work: Callable[[str], T], item: str) -> T:
    """Return `work(item)`; a worker that has to stop tidies up, then exits.

    The pool would take the exception for a result and continue.
    """
    _at_work.set()
    try:
        return work(item)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    finally:
        _at_work.clear()


def _watch_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    if sys.platform == "win32":  # where `kill` ends a process before it has tidied up
        _thread.interrupt_main(signal.SIGTERM)
        time.sleep(_PATIENCE)
        os._exit(128 + signal.SIGTERM)
    else:
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> None:
    """End this worker, which tidies up if it is at work.

    The exception may be lost: in a callback of a weak reference, which an import makes many of, or
    in a library that catches all exceptions. So the system ends a worker that is still at work
    after `_PATIENCE`. Between items there is nothing to tidy up.
    """
    signal.signal(number, signal.SIG_IGN)
    if not _at_work.is_set():
        os._exit(128 + number)
    if sys.platform != "win32":  # which has no such signal, and ends processes without asking
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_PATIENCE)
    sys.exit(128 + number)
