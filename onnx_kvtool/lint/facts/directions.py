"""Words in names of caches that tell only whether the past or the present is meant."""

from __future__ import annotations

__all__ = ["DIRECTIONS"]

DIRECTIONS = frozenset(
    {
        "past", "present", "updated", "update", "new", "old", "in", "out", "input",
        "output", "inputs", "outputs", "next", "prev", "previous", "cache", "caches",
        "cached", "kv",
    }
)  # fmt: skip
