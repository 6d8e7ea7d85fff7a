"""Numbers and names for people: bytes, how many of something there are, and which."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["binary_bytes", "bytes_of", "counted", "enumerated"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def binary_bytes(number: float) -> str:
    """Return a number of bytes in the largest unit of 1024 that it fills: `1.5 KiB`.

    One digit behind the point is shown, and none where it would be 0.
    """
    size, unit = float(number), 0
    # 1023.95 would be shown as 1024.0 of a unit that it fills.
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    text = f"{size:.1f}".removesuffix(".0")
    return f"{text} {_UNITS[unit]}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 node` or `1,234 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def enumerated(names: Iterable[str], most: int = 4) -> str:
    """Return names in backticks with commas between them; those after `most` are counted."""
    all_names = list(names)
    shown = ", ".join(f"`{name}`" for name in all_names[:most])
    rest = len(all_names) - most
    return f"{shown} and {rest:,} more" if rest > 0 else shown


_SIZES = {"b": 1, **{f"{p}b": 1000**n for n, p in enumerate("kmgtp", 1)}}
_SIZES |= {f"{p}ib": 1024**n for n, p in enumerate("kmgtp", 1)}


def bytes_of(text: str) -> int | None:
    """Return the bytes that a text such as `1.5GiB`, `300 MB` or `4096` gives; None if it does not.

    A unit is a power of 1024 with an `i` and of 1000 without; case does not matter.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = None if found is None else _SIZES.get(found[2].lower() or "b")
    return None if found is None or unit is None else int(float(found[1]) * unit)
