"""Sentences that differ in names only, as those of the layers of a decoder do."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from onnx_kvtool.core.words import counted

__all__ = ["and_others", "form", "groups_alike"]

_T = TypeVar("_T")

_NAME = re.compile(r"(?<!size )`[^`\s()\[\]]*[^`\s()\[\]0-9][^`\s()\[\]]*`")
"""A name between backticks: one word, no number, and not that of a size."""


def form(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return sentences with a number for each name, so that those of two layers are one.

    Sizes and expressions stay: they are what a proof says.
    """
    numbers: dict[str, int] = {}
    return tuple(
        _NAME.sub(lambda name: f"`#{numbers.setdefault(name[0], len(numbers))}`", sentence)
        for sentence in sentences
    )


def groups_alike(items: Iterable[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Gather what has one key, in the order of the first of each."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def and_others(label: str, others: int) -> str:
    """Return a label that stands for itself and for some others."""
    return f"{label} and {counted(others, 'other')} alike" if others else label
