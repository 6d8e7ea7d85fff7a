"""The text of a symbolic dimension, read: the one parser of it."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

from onnx_kvtool.symbolic.atoms import Dimension
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.division import exact_quotient
from onnx_kvtool.symbolic.expression import ONE, Expr, integer, variable
from onnx_kvtool.symbolic.forms import divided, largest, modulo, smallest

__all__ = ["HEAVIEST", "SizeText", "read_text"]

HEAVIEST = 64
"""Largest weight of a size that is kept; a larger one is unknown."""

_LONGEST = 200
"""Characters. Real expressions are far shorter; a longer text is taken as one name."""

_HIGHEST = 8
"""Largest power that is multiplied out."""


class SizeText(NamedTuple):
    """A text that was read.

    Attributes:
        size: What it stands for.
        names: The names in it, in order, without repetition.
    """

    size: Expr
    names: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def read_text(text: str) -> SizeText:
    """Return what the text of a symbolic dimension stands for.

    Understood are names, integers, + - *, and // % Min Max of such expressions, as torch writes
    them, and floor, ceiling, Mod, quotients and powers, as sympy does; a divisor is taken to be
    positive. Any other text is one name, without the spaces around it: `batch-size` is a name that
    someone chose. So is one that says what is no size (`-3`) or perhaps no integer (`a / 2`), and
    one that is too long when it is multiplied out.
    """
    stripped = text.strip()
    whole = SizeText(variable(Dimension(stripped)), (stripped,))
    # Python folds some letters outside ASCII into others, which would change a name.
    if len(text) > _LONGEST or not text.isascii() or stripped.isidentifier():
        return whole
    # `batch-size` is a name that someone chose; printed expressions have spaces about + and -.
    if re.search(r"\w[-+]\w", text):
        return whole
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd spellings such as `1is 2`
            tree = ast.parse(stripped, mode="eval").body
        size = _whole(_read(tree))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return whole
    if size.weight > HEAVIEST or (size.number is not None and size.number < 0):
        return whole
    return SizeText(size, tuple(dict.fromkeys(_names(tree))))


def _names(tree: ast.expr) -> list[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
    return [name.id for name in sorted(found, key=lambda n: (n.lineno, n.col_offset))]


class _Ratio(NamedTuple):
    """A quotient of integers while it is read; `below` is at least 1."""

    above: Expr
    below: Expr


def _read(node: ast.expr) -> _Ratio:
    """Return what an expression stands for.

    Raises:
        ValueError: If it is none, or one too large to be a size.
    """
    match node:
        case ast.Name(id=name):
            return _Ratio(variable(Dimension(name)), ONE)
        case ast.Constant(value=value) if type(value) is int:
            return _Ratio(integer(value), ONE)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _difference(_Ratio(integer(0), ONE), _read(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_read(left), _read(right))
        case ast.Call(func=ast.Name(id=name), args=[a], keywords=[]) if name in _ROUNDED:
            return _ROUNDED[name](_read(a))
        case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if name in _OF_TWO:
            return _OF_TWO[name](_read(a), _read(b))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in _ENDS:
            return _light(_ENDS[name]([_whole(_read(a)) for a in args], Facts()))
    raise ValueError("not an expression")


def _light(above: Expr, below: Expr = ONE) -> _Ratio:
    """Return a ratio; refuse one that grows, as products of sums do with each factor."""
    if above.weight + below.weight > 4 * HEAVIEST:
        raise ValueError("too large for a size")
    return _Ratio(above, below)


def _whole(a: _Ratio) -> Expr:
    found = a.above if a.below == ONE else exact_quotient(a.above, a.below)
    if found is None:
        raise ValueError("perhaps not an integer")
    return found


def _divisor(a: _Ratio) -> Expr:
    by = _whole(a)
    if by.number is not None and by.number < 1:
        raise ValueError("not a divisor of a size")
    return by


def _sum(a: _Ratio, b: _Ratio) -> _Ratio:
    if a.below == b.below:
        return _light(a.above + b.above, a.below)
    return _light(a.above * b.below + b.above * a.below, a.below * b.below)


def _difference(a: _Ratio, b: _Ratio) -> _Ratio:
    return _sum(a, _Ratio(-b.above, b.below))


def _product(a: _Ratio, b: _Ratio) -> _Ratio:
    return _light(a.above * b.above, a.below * b.below)


def _power(base: _Ratio, exponent: _Ratio) -> _Ratio:
    power = _whole(exponent).number
    if power is None or not 0 <= power <= _HIGHEST:
        raise ValueError("not a power that is multiplied out")
    return functools.reduce(_product, [base] * power, _Ratio(ONE, ONE))


def _quotient(a: _Ratio, b: _Ratio) -> _Ratio:
    return _light(a.above, a.below * _divisor(b))


def _floor(a: _Ratio) -> _Ratio:
    return _light(divided(a.above, a.below, Facts()))


def _ceiling(a: _Ratio) -> _Ratio:
    return _floor(_Ratio(a.above + a.below - 1, a.below))


def _floor_quotient(a: _Ratio, b: _Ratio) -> _Ratio:
    return _floor(_quotient(a, b))


def _remainder(a: _Ratio, b: _Ratio) -> _Ratio:
    return _light(modulo(_whole(a), _divisor(b), Facts()))


_BINARY: Mapping[type[ast.operator], Callable[[_Ratio, _Ratio], _Ratio]] = {
    ast.Add: _sum,
    ast.Sub: _difference,
    ast.Mult: _product,
    ast.Div: _quotient,
    ast.FloorDiv: _floor_quotient,
    ast.Mod: _remainder,
    ast.Pow: _power,
}
_ROUNDED = {"floor": _floor, "ceil": _ceiling, "ceiling": _ceiling}
_OF_TWO = {"Mod": _remainder, "PythonMod": _remainder, "FloorDiv": _floor_quotient}
_ENDS = {"Max": largest, "max": largest, "Min": smallest, "min": smallest}
