"""Normal form of the text of a symbolic dimension.

Exporters write sums and products of names: `s6 - Min(16, s6) + 16`. The same size comes in several
spellings, which their normal form makes comparable. Nothing is computed from a text: that the size
`a + b` is the sum of the sizes `a` and `b` is the exporter's word, and no fact here.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Mapping

__all__ = ["normal"]

_LONGEST = 200
"""Characters. Real expressions are far shorter; a longer text is taken as one name."""

_Terms = Mapping[tuple[str, ...], int]
"""Sorted factors of each product, with its coefficient; () is the constant."""


@functools.lru_cache(maxsize=4096)
def normal(text: str) -> str:
    """Return the normal form of a text: terms and factors sorted, numbers added up.

    Understood are names, integers, + - *, and // % Min Max of such expressions. Any other text is
    one name and stays as it is, without the spaces around it.
    """
    stripped = text.strip()
    # `batch-size` is a name that someone chose; printed expressions have spaces about + and -.
    # Python folds some letters outside ASCII into others, which would change a name.
    if len(text) > _LONGEST or not text.isascii() or re.search(r"\w[-+]\w", text):
        return stripped
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd spellings such as `1is 2`
            tree = ast.parse(stripped, mode="eval").body
        return _text(_terms(tree))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return stripped


def _terms(node: ast.expr) -> _Terms:
    match node:
        case ast.Name(id=name):
            return {(name,): 1}
        case ast.Constant(value=value) if type(value) is int:
            return {(): value}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return {factors: -k for factors, k in _terms(operand).items()}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _sum(_terms(left), _terms(right), 1)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _sum(_terms(left), _terms(right), -1)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product(_terms(left), _terms(right))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return {(f"({_text(_terms(left))} // {_text(_terms(right))})",): 1}
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return {(f"({_text(_terms(left))} % {_text(_terms(right))})",): 1}
        case ast.Call(func=ast.Name(id="Min" | "Max" as name), args=[_, *_] as args, keywords=[]):
            return {(f"{name}({', '.join(sorted({_text(_terms(a)) for a in args}))})",): 1}
    raise ValueError("not an expression")


def _sum(a: _Terms, b: _Terms, sign: int) -> _Terms:
    return {f: a.get(f, 0) + sign * b.get(f, 0) for f in {**a, **b}}


def _product(a: _Terms, b: _Terms) -> _Terms:
    result: dict[tuple[str, ...], int] = {}
    for one, j in a.items():
        for other, k in b.items():
            factors = tuple(sorted((*one, *other)))
            result[factors] = result.get(factors, 0) + j * k
    return result


def _text(terms: _Terms) -> str:
    words = []
    for factors, k in sorted(terms.items(), key=lambda item: (not item[0], item[0])):
        if k:
            size = [str(abs(k))] * (abs(k) != 1 or not factors)
            words.append((" * ".join([*size, *factors]), k < 0))
    if not words:
        return "0"
    first, negative = words[0]
    rest = "".join(f" {'-' if below else '+'} {word}" for word, below in words[1:])
    return f"{'-' if negative else ''}{first}{rest}"
