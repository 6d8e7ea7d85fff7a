"""Patterns of paths, as `.gitignore` writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["PathPatterns", "is_pattern"]


def is_pattern(line: str) -> bool:
    """Return whether a line can stand in `.gitignore` and mean something."""
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


class PathPatterns:
    """Patterns that stand in one directory.

    Args:
        lines: The patterns, with the meaning that lines of `.gitignore` have: `*.onnx` anywhere
            below, `/a` here alone, `a/` for a directory with all that is in it, `!` for exceptions.
        base: Absolute directory to which they are relative.
    """

    def __init__(self, lines: Iterable[str], base: str) -> None:
        from pathspec import GitIgnoreSpec

        self._spec = GitIgnoreSpec.from_lines(lines)
        self._base = base

    def match(self, path: str, *, is_directory: bool = False) -> bool:
        """Return whether a path is meant; one outside of the directory never is.

        Args:
            path: The path, relative to the current directory or absolute; it need not exist.
            is_directory: Whether it is a directory, which patterns that end in `/` ask for.
        """
        return self.verdict(path, is_directory=is_directory) is True

    def verdict(self, path: str, *, is_directory: bool = False) -> bool | None:
        """Return whether a path is meant; None where no pattern speaks of it."""
        try:
            relative = os.path.relpath(os.path.abspath(path), self._base)
        except ValueError:  # another drive
            return None
        if relative == os.curdir or relative.split(os.sep)[0] == os.pardir:
            return None
        posix = relative.replace(os.sep, "/") + ("/" if is_directory else "")
        return self._spec.check_file(posix).include
