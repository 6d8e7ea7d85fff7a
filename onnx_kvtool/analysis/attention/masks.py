"""Which keys a mask shows, as a function of coordinates: all, those up to the query, or others."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal, NamedTuple

import ml_dtypes
import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import (
    BATCH,
    HEAD,
    KEY,
    QUERY,
    Frame,
    Seen,
    number_of,
)
from onnx_kvtool.analysis.attention.scores import ROWS, Mask, Operand, Scores, scaled_above
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import maker, upwards
from onnx_kvtool.ops.operators import TensorScatter
from onnx_kvtool.ops.view import MalformedNode, given_input
from onnx_kvtool.symbolic.expressions import (
    ONE,
    ZERO,
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
from onnx_kvtool.symbolic.simplification import at_least, negation, substitute

_DEEPEST = 12
"""Most steps above a mask that are looked through for what makes it, or for its axes."""

SWALLOWS = 1e30
"""A size of numbers that no score changes when it is added (8 bits of exponent or more)."""

_MOVES_FIRST = frozenset({"Expand", "Gather", "GatherND", "Reshape", "Slice"})
"""Operators whose other inputs say where elements of the first one go."""

Causality = Literal["plain", "last", "written"]
"""How Attention is told that query i sees key j just where `j <= i + ahead`.

