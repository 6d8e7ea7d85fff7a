"""Sizes of symbolic dimensions, computed from the names they are written with."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping

__all__ = ["evaluate", "names_in"]

Dim = int | str

_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: Mapping[str, Callable[..., int]] = {"Min": min, "Max": max}

_LONGEST = 200
"""Characters. Real expressions are far shorter; a longer text is taken as one name."""


def names_in(dim: Dim) -> tuple[str, ...]:
    """Return the names that `dim` is computed from, in order, without repetition.

    Exporters write sums such as `past_sequence_len + sequence_len` or `s6 - Min(16, s6) + 16`.
    Text that is not an expression in + - * // % Min Max over names and integers is itself one name.
    """
    if isinstance(dim, int):
        return ()
    tree = _parse(dim)
    if tree is None:
        return (dim,)
    functions = {id(call.func) for call in ast.walk(tree) if isinstance(call, ast.Call)}
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in functions]
    found.sort(key=lambda name: name.col_offset)
    return tuple(dict.fromkeys(name.id for name in found))


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the size of `dim`.

    Args:
        dim: A number, a name or an expression.
        sizes: The size of every name; a whole expression may stand there as well, and then wins.

    Raises:
        KeyError: If a name has no size.
        ZeroDivisionError: If the expression divides by a size that is 0.
    """
    if isinstance(dim, int):
        return dim
    if dim in sizes:
        return sizes[dim]
    tree = _parse(dim)
    if tree is None:
        raise KeyError(dim)
    return _value(tree, sizes)


def _parse(text: str) -> ast.expr | None:
    """Return the syntax tree of an expression; None for a text that is one name."""
    # `batch-size` is a name that someone chose; printed expressions have spaces about + and -.
    # Python folds some letters outside ASCII into others, which would change a name.
    if len(text) > _LONGEST or not text.isascii() or re.search(r"\w[-+]\w", text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd spellings such as `1is 2`
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree if _is_expression(tree) else None


def _is_expression(node: ast.expr) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Constant(value=value):
            return type(value) is int
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_expression(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return type(op) in _BINARY and _is_expression(left) and _is_expression(right)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]):
            return name in _CALLS and all(_is_expression(a) for a in arguments)
    return False


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Name(id=name):
            return sizes[name]
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(operand=operand):
            return -_value(operand, sizes)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _CALLS[name](*(_value(a, sizes) for a in arguments))
    raise AssertionError("not an expression: `_parse` lets only expressions pass")
