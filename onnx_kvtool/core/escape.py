"""Text that comes from a model, made safe to print."""

from __future__ import annotations

import re

__all__ = ["escape", "escape_lines"]

_COMMAND = re.compile(r"(?P<before>^ *):(?=:)|#(?=#(\[|vso\[))")
"""The first character of what the log of a CI job obeys: GitHub Actions, Azure Pipelines."""


def escape(text: str) -> str:
    r"""Return `text` in one line, with whatever acts on its reader written as an escape (`\x1b`).

    Strings in a model are arbitrary: a line break would fake a line of the report, an escape
    sequence would act on the terminal, and `::error` at the start or `##[error]` anywhere is a
    command to the log of a CI job. Spaces stay; so does every printable character of any script.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _written(char) for char in text)
    if "::" in text or "##" in text:
        text = _COMMAND.sub(lambda found: (found["before"] or "") + _code(found[0][-1]), text)
    return text


def escape_lines(text: str) -> str:
    """Return text of several lines with each line escaped, such as a traceback."""
    return "\n".join(map(escape, text.split("\n")))


def _written(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def _code(char: str) -> str:
    return f"\\x{ord(char):02x}"
