"""Data on standard output."""

from __future__ import annotations

import click

from onnx_kvtool.core.errors import KvtoolError

__all__ = ["write_data"]


def write_data(text: str) -> None:
    """Write `text` and a line end to standard output, at once.

    Raises:
        BrokenPipeError: If the reader has gone.
        KvtoolError: If the system refuses otherwise, as when the disk is full.
    """
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise KvtoolError(f"cannot write to standard output: {error.strerror}") from error
