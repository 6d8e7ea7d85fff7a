"""Types and shapes of values, and dimensions that have another name."""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx_ir as ir

from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.review.side import Side, type_of

__all__ = ["Declared", "declared", "dim_renames", "with_names"]

_WORD = re.compile(r"[^\W\d][\w.]*")

Declared = tuple[str | None, tuple[int | str | None, ...] | None]
"""Element type, or the whole type of what is no tensor, and dimensions; None where unknown."""


def declared(side: Side, value: ir.Value) -> Declared:
    """Return what a model says of the type of a value."""
    shape = value.shape
    dims = None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)
    if isinstance(value.type, ir.TensorType):
        known = value.type.dtype != ir.DataType.UNDEFINED
        return (dtype_name(value.type.dtype) if known else None), dims
    return type_of(side, value) or None, None


def dim_renames(pairs: Iterable[tuple[Declared, Declared]]) -> dict[str, str]:
    """Return the new names of dimensions that are the same everywhere but for the name.

    Args:
        pairs: What is declared of one value in both models.
    """
    found: dict[str, str | None] = {}
    names_old: set[str] = set()
    names_new: set[str] = set()
    for (_, old), (_, new) in pairs:
        names_old.update(_words(old))
        names_new.update(_words(new))
        if old is None or new is None or len(old) != len(new):
            continue
        for a, b in zip(old, new, strict=True):
            if isinstance(a, str) and isinstance(b, str) and found.setdefault(a, b) != b:
                found[a] = None
    renames = {
        a: b
        for a, b in found.items()
        if b is not None and a != b and a not in names_new and b not in names_old
    }
    taken = list(renames.values())
    return {a: b for a, b in renames.items() if taken.count(b) == 1 and _is_name(a, b)}


def _is_name(old: str, new: str) -> bool:
    return all(_WORD.fullmatch(name) or not _WORD.search(name) for name in (old, new))


def _words(dims: tuple[int | str | None, ...] | None) -> Iterable[str]:
    for dim in dims or ():
        if isinstance(dim, str):
            yield dim
            yield from _WORD.findall(dim)


def with_names(value: Declared, renames: dict[str, str]) -> Declared:
    """Return what is declared with the new names of dimensions."""
    kind, dims = value
    if dims is None or not renames:
        return value
    return kind, tuple(_renamed(d, renames) if isinstance(d, str) else d for d in dims)


def _renamed(dim: str, renames: dict[str, str]) -> str:
    if dim in renames:
        return renames[dim]
    return _WORD.sub(lambda word: renames.get(word[0], word[0]), dim)
