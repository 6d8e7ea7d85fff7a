"""Data on standard output."""

from __future__ import annotations

import click

from onnx_kvtool.core.errors import UnwritableOutput

__all__ = ["as_unwritable", "write_data"]


def write_data(text: str) -> None:
    """Write `text` and a line end to standard output, at once.

    Raises:
        BrokenPipeError: If the reader has gone.
        UnwritableOutput: If the system refuses otherwise, as when the disk is full.
    """
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableOutput(f"cannot write to standard output: {error.strerror}") from error


def as_unwritable(error: Exception) -> UnwritableOutput | None:
    """Return what to tell the user of an exception from a print to standard output.

    Returns:
        The error; None for any other exception, such as one that names a file.
    """
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return UnwritableOutput(f"cannot write to standard output: {error.strerror}")
    return None
