"""Saying what is under way, to whoever waits for it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """Takes what is being done now; called as often as one likes, and does not raise."""

    def __call__(self, what: str, part: int = 0, parts: int = 0) -> None:
        """Say what is begun.

        Args:
            what: In a few words (`reading the model`); a noun that is counted comes last
                (`verifying, case`).
            part: The part that is begun, from 1; 0 where parts are not counted.
            parts: How many there are; 0 likewise.
        """


def silent(what: str, part: int = 0, parts: int = 0) -> None:
    """Say nothing: the `Progress` of those for whom nobody waits."""
