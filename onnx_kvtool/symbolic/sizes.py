"""Sizes as expressions: reading and writing the text of a symbolic dimension.

The algebra is that of `analysis.index_map`: polynomials over names with maximum, floor division and
modulo, exact and in a canonical form. sympy, which onnx_ir brings along, would take longer for one
sum than onnx's inference takes for a node.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import warnings
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnx_kvtool.symbolic.atoms import Atom, Dimension, Largest, Modulo, Quotient
from onnx_kvtool.symbolic.bounds import Facts, interval
from onnx_kvtool.symbolic.expression import Expr, Monomial, integer, variable
from onnx_kvtool.symbolic.forms import divided, largest, modulo, smallest

__all__ = [
    "HEAVIEST",
    "Shape",
    "exact_quotient",
    "is_composed",
    "is_invented",
    "names_in",
    "number",
    "quotient",
    "read_size",
    "shape_words",
    "words",
]

Shape = tuple[Expr, ...]
"""The size of each axis."""

HEAVIEST = 64
"""Largest weight of a size that is kept; a larger one is unknown."""

_LONGEST = 200
"""Characters. Real expressions are far shorter; a longer text is taken as one name."""

_MOST_STEPS = 32
"""Most terms of a quotient that is looked for."""

_FACTS = Facts()


@functools.lru_cache(maxsize=4096)
def number(n: int) -> Expr:
    """Return the expression of a number; one object for each."""
    return integer(n)


def is_composed(dim: int | ir.SymbolicDim) -> bool:
    """Return whether a size is a sum or product of names, or one of the kind.

    The same text may stand on an input. That the two are one size is the exporter's word.
    """
    if isinstance(dim, int) or dim.value is None:
        return False
    return not isinstance(read_size(dim.value).atom, Dimension)


@functools.lru_cache(maxsize=4096)
def read_size(text: str) -> Expr:
    """Return the size that the text of a symbolic dimension stands for.

    Understood are names, integers, + - *, and // % Min Max of such expressions, as exporters write
    them; a divisor is taken to be positive. Any other text is one name, without the spaces around
    it: `batch-size` is a name that someone chose.
    """
    stripped = text.strip()
    if stripped.isidentifier() and stripped.isascii():
        return variable(Dimension(stripped))
    whole = variable(Dimension(stripped))
    # Python folds some letters outside ASCII into others, which would change a name.
    if len(text) > _LONGEST or not text.isascii() or re.search(r"\w[-+]\w", text):
        return whole
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd spellings such as `1is 2`
            tree = ast.parse(stripped, mode="eval").body
        found = _read(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return whole
    return whole if found.weight > HEAVIEST else found


def _read(node: ast.expr) -> Expr:
    match node:
        case ast.Name(id=name):
            return variable(Dimension(name))
        case ast.Constant(value=value) if type(value) is int:
            return number(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _read(left) + _read(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _read(left) - _read(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _read(left) * _read(right)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return divided(_read(left), _divisor(right), _FACTS)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return modulo(_read(left), _divisor(right), _FACTS)
        case ast.Call(func=ast.Name(id="Max" | "max"), args=[_, *_] as args, keywords=[]):
            return largest([_read(a) for a in args], _FACTS)
        case ast.Call(func=ast.Name(id="Min" | "min"), args=[_, *_] as args, keywords=[]):
            return smallest([_read(a) for a in args], _FACTS)
    raise ValueError("not an expression")


def _divisor(node: ast.expr) -> Expr:
    by = _read(node)
    if by.number is not None and by.number < 1:
        raise ValueError("not a divisor of a size")
    return by


def words(size: Expr) -> str | None:
    """Return the text of a size that is a number or an expression over names; None for others.

    Equal expressions give equal texts, and `read_size` reads them back.
    """
    try:
        return _words(size)
    except ValueError:
        return None


def shape_words(shape: Shape | None) -> tuple[int | str | None, ...] | None:
    """Return the sizes as numbers, texts, and None for what has neither."""
    if shape is None:
        return None
    return tuple(size.number if size.number is not None else words(size) for size in shape)


def _words(size: Expr) -> str:
    terms = []
    for monomial, coefficient in size.terms:
        k, factors = coefficient, list[str]()
        for atom, power in monomial:
            word, sign = _atom(atom, alone=len(monomial) == 1 and power == 1)
            factors += [word] * power
            k *= sign
        head = [str(abs(k))] * (abs(k) != 1 or not factors)
        terms.append((k < 0, not factors, " * ".join([*head, *sorted(factors)])))
    if not terms:
        return "0"
    if len(terms) == 1 and size.atom is not None and isinstance(size.atom, Dimension):
        return size.atom.name
    # Names before the number, what is added before what is taken away: `past + seq - 1`.
    terms.sort()
    negative, _, first = terms[0]
    rest = "".join(f" {'-' if below else '+'} {word}" for below, _, word in terms[1:])
    return f"{'-' if negative else ''}{first}{rest}"


def _atom(atom: Atom, *, alone: bool) -> tuple[str, int]:
    """Return the text of an atom, and -1 where it is that of the negated atom.

    Args:
        atom: The atom.
        alone: Whether it is the only factor of its term.
    """
    match atom:
        case Dimension(name):
            return (name if name.isidentifier() else f"({name})"), 1
        case Largest(of) if alone and all(interval(e, _FACTS)[1] <= 0 for e in of):
            return f"Min({', '.join(sorted(_words(-e) for e in of))})", -1
        case Largest(of):
            return f"Max({', '.join(sorted(map(_words, of)))})", 1
        case Quotient(of, by):
            return f"({_operand(of)} // {_operand(by)})", 1
        case Modulo(of, by):
            return f"({_operand(of)} % {_operand(by)})", 1
    raise ValueError("not written in names")


def _operand(size: Expr) -> str:
    text = _words(size)
    simple = size.atom is not None or (size.number is not None and size.number >= 0)
    return text if simple else f"({text})"


def exact_quotient(a: Expr, b: Expr) -> Expr | None:
    """Return `a / b` where that is a polynomial; None otherwise, or where `b` is 0."""
    if not b.terms:
        return None
    lead, k = _leading(b)
    result, rest = number(0), a
    for _ in range(_MOST_STEPS):
        if not rest.terms:
            return result
        head, c = _leading(rest)
        if not _divides(lead, head) or c % k:
            return None
        term = Expr.of({_less(head, lead): c // k})
        result, rest = result + term, rest - term * b
    return None


def quotient(a: Expr, b: Expr) -> Expr:
    """Return `a / b` rounded down, in lowest terms; `b` is taken to be at least 1."""
    exact = exact_quotient(a, b)
    if exact is not None:
        return exact
    k = math.gcd(*(c for _, c in (*a.terms, *b.terms)))
    shared = Expr.of({_common((*a.terms, *b.terms)): k})
    numerator, denominator = exact_quotient(a, shared), exact_quotient(b, shared)
    if numerator is None or denominator is None:
        return divided(a, b, _FACTS)
    return divided(numerator, denominator, _FACTS)


def _common(terms: Sequence[tuple[Monomial, int]]) -> Monomial:
    """Return the atoms, with their powers, that every term has."""
    powers = [dict(monomial) for monomial, _ in terms]
    shared = set(powers[0]).intersection(*powers[1:])
    return frozenset((atom, min(p[atom] for p in powers)) for atom in shared)


def _leading(size: Expr) -> tuple[Monomial, int]:
    """Return the first term in an order that products respect: by degree, then by names."""
    return max(size.terms, key=lambda term: (_degree(term[0]), _order(term[0])))


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _order(monomial: Monomial) -> list[tuple[tuple[int, ...], int]]:
    """Return a key that is the greater, the higher the power of the first name that differs."""
    named = sorted((str(variable(atom)), power) for atom, power in monomial)
    return [((*(-ord(letter) for letter in name), 1), power) for name, power in named]


def _divides(a: Monomial, b: Monomial) -> bool:
    powers = dict(b)
    return all(powers.get(atom, 0) >= power for atom, power in a)


def _less(a: Monomial, b: Monomial) -> Monomial:
    """Return the monomial `a / b`, of which `b` is a part."""
    powers = dict(a)
    for atom, power in b:
        powers[atom] -= power
    return frozenset((atom, power) for atom, power in powers.items() if power)


def names_in(size: Expr) -> Iterator[str]:
    """Yield the names of dimensions inside; one perhaps several times."""
    for atom in size.atoms():
        if isinstance(atom, Dimension):
            yield atom.name


def is_invented(name: str) -> bool:
    """Return whether onnx's inference made a name up; its numbers start anew in each run."""
    return name.startswith("unk__")
