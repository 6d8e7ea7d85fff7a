"""Which keys a mask hides, as a function of coordinates and inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import onnx_ir as ir

from onnx_kvtool.analysis.attention.conditions import (
    SWALLOWS,
    Causality,
    asked_of,
    causality,
    choice_of,
    element_of,
    sees_some,
    shows_all,
    without_padding,
)
from onnx_kvtool.analysis.attention.coordinates import (
    BATCH,
    KEY,
    QUERY,
    Frame,
    Seen,
    number_of,
)
from onnx_kvtool.analysis.attention.scores import Mask, Operand, Scores, scaled_above
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.symbolic.expressions import (
    Atom,
    Coordinate,
    Element,
    Expr,
    Exprs,
    IsNegative,
    IsZero,
    Modulo,
    Quotient,
    text,
    variable,
)

# A mask as a function of coordinates and of inputs, so that it can be written anew.
#
# A mask over the rows in use has as many columns as there are such rows. Where it is known which
# key it shows to which query, from the positions of both and from an input that says it of each
# key, it can be written for any number of keys.


_MOST = 8
"""Most conditions that are taken apart."""

_BOOL = (ir.DataType.BOOL,)


@dataclass(frozen=True, slots=True)
class MaskFunction:
    """Which keys a mask shows: those that fulfil all conditions.

    Attributes:
        comparisons: Expressions over the coordinates i and j and `past` that have to be below 0.
        past: The keys that stand before those of the queries, an atom of the comparisons.
        inputs: Inputs (B, S) of the model that have to be other than 0 for sequence and key.
        hidden: What the mask adds to the scores of other keys.
    """

    comparisons: Exprs
    past: Atom
    inputs: tuple[ir.Value, ...]
    hidden: float


def mask_function(mask: Mask, frame: Frame) -> MaskFunction | None:
    """Return which keys a mask shows; None unless inputs and positions tell."""
    element = element_of(mask, frame, least=0)
    past = (frame.sizes[KEY] - frame.sizes[QUERY]).atom
    hidden = _hidden(mask, frame)
    if element is None or past is None or hidden is None:
        return None
    element = frame.simplified(frame.knowledge.equalities.resolved(element))
    comparisons: list[Expr] = []
    inputs: list[ir.Value] = []
    for atom, holds in _conditions(element) or ((None, False),):
        of = None if atom is None or isinstance(atom, IsNegative) else _of_input(atom, frame)
        if isinstance(atom, IsNegative) and holds and _is_linear(atom.of, past):
            comparisons.append(atom.of)
        elif of is not None and holds == isinstance(atom, Element):
            inputs.append(of)
        else:
            return None
    return MaskFunction(tuple(comparisons), past, tuple(inputs), hidden)


def _conditions(element: Expr) -> list[tuple[Atom, bool]] | None:
    """Return the atoms whose product an element is; a factor may also be 1 less an atom.

    All are 0 or 1, as the element is. None for a sum that is no such product.
    """
    found: list[tuple[Atom, bool]] = []
    for _ in range(_MOST):
        if len(element.terms) == 1:
            ((factors, coefficient),) = element.ordered()
            return [*found, *((atom, True) for atom, _ in factors)] if coefficient == 1 else None
        for atom in dict.fromkeys(atom for term, _ in element.ordered() for atom, _ in term):
            have = {m - {(atom, 1)}: k for m, k in element.terms if (atom, 1) in m}
            lack = Expr.of({m: k for m, k in element.terms if (atom, 1) not in m})
            if Expr.of(have) == -lack and lack.terms:
                found.append((atom, False))
                element = lack
                break
        else:
            return None
    return None


def _hidden(mask: Mask, frame: Frame) -> float | None:
    """Return what a mask adds where it hides."""
    if mask.fill is not None:
        return mask.fill
    made = choice_of(mask.seen, frame)
    node = None if made is None else made.value.producer()
    if node is None:
        return None
    numbers = [number_of(value, frame) for value in node.inputs[1:]]
    known = [number for number in numbers if number is not None]
    return min(known) if known else None


def _is_linear(of: Expr, past: Atom) -> bool:
    """Return whether an expression is a sum of multiples of i, j, `past` and 1."""
    allowed = {Coordinate(QUERY), Coordinate(KEY), past}
    return all(
        not monomial or (len(monomial) == 1 and next(iter(monomial)) in {(a, 1) for a in allowed})
        for monomial, _ in of.terms
    )


def _of_input(atom: Atom, frame: Frame) -> ir.Value | None:
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
    shape = frame.shape(asked.value)
    if shape is None or len(shape) != 2 or shape[0] != frame.sizes[BATCH]:
        return None
    columns = shape[1]
    flat = b + variable(Quotient(j, columns)), variable(Modulo(j, columns))
    return asked.value if asked.index == flat else None


# What hides keys from queries: as one `attn_mask`, as `is_causal`, or not at all.
#
# A row that sees no key is the trap. Where the source adds -inf or puts it in place of the
# scores, such a row is no number, or zero behind a guard, and Attention gives zeros. Where it
# puts the lowest number there, such a row is the mean of all values; the same number added to
# scores gives the same, as long as it swallows them. What does neither is refused, unless each
# query sees some key.


_DEEPEST = 12
"""Most steps above a mask that are looked through for its axes."""

_WIDE = (ir.DataType.FLOAT, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


@dataclass(frozen=True, slots=True)
class MaskPart:
    """One mask.

    Attributes:
        value: Bool or of the type of the scores.
        axes: For b, h, i and j the axis of `value`; None where it is the same along it.
        single: The other axes of `value`, of size 1.
        factor: What a mask of numbers is multiplied by.
        shown: Whether a bool shows keys where it is true.
        fill: What a bool adds where it hides; None for numbers.
    """

    value: ir.Value
    axes: tuple[int | None, ...]
    single: tuple[int, ...]
    factor: float = 1.0
    shown: bool = True
    fill: float | None = None


@dataclass(frozen=True, slots=True)
class Masking:
    """What Attention takes for the masks of some scores.

    Attributes:
        parts: The masks.
        causal: How Attention is told that they show key j to query i where j <= i + `ahead`, and no
            other; None where they may show others.
        as_bool: Whether the mask may be one of bools.
        sentences: What is to be said of it.
        function: What they hold, from which they can be written for other keys; None where that is
            not known.
        unpadded: Inputs that are granted to be 1 throughout, where what is said rests on that.
    """

    parts: tuple[MaskPart, ...]
    causal: Causality | None
    as_bool: bool
    sentences: tuple[str, ...]
    function: MaskFunction | None = None
    unpadded: tuple[ir.Value, ...] = ()


def masking(
    scores: Scores,
    dtype: ir.DataType,
    frame: Frame,
    stored: tuple[Operand, Operand],
    *,
    guarded: bool,
) -> Masking:
    """Return what stands for the masks of some scores.

    Args:
        scores: The scores.
        dtype: Element type of the queries.
        frame: The frame of the scores.
        stored: Keys and values.
        guarded: Whether probabilities that are no numbers become zeros.

    Raises:
        Unproven: If Attention would not compute the same with any mask.
    """
    if not scores.masks:
        return Masking((), None, False, ())
    if any(kind != dtype for kind in scores.masked_as):
        raise Unproven("mask-type", "the mask and the queries have different element types")
    alone = scores.masks[0] if len(scores.masks) == 1 else None
    element = None if alone is None else element_of(alone, frame)
    element, unpadded = _granted(element, frame, stored)
    assumed = tuple(f"assumed: {frame.unpadded[value]}" for value in unpadded)
    if element is not None and shows_all(element, frame):
        said = "the mask shows every key to every query", *assumed
        return Masking((), None, False, said, unpadded=unpadded)
    told = None if element is None else causality(element, frame, stored)
    alive = told is not None or (element is not None and sees_some(element, frame))
    parts = tuple(_part(mask, frame) for mask in scores.masks)
    for mask in scores.masks:
        _check_fill(mask, dtype, frame, alive=alive)
    sentences = []
    if told is not None:
        more = "" if told[1].number == 0 else f" + {text(told[1], {BATCH: 'b'})}"
        sentences.append(f"the mask shows key j to query i where j <= i{more}, and no other")
    elif element is not None and (asked := sorted(asked_of(element))):
        names = ", ".join(f"`{name}`" for name in asked)
        sentences.append(f"the mask is kept: what it shows depends on the elements of {names}")
        every, lacking = without_padding(element, frame)
        if lacking and _needs_no_mask(every, frame, stored):
            sentences += [f"`--assume unpadded:{value.name}` removes it" for value in lacking]
    if not alive and not guarded:
        sentences.append("a row without keys is zero where the source has NaN")
    as_bool = alone is not None and alone.fill is not None and (alive or alone.fill == -math.inf)
    causal = None if told is None else told[0]
    function = None if alone is None else mask_function(alone, frame)
    return Masking(parts, causal, as_bool, (*sentences, *assumed), function, unpadded)


def _granted(
    element: Expr | None, frame: Frame, stored: tuple[Operand, Operand]
) -> tuple[Expr | None, tuple[ir.Value, ...]]:
    """Return which keys are seen, and what has to be granted for that.

    Nothing is taken for granted but what lets Attention do without a mask.
    """
    if element is None or _needs_no_mask(element, frame, stored):
        return element, ()
    found, unpadded = without_padding(element, frame, frame.unpadded)
    return (found, unpadded) if _needs_no_mask(found, frame, stored) else (element, ())


def _needs_no_mask(element: Expr, frame: Frame, stored: tuple[Operand, Operand]) -> bool:
    return shows_all(element, frame) or causality(element, frame, stored) is not None


def _check_fill(mask: Mask, dtype: ir.DataType, frame: Frame, *, alive: bool) -> None:
    """Refuse a fill value that would act differently if it were added to the scores.

    `alive`: all masks together show some key to each query. Raises `Unproven`.
    """
    if mask.fill is None or mask.fill == -math.inf:
        return
    lowest = float(ml_dtypes.finfo(dtype.numpy()).min)  # type: ignore[no-untyped-call]
    if not mask.fill <= max(lowest * 0.99, -SWALLOWS):
        text_ = f"`{mask.seen.value.name}` puts {mask.fill:g} in place of scores"
        raise Unproven(
            "mask-value", f"{text_}, expected -inf or the lowest number, which hide them"
        )
    element = element_of(mask, frame)
    alive = alive or (element is not None and sees_some(element, frame))
    if not (dtype in _WIDE and mask.alone) and not alive:
        text_ = "may hide all keys from a query, whose row is then the mean of all values"
        raise Unproven("dead-rows", f"`{mask.seen.value.name}` {text_}")


def _part(mask: Mask, frame: Frame) -> MaskPart:
    """Return a mask whose axes are those of the frame, at `mask.seen` or above it.

    Raises:
        Unproven: If there is none.
    """
    seen, factor = mask.seen, mask.factor
    for _ in range(_DEEPEST):
        axes = _axes(seen, frame)
        if axes is not None:
            shape = frame.shape(seen.value) or ()
            single = tuple(a for a in range(len(shape)) if a not in axes)
            return MaskPart(seen.value, axes, single, factor, mask.shown, mask.fill)
        above = frame.above(seen, frame.facts())
        scaled = scaled_above(seen, frame) if above is None and mask.fill is None else None
        if scaled is not None:
            above, number = scaled
            factor *= number
        if above is None:
            break
        seen = above
    text_ = f"`{mask.seen.value.name}` is not known to be a mask over (B, H, L, S)"
    raise Unproven("mask-layout", text_)


def _axes(seen: Seen, frame: Frame) -> tuple[int | None, ...] | None:
    shape = frame.shape(seen.value)
    if shape is None:
        return None
    found: dict[int, int] = {}
    for axis, (size, at) in enumerate(zip(shape, seen.index, strict=True)):
        if size.number == 1:
            continue
        roles = [r for r in range(4) if frame.at(r) == at and frame.sizes[r] == size]
        if len(roles) != 1 or roles[0] in found:
            return None
        found[roles[0]] = axis
    return tuple(found.get(role) for role in range(4))
