"""Sizes as expressions, and the text of a symbolic dimension: how it is read and written.

Every command reads the text of a dimension here. The algebra is exact and has a canonical form;
sympy, which onnx_ir brings along, would take longer for one sum than onnx's inference takes for a
node.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.symbolic.atoms import Atom, Dimension, Largest, Modulo, Quotient
from onnx_kvtool.symbolic.bounds import Facts, interval
from onnx_kvtool.symbolic.expression import Expr, integer
from onnx_kvtool.symbolic.reading import HEAVIEST, SizeText, read_text
from onnx_kvtool.symbolic.substitute import substitute

__all__ = [
    "HEAVIEST",
    "Shape",
    "bind_dim",
    "dimensions_in",
    "evaluate",
    "is_composed",
    "is_invented",
    "names_in",
    "normal",
    "read_size",
    "shape_words",
    "words",
]

Shape = tuple[Expr, ...]
"""The size of each axis."""


def is_composed(dim: int | ir.SymbolicDim) -> bool:
    """Return whether a size is a sum or product of names, or one of the kind.

    The same text may stand on an input. That the two are one size is the exporter's word.
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
        sizes: The size of every name; a whole expression may stand there as well, and then wins.

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


def bind_dim(dim: int | str | None, sizes: Mapping[str, int]) -> int | str | None:
    """Return a dimension with sizes put in for its names.

    A text without any of the names stays as it is, and so does one that would be negative; what is
    left of others is written anew.
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
        case Largest(of) if alone and all(interval(e, Facts())[1] <= 0 for e in of):
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


def is_invented(dim: int | str | None) -> bool:
    """Return whether onnx's inference made a name up; its numbers start anew in each run."""
    return isinstance(dim, str) and dim.startswith("unk__")
