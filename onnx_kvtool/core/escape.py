"""Text that comes from a model, made safe to print."""

from __future__ import annotations

__all__ = ["escape"]


def escape(text: str) -> str:
    r"""Return `text` with every character that is not printable written as an escape (`\x1b`).

    Names in a model are arbitrary: a line break would fake a line of the report, and an escape
    sequence would act on the terminal. Spaces stay; so does every printable character of any
    script.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
