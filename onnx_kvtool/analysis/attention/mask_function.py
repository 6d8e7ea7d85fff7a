"""A mask as a function of coordinates and of inputs, from which it can be written anew.

A mask over the rows in use has as many columns as there are such rows. Where it is known which key
it shows to which query, from the positions of both and from an input that says it of each key, it
can be written for any number of keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.attention.conditions import choice_of, element_of
from onnx_kvtool.analysis.attention.frame import BATCH, KEY, QUERY, Frame
from onnx_kvtool.analysis.attention.numbers import number_of
from onnx_kvtool.analysis.attention.scores import Hidden, Mask
from onnx_kvtool.analysis.attention.sight import Sight
from onnx_kvtool.symbolic.atoms import (
    Atom,
    Coordinate,
    Element,
    IsNegative,
    IsZero,
    Modulo,
    Quotient,
)
from onnx_kvtool.symbolic.expression import Expr, integer, variable
from onnx_kvtool.symbolic.substitute import simplified

__all__ = ["MaskFunction", "mask_function"]

_MOST = 8
"""Most conditions that are taken apart."""

_BOOL = (ir.DataType.BOOL,)


@dataclass(frozen=True, slots=True)
class MaskFunction:
    """Which keys a mask shows: those for which all conditions hold.

    Attributes:
        comparisons: Expressions over the coordinates i and j and `past` that have to be below 0.
        past: The keys that stand before those of the queries, an atom of the comparisons.
        inputs: Inputs (B, S) of the model that have to be other than 0 for sequence and key.
        hidden: What the mask adds to the scores of other keys.
    """

    comparisons: tuple[Expr, ...]
    past: Atom
    inputs: tuple[ir.Value, ...]
    hidden: float


def mask_function(mask: Mask | Hidden, frame: Frame, sight: Sight) -> MaskFunction | None:
    """Return which keys a mask shows; None where that is not known from inputs and positions.

    Args:
        mask: The only mask of some scores.
        frame: The frame of the scores.
        sight: What is known of the model.
    """
    element = element_of(mask, frame, sight, least=0)
    past = (frame.sizes[KEY] - frame.sizes[QUERY]).atom
    hidden = _hidden(mask, frame, sight)
    if element is None or past is None or hidden is None:
        return None
    element = simplified(sight.knowledge.equalities.resolved(element), frame.facts(integer(1)))
    comparisons: list[Expr] = []
    inputs: list[ir.Value] = []
    for atom, holds in _conditions(element) or ((None, False),):
        of = None if atom is None or isinstance(atom, IsNegative) else _of_input(atom, frame, sight)
        if isinstance(atom, IsNegative) and holds and _is_linear(atom.of, past):
            comparisons.append(atom.of)
        elif of is not None and holds == isinstance(atom, Element):
            inputs.append(of)
        else:
            return None
    return MaskFunction(tuple(comparisons), past, tuple(inputs), hidden)


def _conditions(element: Expr) -> list[tuple[Atom, bool]] | None:
    """Return the atoms of which an element is the product, or the product with 1 less the atom.

    All are 0 or 1, as the element is. None for a sum that is no such product.
    """
    found: list[tuple[Atom, bool]] = []
    for _ in range(_MOST):
        if len(element.terms) == 1:
            ((monomial, coefficient),) = element.terms
            return [*found, *((atom, True) for atom, _ in monomial)] if coefficient == 1 else None
        atoms = sorted({atom for monomial, _ in element.terms for atom, _ in monomial}, key=repr)
        for atom in atoms:
            have = {m - {(atom, 1)}: k for m, k in element.terms if (atom, 1) in m}
            lack = Expr.of({m: k for m, k in element.terms if (atom, 1) not in m})
            if Expr.of(have) == -lack and lack.terms:
                found.append((atom, False))
                element = lack
                break
        else:
            return None
    return None


def _hidden(mask: Mask | Hidden, frame: Frame, sight: Sight) -> float | None:
    """Return what a mask adds where it hides."""
    if isinstance(mask, Hidden):
        return mask.fill
    made = choice_of(mask.seen, frame, sight)
    node = None if made is None else made.value.producer()
    if node is None:
        return None
    numbers = [number_of(value, sight) for value in node.inputs[1:]]
    known = [number for number in numbers if number is not None]
    return min(known) if known else None


def _is_linear(of: Expr, past: Atom) -> bool:
    """Return whether an expression is a sum of multiples of i, j, `past` and 1."""
    allowed = {Coordinate(QUERY), Coordinate(KEY), past}
    return all(
        not monomial or (len(monomial) == 1 and next(iter(monomial)) in {(a, 1) for a in allowed})
        for monomial, _ in of.terms
    )


def _of_input(atom: Atom, frame: Frame, sight: Sight) -> ir.Value | None:
    """Return the input (B, S) whose element for sequence and key an atom asks for.

    TorchScript reads a flat mask: for sequence b and key j the element `b * T + j` of T columns,
    which is that of row `b + j // T`. There is none for the last sequence unless j < T, and a
    Gather of it fails; so in a run that does not, it is the element (b, j) for all of them.
    """
    if isinstance(atom, IsZero):
        asked = atom.of.atom or (-atom.of).atom
    else:
        asked = atom if isinstance(atom, Element) and atom.value.dtype in _BOOL else None
    if not isinstance(asked, Element) or not asked.value.is_graph_input():
        return None
    b, j = frame.at(BATCH), frame.at(KEY)
    if asked.index == (b, j):
        return asked.value
    shape = sight.shape(asked.value)
    if shape is None or len(shape) != 2 or shape[0] != frame.sizes[BATCH]:
        return None
    columns = shape[1]
    flat = b + variable(Quotient(j, columns)), variable(Modulo(j, columns))
    return asked.value if asked.index == flat else None
