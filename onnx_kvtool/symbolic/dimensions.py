"""Dimensions: a number, a name, or unknown; and the text of a symbolic dimension."""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.symbolic.expressions import (
    ONE,
    ZERO,
    Atom,
    Dimension,
    Expr,
    Exprs,
    Largest,
    Modulo,
    Monomial,
    Quotient,
    integer,
    variable,
)
from onnx_kvtool.symbolic.simplification import (
    Facts,
    divided,
    interval,
    largest,
    modulo,
    smallest,
    substitute,
)

# The text of a symbolic dimension, read: the one parser of it.


HEAVIEST = 64
"""Largest weight of a size that is kept; a larger one is unknown."""

_LONGEST = 200
"""Characters. Real expressions are far shorter; a longer text is taken as one name."""

_HIGHEST = 8
"""Largest power that is multiplied out."""


class SizeText(NamedTuple):
    """The size that a text stands for, and the names in the text, in order, without repetition."""

    size: Expr
    names: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def read_text(text: str) -> SizeText:
    """Return what the text of a symbolic dimension stands for.

    It may have names, integers, + - *, // % Min Max, as torch writes them, and floor, ceiling, Mod,
    quotients and powers, as sympy does; divisors are taken to be positive. Any other text, such as
    `batch-size`, is one name, without the spaces around it. So is a text that is no size (`-3`),
    perhaps no integer (`a / 2`), or too long when it is multiplied out.
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
    """Return what an expression stands for. Raise ValueError if it is no size, or too large."""
    match node:
        case ast.Name(id=name):
            return _Ratio(variable(Dimension(name)), ONE)
        case ast.Constant(value=value) if type(value) is int:
            return _Ratio(integer(value), ONE)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _BINARY[ast.Sub](_Ratio(ZERO, ONE), _read(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_read(left), _read(right))
        case ast.Call(func=ast.Name(id=name), args=[a], keywords=[]) if name in _OF_ONE:
            return _OF_ONE[name](_read(a))
        case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if name in _OF_TWO:
            return _BINARY[_OF_TWO[name]](_read(a), _read(b))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in _ENDS:
            return _light(_ENDS[name]([_whole(_read(a)) for a in args]))
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


def _product(a: _Ratio, b: _Ratio) -> _Ratio:
    return _light(a.above * b.above, a.below * b.below)


def _power(base: _Ratio, exponent: _Ratio) -> _Ratio:
    power = _whole(exponent).number
    if power is None or not 0 <= power <= _HIGHEST:
        raise ValueError("not a power that is multiplied out")
    return functools.reduce(_product, [base] * power, _Ratio(ONE, ONE))


def _floor(a: _Ratio, more: Expr = ZERO) -> _Ratio:
    return _light(divided(a.above + more, a.below))


_BINARY: Mapping[type[ast.operator], Callable[[_Ratio, _Ratio], _Ratio]] = {
    ast.Add: _sum,
    ast.Sub: lambda a, b: _sum(a, _Ratio(-b.above, b.below)),
    ast.Mult: _product,
    ast.Div: lambda a, b: _light(a.above, a.below * _divisor(b)),
    ast.FloorDiv: lambda a, b: _floor(_BINARY[ast.Div](a, b)),
    ast.Mod: lambda a, b: _light(modulo(_whole(a), _divisor(b))),
    ast.Pow: _power,
}
_OF_ONE: Mapping[str, Callable[[_Ratio], _Ratio]] = {
    "floor": _floor,
    **dict.fromkeys(("ceil", "ceiling"), lambda a: _floor(a, a.below - 1)),
}
_OF_TWO = {"Mod": ast.Mod, "PythonMod": ast.Mod, "FloorDiv": ast.FloorDiv}
_ENDS = {"Max": largest, "max": largest, "Min": smallest, "min": smallest}


# Quotients of sizes.


_MOST_STEPS = 32
"""Most terms of a quotient."""


def exact_quotient(a: Expr, b: Expr) -> Expr | None:
    """Return `a / b` where that is a polynomial; None otherwise, or where `b` is 0."""
    if not b.terms:
        return None
    lead, k = _leading(b)
    result, rest = ZERO, a
    for _ in range(_MOST_STEPS):
        if not rest.terms:
            return result
        head, c = _leading(rest)
        if not Counter(dict(lead)) <= Counter(dict(head)) or c % k:
            return None
        left = Counter(dict(head)) - Counter(dict(lead))
        term = Expr.of({frozenset(left.items()): c // k})
        result, rest = result + term, rest - term * b
    return None


def quotient(a: Expr, b: Expr) -> Expr:
    """Return `a / b` rounded down, in lowest terms; `b` is taken to be at least 1."""
    exact = exact_quotient(a, b)
    if exact is not None:
        return exact
    terms = (*a.terms, *b.terms)
    common = functools.reduce(operator.and_, (Counter(dict(monomial)) for monomial, _ in terms))
    shared = Expr.of({frozenset(common.items()): math.gcd(*(c for _, c in terms))})
    numerator, denominator = exact_quotient(a, shared), exact_quotient(b, shared)
    if numerator is not None and denominator is not None:
        a, b = numerator, denominator
    return divided(a, b)


def _leading(size: Expr) -> tuple[Monomial, int]:
    """Return the first term in an order that products respect: by degree, then by names."""
    return max(size.terms, key=lambda term: (sum(power for _, power in term[0]), _order(term[0])))


def _order(monomial: Monomial) -> list[tuple[tuple[int, ...], int]]:
    """Return a key that is the greater, the higher the power of the first name that differs."""
    named = sorted((str(variable(atom)), power) for atom, power in monomial)
    return [((*(-ord(letter) for letter in name), 1), power) for name, power in named]


# Sizes as expressions, and the text of a symbolic dimension: how it is read and written.
#
# Every command reads the text of a dimension here. The algebra is exact and has a canonical form;
# sympy, which onnx_ir brings along, would take longer for one sum than onnx's inference takes for
# a node.


Shape = Exprs
"""The size of each axis."""


def is_composed(dim: int | ir.SymbolicDim) -> bool:
    """Return whether a size is an expression of names, such as a sum or a product.

    Another value may have the same text. Only the exporter says that the two are one size.
    """
    if isinstance(dim, int) or dim.value is None:
        return False
    return not isinstance(read_size(dim.value).atom, Dimension)


def read_size(text: str) -> Expr:
    """Return the size that the text of a symbolic dimension stands for; see `read_text`."""
    return read_text(text).size


def names_in(dim: int | str) -> tuple[str, ...]:
    """Return the names that a dimension is computed from, in order, without repetition."""
    return () if isinstance(dim, int) else read_text(dim).names


@functools.lru_cache(maxsize=4096)
def normal(text: str) -> int | str:
    """Return the one form of all texts that stand for the same size: a number, or a text."""
    size = read_size(text)
    return size.number if size.number is not None else words(size) or text


def evaluate(dim: int | str, sizes: Mapping[str, int]) -> int:
    """Return the size of a dimension; it may be negative.

    Args:
        dim: A number, a name or an expression.
        sizes: The size of every name, or of a whole expression, which comes first.

    Raises:
        KeyError: If a name has no size.
        ZeroDivisionError: If the expression divides by a size that is 0.
    """
    if isinstance(dim, int):
        return dim
    if dim in sizes:
        return sizes[dim]
    read = read_text(dim)
    found = _with(read, {name: sizes[name] for name in read.names})
    if found.number is None:
        raise ZeroDivisionError(dim)
    return found.number


def bind_dim(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Return a dimension with sizes in the place of its names.

    A text without any of the names is unchanged, and so is one that would be negative.
    """
    if not isinstance(dim, str) or not sizes:
        return dim
    if dim in sizes:
        return sizes[dim]
    read = read_text(dim)
    if read.names and sizes.keys().isdisjoint(read.names):
        return dim
    found = _with(read, sizes)
    if found.number is None:
        return words(found)
    return found.number if found.number >= 0 else dim


