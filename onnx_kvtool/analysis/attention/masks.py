"""What hides keys from queries: as one `attn_mask`, as `is_causal`, or not at all.

A row that sees no key is the trap. Where the source adds -inf or puts it in place of the scores,
such a row is no number, or zero behind a guard, and Attention gives zeros. Where it puts the lowest
number there, such a row is the mean of all values; the same number added to scores gives the same,
as long as it swallows them. What does neither is refused, unless each query sees some key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import onnx_ir as ir

from onnx_kvtool.analysis.attention.frame import KEY, QUERY, Frame
from onnx_kvtool.analysis.attention.numbers import number_of
from onnx_kvtool.analysis.attention.operands import scaled_above
from onnx_kvtool.analysis.attention.scores import Hidden, Mask, Scores
from onnx_kvtool.analysis.attention.sight import Seen, Sight
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.symbolic.expression import Expr, integer
from onnx_kvtool.symbolic.forms import is_less, negation
from onnx_kvtool.symbolic.substitute import simplified, substitute

__all__ = ["MaskPart", "Masking", "masking"]

_SWALLOWS = 1e30
"""A number to which no score makes a difference, in a type of at least 8 bits of exponent."""

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
        causal: Whether all of them together show key j to query i where j <= i, and no other.
        as_bool: Whether the mask may be one of bools.
        sentences: What is to be said of it.
    """

    parts: tuple[MaskPart, ...]
    causal: bool
    as_bool: bool
    sentences: tuple[str, ...]


def masking(
    scores: Scores, dtype: ir.DataType, frame: Frame, sight: Sight, *, guarded: bool
) -> Masking:
    """Return what stands for the masks of some scores.

    Args:
        scores: The scores.
        dtype: Element type of the queries.
        frame: The frame of the scores.
        sight: What is known of the model.
        guarded: Whether probabilities that are no numbers become zeros.

    Raises:
        Unproven: If Attention would not compute the same with any mask.
    """
    if not scores.masks:
        return Masking((), False, False, ())
    if any(kind != dtype for kind in scores.masked_as):
        raise Unproven("mask-type", "the mask is added in another type than that of the queries")
    parts, sentences = [], []
    for mask in scores.masks:
        if isinstance(mask, Mask):
            part = _part(mask.seen, frame, sight, factor=mask.factor)
        else:
            part = _part(mask.seen, frame, sight, shown=mask.shown, fill=mask.fill)
            _check_fill(mask, dtype, frame, sight)
        parts.append(part)
    alone = scores.masks[0] if len(scores.masks) == 1 else None
    condition = None if alone is None else _condition(alone, sight)
    alive = condition is not None and _sees_some(condition, frame, sight)
    if not alive and not guarded:
        sentences.append("a row that the mask hides from every key is zero if it was no number")
    causal = condition is not None and _is_causal(condition, frame, sight)
    as_bool = isinstance(alone, Hidden) and (alive or alone.fill == -math.inf)
    return Masking(tuple(parts), causal, as_bool, tuple(sentences))


def _check_fill(mask: Hidden, dtype: ir.DataType, frame: Frame, sight: Sight) -> None:
    """Refuse a number in place of scores that would not do the same if it were added to them.

    Raises:
        Unproven: If it is such a number.
    """
    if mask.fill == -math.inf:
        return
    lowest = float(ml_dtypes.finfo(dtype.numpy()).min)  # type: ignore[no-untyped-call]
    if not mask.fill <= max(lowest * 0.99, -_SWALLOWS):
        text = f"`{mask.seen.value.name}` puts {mask.fill:g} in place of scores, which may show"
        raise Unproven("mask-value", f"{text}, expected -inf or the lowest number")
    if not (dtype in _WIDE and mask.alone) and not _sees_some(mask, frame, sight):
        text = "may hide all keys from a query, whose row is then the mean of all values"
        raise Unproven("dead-rows", f"`{mask.seen.value.name}` {text}")


def _part(
    seen: Seen,
    frame: Frame,
    sight: Sight,
    *,
    factor: float = 1.0,
    shown: bool = True,
    fill: float | None = None,
) -> MaskPart:
    """Return a mask whose axes are those of the frame, at `seen` or above it.

    Raises:
        Unproven: If there is none.
    """
    first = seen
    for _ in range(_DEEPEST):
        axes = _axes(seen, frame, sight)
        if axes is not None:
            shape = sight.shape(seen.value) or ()
            single = tuple(a for a in range(len(shape)) if a not in axes)
            return MaskPart(seen.value, axes, single, factor, shown, fill)
        above = sight.above(seen, frame.facts(integer(1)))
        scaled = scaled_above(seen, sight) if above is None and fill is None else None
        if scaled is not None:
            above, number = scaled
            factor *= number
        if above is None:
            break
        seen = above
    text = f"`{first.value.name}` is not known to be a mask over (B, H, L, S)"
    raise Unproven("mask-layout", text)


def _axes(seen: Seen, frame: Frame, sight: Sight) -> tuple[int | None, ...] | None:
    shape = sight.shape(seen.value)
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


@dataclass(frozen=True, slots=True)
class _Condition:
    """Which keys are seen, as a bool value, and whether it is true for those."""

    seen: Seen
    shown: bool


def _condition(mask: Mask | Hidden, sight: Sight) -> _Condition | None:
    """Return the condition of a mask that hides keys and does nothing else."""
    if isinstance(mask, Hidden):
        return _Condition(mask.seen, mask.shown) if mask.fill <= -_SWALLOWS else None
    node = mask.seen.value.producer()
    if node is None or node.op_type != "Where" or node.domain != "" or mask.factor != 1:
        return None
    condition, yes, no = node.inputs
    a, b = number_of(yes, sight), number_of(no, sight)
    if condition is None or a is None or b is None or min(a, b) > -_SWALLOWS or max(a, b) != 0:
        return None
    seen = sight.aligned(mask.seen, condition)
    return None if seen is None else _Condition(seen, a == 0)


def _element(condition: _Condition | Hidden, frame: Frame, sight: Sight) -> Expr | None:
    """Return 1 where a key is seen and 0 where not, over the coordinates of the frame."""
    element = sight.maps.of(condition.seen.value).element
    if element is None:
        return None
    at = dict(enumerate(condition.seen.index))
    found = substitute(element, at, frame.facts(integer(1)))
    return found if condition.shown else negation(found)


def _sees_some(condition: _Condition | Hidden, frame: Frame, sight: Sight) -> bool:
    """Return whether each query sees the first key, or that of its own number."""
    element = _element(condition, frame, sight)
    if element is None:
        return False
    facts = frame.facts(integer(1))
    keys = [integer(0)]
    if frame.sizes[QUERY] == frame.sizes[KEY]:
        keys.append(frame.at(QUERY))
    return any(substitute(element, {KEY: key}, facts).number == 1 for key in keys)


def _is_causal(condition: _Condition, frame: Frame, sight: Sight) -> bool:
    """Return whether query i sees key j just where j <= i, with as many queries as keys.

    With another number of keys the texts of the releases of onnx differ in what `is_causal` means.
    """
    element = _element(condition, frame, sight)
    if element is None or frame.sizes[QUERY] != frame.sizes[KEY]:
        return False
    facts = frame.facts(integer(1))
    wanted = negation(is_less(frame.at(QUERY), frame.at(KEY), facts))
    return simplified(element, facts) == wanted
