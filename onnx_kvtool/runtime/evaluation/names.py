"""Names that nobody has, answered with the nearest one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from onnx_kvtool.core.errors import UsageError

__all__ = ["unknown_name"]

_SHOWN = 12


def unknown_name(message: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is none of `known`.

    Args:
        message: What is wrong.
        name: The name.
        known: The names there are, of which the nearest goes into the help; if none is near, the
            help lists them as long as they are few.
    """
    names = list(dict.fromkeys(known))
    if close := get_close_matches(name, names, 1):
        return UsageError(message, help=f"did you mean `{close[0]}`?")
    if len(names) > _SHOWN:
        return UsageError(message)
    listed = ", ".join(f"`{known_name}`" for known_name in names)
    return UsageError(message, help=f"there are {listed}" if listed else "there are none")