def _with(read: SizeText, sizes: Mapping[str, int]) -> Expr:
    known: dict[Atom, Expr] = {Dimension(n): integer(sizes[n]) for n in read.names if n in sizes}
    return substitute(read.size, {}, Facts(), known)


def words(size: Expr) -> str | None:
    """Return the text of a size that is a number or an expression over names; None for others.

    Equal expressions give equal texts, and `read_size` reads them back.
    """
    try:
        return _words(size)
    except ValueError:
        return None


def shape_words(shape: Shape | None) -> Dims | None:
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
    """Return the text of an atom, and -1 where it is that of the negated atom."""
    match atom:
        case Dimension(name):
            return (name if name.isidentifier() else f"({name})"), 1
        case Largest(of) if alone and all(interval(e)[1] <= 0 for e in of):
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


def dimensions_in(size: Expr) -> Iterator[str]:
    """Yield the names of dimensions inside; one perhaps several times, in no order."""
    for atom in size.atoms():
        if isinstance(atom, Dimension):
            yield atom.name


def is_invented(dim: Dim) -> bool:
    """Return whether onnx's inference invented a name, numbered from 0 in each run."""
    return isinstance(dim, str) and dim.startswith("unk__")


# Dimensions: a number, a name, or unknown. Unknown is a value, never a guess.


Dim = int | str | None
"""A size, the name of a symbolic size, or None for an unknown size."""

Dims = tuple[Dim, ...]
"""The size of each axis of a shape."""


def dims_of(value: ir.Value | None) -> Dims | None:
    """Return the dimensions of `value`; None when its rank is unknown or there is no value.

    A negative number is None: some exporters write it for a size that they do not know.
    """
    if value is None or value.shape is None:
        return None
    dims = (d if isinstance(d, int) else d.value for d in value.shape)
    return tuple(None if isinstance(d, int) and d < 0 else d for d in dims)


def dim_of(value: ir.Value | None, axis: int) -> Dim:
    """Return a size of a value; None if it or the rank is unknown, or there is no value."""
    dims = dims_of(value)
    return None if dims is None or not -len(dims) <= axis < len(dims) else dims[axis]


def dim_names(model: ir.Model) -> set[str]:
    """Return the names in the symbolic dimensions of a model's inputs, for `--dim`.

    That of `past + 1` is `past`.
    """
    dims = (dim for value in model.graph.inputs for dim in dims_of(value) or ())
    return {name for dim in dims if dim is not None for name in names_in(dim)}


def contradict(a: Dim, b: Dim) -> bool:
    """Return whether the two are certainly different: two numbers that differ.

    Two names may stand for the same size, so different names do not contradict each other.
    """
    return isinstance(a, int) and isinstance(b, int) and a != b


def merge(a: Dim, b: Dim) -> Dim:
    """Return what is known of a size described twice: a number before a name before unknown."""
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    return a if a is not None else b


def product(dims: Sequence[Dim]) -> int | None:
    """Return the number of elements; None when a dimension is not a number. () gives 1."""
    sizes = fixed_sizes(dims)
    return None if sizes is None else math.prod(sizes)


def fixed_sizes(dims: Sequence[Dim] | None) -> list[int] | None:
    """Return the sizes of a shape if all are numbers, else None."""
    sizes = [dim for dim in dims or () if isinstance(dim, int)]
    return sizes if dims is not None and len(sizes) == len(dims) else None
