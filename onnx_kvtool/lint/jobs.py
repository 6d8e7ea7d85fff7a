"""Doing one thing to many files, in worker processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

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
    # Fresh interpreters: a copy of this process could hold locks of threads that it has not.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(items)), context) as pool:
        futures: list[Future[T]] = []
        try:
            for item in items:
                futures.append(pool.submit(work, item))  # noqa: PERF401 - it may break underway
            for future in futures:
                yield future.result()
        except BrokenProcessPool:
            return
        finally:
            for future in futures:
                future.cancel()


def _alone(work: Callable[[str], T], item: str, died: Callable[[str], T]) -> T:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        try:
            return pool.submit(work, item).result()
        except BrokenProcessPool:
            return died(item)
