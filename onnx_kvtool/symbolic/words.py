"""Expressions in words, for proofs and refusals."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnx_kvtool.symbolic.atoms import (
    Atom,
    Choice,
    Coordinate,
    Dimension,
    Element,
    Extent,
    IsNegative,
    IsZero,
    Largest,
    Lookup,
    Modulo,
    Quotient,
)
from onnx_kvtool.symbolic.expression import Expr, Monomial

__all__ = ["text"]

_LETTERS = "ijklmnpqr"


def text(expr: Expr, names: Mapping[int, str] | None = None) -> str:
    """Return an expression as it would be written: `start[b] + s`.

    Args:
        expr: The expression.
        names: What the coordinate along each axis is called; by default i, j, k, ...

    Returns:
        Text in which a value stands under its name. The order of terms depends on the text only.
    """
    words = [(_term(m, abs(k), names), k < 0) for m, k in expr.terms if m]
    # Names before numbers before negative terms: `w[b] + s - 1`.
    words.sort(key=lambda word: (word[1], -len(word[0].split("[")), word[0]))
    constant = expr.constant
    if constant or not words:
        words.append((str(abs(constant)), constant < 0))
    first, negative = words[0]
    pieces = [f"-{first}" if negative else first]
    pieces += [f"{'-' if below else '+'} {word}" for word, below in words[1:]]
    return " ".join(pieces)


def _term(monomial: Monomial, coefficient: int, names: Mapping[int, str] | None) -> str:
    factors = sorted(
        _atom(atom, names) if power == 1 else f"{_atom(atom, names)}^{power}"
        for atom, power in monomial
    )
    return " * ".join([str(coefficient)] * (coefficient != 1) + factors)


def _atom(atom: Atom, names: Mapping[int, str] | None) -> str:
    match atom:
        case Coordinate(axis):
            return _coordinate(axis, names)
        case Dimension(name):
            return name if name.isidentifier() else f"({name})"
        case Extent(value, axis):
            return f"size({_name(value)}, {text(axis, names)})"
        case Element(value, ()):
            return _name(value)
        case Element(value, index):
            return f"{_name(value)}[{', '.join(text(i, names) for i in index)}]"
        case Lookup(numbers, index):
            shown = ", ".join(map(str, numbers[:6])) + (", ..." if len(numbers) > 6 else "")
            return f"[{shown}][{text(index, names)}]"
        case Modulo(of, by):
            return f"mod({text(of, names)}, {text(by, names)})"
        case Quotient(of, by):
            return f"div({text(of, names)}, {text(by, names)})"
        case Largest(of):
            return f"max({', '.join(sorted(text(e, names) for e in of))})"
        case IsNegative(of):
            return f"({text(of, names)} < 0)"
        case IsZero(of):
            return f"({text(of, names)} == 0)"
        case Choice(condition, yes, no):
            return f"if({text(condition, names)}, {text(yes, names)}, {text(no, names)})"


def _coordinate(axis: int, names: Mapping[int, str] | None) -> str:
    if names is not None and axis in names:
        return names[axis]
    return _LETTERS[axis] if axis < len(_LETTERS) else f"i{axis}"


def _name(value: ir.Value) -> str:
    return value.name or "an unnamed value"
