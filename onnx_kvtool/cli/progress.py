"""A progress bar on standard error, for people who wait."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]

_PATIENCE = 1.0  # seconds


@contextlib.contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield what shows how many of how many are done; None where nobody looks at it.

    The bar appears on a terminal alone, and when a second has passed with work left; it is gone
    after the block.
    """
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        show: list[Callable[[int, int], None]] = []

        def progress(done: int, total: int) -> None:
            if not show and done < total and time.monotonic() - start > _PATIENCE:
                from onnx_kvtool.report.text import bar

                show.append(stack.enter_context(bar()))
            if show:
                show[0](done, total)

        yield progress
