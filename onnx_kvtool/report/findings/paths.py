"""Paths of models as other tools want them."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from onnx_kvtool.core.files.remote import is_remote

__all__ = ["shown_path", "uri"]

_STANDARD_INPUT = "stdin"


def shown_path(path: str) -> str:
    """Return a path relative to the current directory, with `/` between its parts.

    A path outside of the current directory is absolute. Standard input is `stdin`, and so is a
    model in memory, which has no path.
    """
    if path in ("", "-"):
        return _STANDARD_INPUT
    if is_remote(path):
        return path
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return Path(path).absolute().as_posix()
    if relative.split(os.sep)[0] == os.pardir:
        return Path(os.path.abspath(path)).as_posix()
    return relative.replace(os.sep, "/")


def uri(path: str) -> tuple[str, bool]:
    """Return a path as a URI reference, and whether that is relative to the current directory."""
    shown = shown_path(path)
    if is_remote(shown):
        return shown, False
    if os.path.isabs(shown):
        return Path(shown).as_uri(), False
    return quote(shown.encode("utf-8", "surrogateescape")), True