By `is_causal` alone, with as many queries as keys; the queries are the last of the keys, which
`nonpad_kv_seqlen` counts; or their keys are what a TensorScatter has just written, and it counts
the rows up to the last of them."""


Stored = tuple[Operand, Operand]
"""Keys and values."""


def element_of(mask: Mask, frame: Frame, *, least: float = SWALLOWS) -> Expr | None:
    """Return an expression that is 1 for a key that the mask shows, and 0 for a hidden one.

    None if the mask does more than to hide keys, or if its elements are unknown. The mask has to
    lower the scores of hidden keys by `least`; 0 for any other score.
    """
    condition = _condition(mask, frame, least)
    if condition is None:
        return None
    seen, shown, _ = condition
    element = frame.maps.of(seen.value).element
    if element is None:
        return None
    found = substitute(element, dict(enumerate(seen.index)), frame.facts())
    return found if shown else negation(found)


def _condition(mask: Mask, frame: Frame, least: float) -> tuple[Seen, bool, float] | None:
    """Return the bool value of a mask that only hides keys, whether true shows them, and how.

    A key is hidden by the number that its score becomes, or that is added to it.
    """
    if mask.fill is not None:
        return (mask.seen, mask.shown, mask.fill) if mask.fill <= -SWALLOWS else None
    for made in frame.upwards(mask.seen, frame.facts(), _DEEPEST):
        node = maker(made.value, "Where")
        if node is not None:
            break
    else:
        return None
    if mask.factor != 1:
        return None
    condition, yes, no = node.inputs
    a, b = number_of(yes, frame), number_of(no, frame)
    if condition is None or a is None or b is None or max(a, b) != 0:
        return None
    hidden = min(a, b)
    if not hidden < 0 or hidden > -least:
        return None
    seen = frame.aligned(made, condition)
    return None if seen is None else (seen, a == 0, hidden)


def sees_some(element: Expr, frame: Frame) -> bool:
    """Return whether each query sees the first key, or that of its own number."""
    own = [frame.at(QUERY)] if frame.sizes[QUERY] == frame.sizes[KEY] else []
    seen = (substitute(element, {KEY: key}, frame.facts()) for key in (ZERO, *own))
    return any(one.number == 1 for one in seen)


def shows_all(element: Expr, frame: Frame) -> bool:
    """Return whether every query sees every key."""
    return frame.simplified(element).number == 1


def asked_of(element: Expr) -> set[str]:
    """Return the names of the inputs, or other first values, whose elements a mask depends on."""
    found: set[str] = set()
    for atom in element.atoms():
        if not isinstance(atom, Element):
            continue
        *_, (value, _) = upwards(atom.value, _source)
        if value.name:
            found.add(value.name)
    return found


def _source(node: ir.Node) -> ir.Value | None:
    """Return the input whose elements a node moves, or its only input that is not constant."""
    if node.op_type in _MOVES_FIRST:
        return given_input(node, 0)
    sources = [v for v in node.inputs if v is not None and v.const_value is None]
    return sources[0] if len(sources) == 1 else None


def without_padding(
    element: Expr, frame: Frame, unpadded: Collection[ir.Value] | None = None
) -> tuple[Expr, tuple[ir.Value, ...]]:
    """Return the element with inputs taken to be 1 throughout, and these inputs.

    Only inputs in `unpadded` are taken so; all are if it is None.
    """
    atoms: dict[Atom, Expr] = {
        atom: ONE
        for atom in element.atoms()
        if isinstance(atom, Element)
        and atom.value.is_graph_input()
        and (unpadded is None or atom.value in unpadded)
    }
    if not atoms:
        return element, ()
    found = substitute(element, {}, frame.facts(), atoms)
    values = {atom.value for atom in atoms if isinstance(atom, Element)}
    return found, tuple(sorted(values, key=lambda value: value.name or ""))


def causality(element: Expr, frame: Frame, stored: Stored) -> tuple[Causality, Expr] | None:
    """Return how Attention is told which keys a mask shows, and `ahead`; None for other masks.

    The texts of the releases of onnx differ in what `is_causal` means with other numbers of queries
    and keys; with `nonpad_kv_seqlen` they agree that the last query is at the last key that is
    counted. So the count has to be proven: to be that of all keys, or of the rows up to the last
    one that is written in this step, to each sequence on its own.
    """
    shown = frame.simplified(element).atom
    if not isinstance(shown, IsNegative):
        return None
    ahead = frame.at(KEY) - frame.at(QUERY) - 1 - shown.of
    if any(ahead.depends_on(axis) for axis in (HEAD, QUERY, KEY)):
        return None
    queries, keys = frame.sizes[QUERY], frame.sizes[KEY]
    ahead = frame.knowledge.equalities.resolved(ahead)
    if ahead.number == 0 and queries == keys:
        return "plain", ahead
    if ahead == keys - queries and at_least(keys, queries, frame.facts()):
        return "last", ahead
    written = all(_is_written(operand, ahead, frame) for operand in stored)
    return ("written", ahead) if written else None


def _is_written(operand: Operand, start: Expr, frame: Frame) -> bool:
    """Return whether a step writes a row for each query into a cache, from `start` on.

    `start` is in range, or TensorScatter fails. The rows of the cache have to be the keys of the
    queries, and its batch theirs: axes of the same sizes are not enough.
    """
    cache = operand.value
    node = maker(cache, "TensorScatter")
    if node is None:
        return False
    try:
        scatter = TensorScatter(node, frame.opset)
        axis = scatter.sequence_axis
    except MalformedNode:
        return False
    update = frame.shape(scatter.update)
    if axis is None or update is None or scatter.mode != "linear":
        return False
    if operand.axis_of(BATCH) != 0 or operand.axis_of(ROWS) != axis:
        return False
    whole = frame.shape(cache)
    if update[axis] != frame.sizes[QUERY] or whole is None or whole[axis] != frame.sizes[KEY]:
        return False
    if scatter.write_indices is None:
        return start.number == 0
    held = frame.maps.of(scatter.write_indices).element
    if held is None:
        return False
    held = substitute(held, {0: frame.at(BATCH)}, frame.facts())
    return frame.knowledge.equalities.resolved(held) == start


# A mask as a function of coordinates and of inputs, so that it can be written anew.
#
# A mask over the rows in use has as many columns as there are such rows. Where it is known which
# key it shows to which query, from the positions of both and from an input that says it of each
# key, it can be written for any number of keys.


_MOST = 8
"""Most conditions that are taken apart."""


class MaskFunction(NamedTuple):
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
    condition = _condition(mask, frame, 0)
    if element is None or past is None or condition is None:
        return None
    element = frame.simplified(frame.knowledge.equalities.resolved(element))
    comparisons: list[Expr] = []
    inputs: list[ir.Value] = []
    linear = {(Coordinate(QUERY), 1), (Coordinate(KEY), 1), (past, 1)}
    conditions = _conditions(element)
    for atom, holds in conditions or ():
        if isinstance(atom, IsNegative):
            if not holds or any(len(m) > 1 or not m <= linear for m, _ in atom.of.terms):
                return None
            comparisons.append(atom.of)
        elif holds == isinstance(atom, Element) and (of := _of_input(atom, frame)) is not None:
            inputs.append(of)
        else:
            return None
    if not conditions:
        return None
    return MaskFunction(tuple(comparisons), past, tuple(inputs), condition[2])


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


def _of_input(atom: Atom, frame: Frame) -> ir.Value | None:
    """Return the input (B, S) whose element for sequence and key an atom asks for.

    TorchScript reads a flat mask: for sequence b and key j the element `b * T + j` of T columns,
    which is that of row `b + j // T`. There is none for the last sequence unless j < T, and a
    Gather of it fails; so in a run that does not, it is the element (b, j) for all of them.
    """
    asked = (atom.of.atom or (-atom.of).atom) if isinstance(atom, IsZero) else atom
    if not isinstance(asked, Element) or not asked.value.is_graph_input():
        return None
    if asked is atom and asked.value.dtype != ir.DataType.BOOL:
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


_WIDE = (ir.DataType.FLOAT, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


class MaskPart(NamedTuple):
    """One mask.

    Attributes:
        axes: For b, h, i and j the axis of `value`; None where it is the same along it.
        rank: How many axes `value` has; the others have size 1.
        factor: What a mask of numbers is multiplied by.
        shown: Whether a bool shows keys where it is true.
        fill: What a bool adds where it hides; None for numbers.
    """

    value: ir.Value
    axes: tuple[int | None, ...]
    rank: int
    factor: float
    shown: bool
    fill: float | None


class Masking(NamedTuple):
    """What Attention takes for the masks of some scores.

    Attributes:
        causal: How Attention is told that they show key j to query i where j <= i + `ahead`, and no
            other; None where they may show others.
        as_bool: Whether the mask may be one of bools.
        function: What they hold, so that they can be written for other keys; None where that is
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
    scores: Scores, dtype: ir.DataType, frame: Frame, stored: Stored, *, guarded: bool
) -> Masking:
    """Return what stands for the masks of some scores. Raise Unproven if nothing does.

    `guarded`: probabilities that are no numbers become zeros.
    """
    if not scores.masks:
        return Masking((), None, False, ())
    if any(kind != dtype for kind in scores.masked_as):
        raise Unproven("mask-type", "the mask and the queries have different element types")
    alone = scores.masks[0] if len(scores.masks) == 1 else None
    element = None if alone is None else element_of(alone, frame)
    unpadded: tuple[ir.Value, ...] = ()
    if element is not None and not _needs_no_mask(element, frame, stored):
        # Nothing is taken for granted but what lets Attention do without a mask.
        found, given = without_padding(element, frame, frame.unpadded)
        if _needs_no_mask(found, frame, stored):
            element, unpadded = found, given
    assumed = tuple(f"assumed: {frame.unpadded[value]}" for value in unpadded)
    if element is not None and shows_all(element, frame):
        said = "the mask shows every key to every query", *assumed
        return Masking((), None, False, said, unpadded=unpadded)
    told = None if element is None else causality(element, frame, stored)
    alive = told is not None or (element is not None and sees_some(element, frame))
    parts = tuple(_part(mask, frame) for mask in scores.masks)
    for mask in scores.masks:
        # Nothing is added to the scores before the last one.
        is_mean = dtype in _WIDE and mask is scores.masks[-1]
        _check_fill(mask, dtype, frame, alive=alive or is_mean)
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


def _needs_no_mask(element: Expr, frame: Frame, stored: Stored) -> bool:
    return shows_all(element, frame) or causality(element, frame, stored) is not None


def _check_fill(mask: Mask, dtype: ir.DataType, frame: Frame, *, alive: bool) -> None:
    """Raise Unproven if a fill value would act differently if it were added to the scores.

    `alive`: all masks together show some key to each query, or the mean of all values is right.
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
    if not alive and (element is None or not sees_some(element, frame)):
        text_ = "may hide all keys from a query, whose row is then the mean of all values"
        raise Unproven("dead-rows", f"`{mask.seen.value.name}` {text_}")


def _part(mask: Mask, frame: Frame) -> MaskPart:
    """Return a mask with the axes of the frame, at `mask.seen` or above. Else raise Unproven."""
    seen, factor = mask.seen, mask.factor
    for _ in range(_DEEPEST):
        axes = _axes(seen, frame)
        if axes is not None:
            return MaskPart(seen.value, axes, len(seen.index), factor, mask.shown, mask.fill)
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
