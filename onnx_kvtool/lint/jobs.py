"""Doing one thing to many files, in worker processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from typing import TypeVar

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.worker import begin, ended_with

__all__ = ["run_jobs"]

T = TypeVar("T")


def run_jobs(
    work: Callable[[str], T], items: Sequence[str], jobs: int, died: Callable[[str], T]
) -> Iterator[T]:
    """Yield `work(item)` for each item, in the order of the items.

    Args:
        work: What is to be done; it does not raise. With worker processes, it and its results must
            be picklable, and it runs in a fresh interpreter.
        items: What it is done to.
        jobs: Number of worker processes; with 1, or one item, it is done in this process.
        died: Makes the result of an item whose worker process died under it. Such an item does not
            keep the others from their results.

    Raises:
        UsageError: If no worker process comes up, such as those of a script that calls this at its
            top level: each would run the script once more.
    """
    if jobs <= 1 or len(items) <= 1:
        for item in items:
            yield work(item)
        return
    done = 0
    while done < len(items):
        for result in _pool(work, items[done:], jobs):
            yield result
            done += 1
        if done < len(items):
            # A worker died, and which item killed it is not known: the next in line goes alone.
            yield _alone(work, items[done], died)
            done += 1


def _pool(work: Callable[[str], T], items: Sequence[str], jobs: int) -> Iterator[T]:
    """Yield results in order until all are there, or a worker has died."""
    pool, is_up = _workers(min(jobs, len(items)))
    with pool:
        futures: list[Future[T]] = []
        try:
            for item in items:
                futures.append(pool.submit(ended_with, work, item))  # noqa: PERF401 - it may break
            for future in futures:
                yield future.result()
        except BrokenProcessPool as error:
            _blame_start(is_up, error)
            return
        except BaseException:
            # An interrupt: nobody waits for what the workers are at. The pool finds them gone and
            # settles what was submitted, which must not have been cancelled then (Python 3.11).
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _workers(count: int) -> tuple[ProcessPoolExecutor, Event]:
    """Return a pool, and what is set as soon as one of its workers is ready for work."""
    # Fresh interpreters: a copy of this process could hold locks of threads that it has not.
    context = multiprocessing.get_context("spawn")
    is_up = context.Event()
    return ProcessPoolExecutor(count, context, initializer=begin, initargs=(is_up,)), is_up


def _alone(work: Callable[[str], T], item: str, died: Callable[[str], T]) -> T:
    pool, is_up = _workers(1)
    with pool:
        try:
            return pool.submit(ended_with, work, item).result()
        except BrokenProcessPool as error:
            _blame_start(is_up, error)
            return died(item)


def _blame_start(is_up: Event, error: BrokenProcessPool) -> None:
    """Raise where the workers of a pool died before they were ready: no item is to blame.

    Raises:
        UsageError: If none was ever ready.
    """
    if not is_up.is_set():
        raise UsageError(
            "no worker process could start",
            help='in a script, call it below `if __name__ == "__main__":`, because each worker '
            "imports the script; or ask for one job",
        ) from error
