"""Explicit, ordered tables that refuse duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Table(Mapping[K, V], Generic[K, V]):
    """An immutable mapping that keeps the order of its lines.

    Args:
        kind: What a line is (`lowering`, `format`), for the message.
        lines: The lines as (key, entry) pairs.

    Raises:
        ValueError: If two lines have the same key.
    """

    def __init__(self, kind: str, lines: Iterable[tuple[K, V]]) -> None:
        self.kind = kind
        self._lines: dict[K, V] = {}
        for key, entry in lines:
            if key in self._lines:
                raise ValueError(f"two entries for {key!r} in the table of {kind}s")
            self._lines[key] = entry

    def __getitem__(self, key: K) -> V:
        return self._lines[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)
