"""What a user may grant that a graph does not say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.suggestion import did_you_mean
from onnx_kvtool.core.walk import values as values_of
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim, dims_of, normal

__all__ = ["KINDS", "Assumptions", "Kind", "ValueKind"]

ValueKind = Literal["contiguous", "in-range", "finite", "covers-past", "rotated-rows", "unpadded"]
Kind = Literal[
    "contiguous", "same-dim", "in-range", "finite", "covers-past", "rotated-rows", "unpadded"
]

KINDS: dict[Kind, str] = {
    "contiguous": "contiguous[:VALUE]: a tensor of positions counts up by one from its first one",
    "same-dim": "same-dim:A=B: two symbolic dimensions, or one and a number, are one size",
    "in-range": "in-range[:VALUE]: positions computed from a value lie within the cache",
    "finite": "finite[:VALUE]: a tensor holds neither NaN, infinities nor negative zeros",
    "covers-past": "covers-past:VALUE: the last axis of an input is as long as past and new tokens",
    "rotated-rows": "rotated-rows[:VALUE]: nobody outside depends on the order of the rows of a"
    " cache that keeps a window, and steps go on where the one before ended",
    "unpadded": "unpadded[:VALUE]: an input that says which rows hold tokens is 1 throughout",
}
"""Every assumption, with what it says."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The assumptions of one request.

    Attributes:
        granted: As the user wrote them, each once.
        dims: Pairs of dimensions that are one size.
        values: For each kind about values, the names it is granted for; None among them grants it
            for every value that the caller of the graph supplies.
    """

    granted: tuple[str, ...] = ()
    dims: tuple[tuple[Dim, Dim], ...] = ()
    values: dict[str, frozenset[str | None]] = field(default_factory=dict)

    @staticmethod
    def parse(texts: Iterable[str]) -> Assumptions:
        """Read assumptions as `--assume` takes them.

        Raises:
            UsageError: If a text is no assumption, or two of them contradict each other.
        """
        granted = tuple(dict.fromkeys(texts))
        dims: list[tuple[Dim, Dim]] = []
        values: dict[str, frozenset[str | None]] = {}
        for text in granted:
            kind, colon, rest = text.partition(":")
            if kind not in KINDS or (colon and not rest) or (kind == "covers-past" and not rest):
                raise _unknown(text, kind)
            if kind == "same-dim":
                dims.append(_pair(text, rest))
            else:
                values[kind] = values.get(kind, frozenset()) | {rest or None}
        try:
            SizeEqualities(dims)
        except ValueError as error:
            raise UsageError(f"the assumptions contradict each other: {error}") from error
        return Assumptions(granted, tuple(dims), values)

    @property
    def same_dims(self) -> tuple[str, ...]:
        """The granted texts that are about dimensions."""
        return tuple(text for text in self.granted if text.startswith("same-dim:"))

    def grants(self, kind: ValueKind, value: ir.Value) -> str | None:
        """Return the text that grants `kind` for a value; None when nothing does.

        Without a name an assumption covers what the caller supplies, inputs of the graph or of a
        body, and not what the graph computes: nobody looked at that.
        """
        names = self.values.get(kind, frozenset())
        if value.name in names:
            return f"{kind}:{value.name}"
        if None in names and value.producer() is None:
            return kind
        return None

    def check(self, model: ir.Model) -> None:
        """Refuse assumptions about values or dimensions that the model does not have.

        Raises:
            UsageError: If a name is unknown; the nearest one is suggested.
        """
        named = {n for given in self.values.values() for n in given if n is not None}
        dims = {dim for pair in self.dims for dim in pair if isinstance(dim, str)}
        if not named and not dims:
            return
        values = list(values_of(model))
        known = {value.name for value in values if value.name}
        for kind, given in self.values.items():
            for name in given:
                if name is not None and name not in known:
                    raise UsageError(
                        f"`--assume {kind}:{name}` names no value of the model",
                        help=did_you_mean(name, known),
                    )
        declared = {d for v in values for d in dims_of(v) or () if isinstance(d, str)}
        for dim in dims - declared:
            if normal(dim) not in map(normal, declared):
                raise UsageError(
                    f"`--assume same-dim` names `{dim}`, which is no dimension of the model",
                    help=did_you_mean(dim, declared),
                )


def _pair(text: str, rest: str) -> tuple[Dim, Dim]:
    one, equals, other = rest.partition("=")
    if not (one.strip() and equals and other.strip()):
        raise UsageError(f"`{text}` is no assumption, expected `same-dim:A=B`")
    return _dim(one.strip()), _dim(other.strip())


def _dim(text: str) -> Dim:
    number = normal(text)
    return number if isinstance(number, int) else text


def _unknown(text: str, kind: str) -> UsageError:
    return UsageError(
        f"`{text}` is no assumption", help=did_you_mean(kind, KINDS, "; ".join(KINDS.values()))
    )
