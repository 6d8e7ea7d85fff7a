"""One Softmax and what belongs to it, as one Attention: what is proven."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import HEAD, KEY, QUERY, Frame, Seen, Sight, frames
from onnx_kvtool.analysis.attention.masks import Causality, Masking, masking
from onnx_kvtool.analysis.attention.probabilities import (
    Weighted,
    read_weighted,
    weighted_by,
)
from onnx_kvtool.analysis.attention.scores import (
    Operand,
    Scores,
    may_be_scores,
    operands_above,
    read_scores,
)
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.choices import AttentionChoice, AttentionForm, AttentionMask
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op, maker, nodes
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.symbolic.dimensions import exact_quotient
from onnx_kvtool.symbolic.expressions import Expr, Exprs, text
from onnx_kvtool.symbolic.simplification import at_least


class Fusion(NamedTuple):
    """An Attention to be.

    Attributes:
        operands: Queries, keys and values.
        scale: Factor of the scores.
        softcap: Limit of the scores; None without one.
        masking: What hides keys.
        weighted: What the result takes the place of.
        form: Whether the keys are a whole cache.
        sentences: The proof.
    """

    softmax: ir.Node
    frame: Frame
    operands: tuple[Operand, Operand, Operand]
    dtype: ir.DataType
    scale: float
    softcap: float | None
    masking: Masking
    weighted: Weighted
    form: AttentionForm
    sentences: tuple[str, ...]

    @property
    def last(self) -> ir.Node:
        """The node whose place the Attention takes."""
        node = self.weighted.result.producer()
        assert node is not None
        return node

    @property
    def grows_by(self) -> frozenset[ir.Node]:
        """The nodes that join past keys and values with new ones; none where they are no such."""
        made = [maker(operand.value, "Concat") for operand in self.operands[1:]]
        return frozenset(node for node in made if node is not None and None not in made)

    @property
    def mask(self) -> AttentionMask:
        """What becomes of the mask."""
        if not self.masking.parts:
            return "none"
        return "causal" if self.masking.causal else "kept"


class MayBeEmpty(Unproven):
    """Raised where all is proven, but rests on sizes that are known only if `sizes` are not 0."""

    def __init__(self, sizes: Exprs) -> None:
        super().__init__("may-be-empty", f"sizes are known only where `{sizes[0]}` is not 0")
        self.sizes = sizes


def is_candidate(node: ir.Node) -> bool:
    """Return whether a node is a Softmax between two products, whatever its axis and shapes."""
    is_softmax = is_op(node, "Softmax") and len(node.inputs) == len(node.outputs) == 1
    scores = node.inputs[0] if is_softmax else None
    return scores is not None and weighted_by(node.outputs[0]) is not None and may_be_scores(scores)


def _has_sinks(node: ir.Node) -> bool:
    """Return whether a node is a Softmax with one more column than keys, which a Slice removes.

    The column takes a share from the keys. No operator of ONNX has that.
    """
    if not is_op(node, "Softmax") or len(node.inputs) != 1:
        return False
    joined = maker(node.inputs[0], "Concat", "Sub")
    if joined is not None and joined.op_type == "Sub":  # of the largest score, for precision
        joined = maker(joined.inputs[0], "Concat")
    if joined is None or len(joined.inputs) != 2:
        return False
    scores, more = joined.inputs
    if scores is None or more is None or not may_be_scores(scores) or may_be_scores(more):
        return False
    readers = [*node.outputs[0].consumers()]
    readers += [
        r for cast in readers if cast.op_type == "Cast" for r in cast.outputs[0].consumers()
    ]
    cuts = (reader for reader in readers if reader.op_type == "Slice")
    return any(weighted_by(cut.outputs[0]) is not None for cut in cuts)


def sinks_noted(
    model: ir.Model, place: Callable[[str, ir.Node, int], Location] = Location.of
) -> list[str]:
    """Return a sentence on the attention that has sinks; none for a model without it."""
    found = [place(path, node, index) for path, index, node in nodes(model) if _has_sinks(node)]
    if not found:
        return []
    others = f" and {counted(len(found) - 1, 'other')} alike" if len(found) > 1 else ""
    reason = "a column more than there are keys, which no operator of ONNX has"
    return [f"{found[0]}{others}: attention with sinks, {reason}: it stays in many nodes"]


def prove(softmax: ir.Node, sight: Sight, choice: AttentionChoice) -> Fusion:
    """Return what the attention around a Softmax becomes.

    Raises:
        Unproven: If it is not proven to be what Attention computes.
    """
    scores, end = softmax.inputs[0], weighted_by(softmax.outputs[0])
    assert scores is not None and end is not None
    view, shape = sight.view(softmax), sight.shape(scores)
    if view is None or shape is None:
        raise Unproven("unknown-rank", f"the rank of `{scores.name}` is unknown")
    axis = counted_axis(view.integer("axis"), len(shape))
    if axis != len(shape) - 1:
        text_ = f"the Softmax is over axis {axis} of {len(shape)}, expected the last, the keys"
        raise Unproven("other-axis", text_)
    missing: Unproven | None = None
    for frame in frames(scores, sight):
        try:
            return _prove(softmax, end, frame, choice)
        except Unproven as error:  # noqa: PERF203
            missing = missing or error
    raise missing or Unproven("unknown-rank", f"the sizes of `{scores.name}` are unknown")


def _prove(softmax: ir.Node, end: ir.Node, frame: Frame, choice: AttentionChoice) -> Fusion:
    value = softmax.inputs[0]
    assert value is not None
    shape = frame.shape(value)
    index = None if shape is None else frame.index(shape, frame.at(KEY))
    if index is None:
        raise Unproven("other-layout", f"`{value.name}` is not known to be (B, H, L, S)")
    scores = read_scores(Seen(value, index), frame)
    weighted = read_weighted(softmax, end, frame)
    queries, keys, values = _operands(scores, weighted, frame)
    dtype = _dtype(scores, weighted, (queries, keys, values))
    scale = scores.scale * queries.factor * keys.factor
    if not 0 < scale < math.inf:
        raise Unproven("unknown-scale", f"the scores are scaled by {scale:g}, expected above 0")
    softcap = scores.softcap or 0
    if dtype == ir.DataType.DOUBLE and float(np.float32(softcap)) != softcap:
        raise Unproven("types-differ", "an attribute of Attention cannot represent the softcap")
    guarded = _is_guarded(scores, weighted)
    found = masking(scores, dtype, frame, (keys, values), guarded=guarded)
    form = _form(keys, values, choice, found.causal)
    # Sizes that are known only where others are not 0 will do where nothing is computed then.
    lacking = tuple(
        size
        for size in frame.knowledge.assumed
        if not any(_is_zero_with(whole, size) for whole in frame.sizes)
    )
    if lacking:
        raise MayBeEmpty(lacking)
    sentences = _sentences(queries, keys, values, scale, scores.softcap, frame)
    return Fusion(
        softmax=softmax,
        frame=frame,
        operands=(queries, keys, values),
        dtype=dtype,
        scale=scale,
        softcap=scores.softcap,
        masking=found,
        weighted=weighted,
        form=form,
        sentences=(*sentences, *found.sentences),
    )


def _is_guarded(scores: Scores, weighted: Weighted) -> bool:
    """Return whether rows without any key are zero in the source. Raise Unproven if others are."""
    for mask in weighted.guards:
        alone = scores.masks[0] if len(scores.masks) == 1 else None
        if mask is not None and (alone is None or alone.seen.value is not mask):
            text_ = f"rows are zero where `{mask.name}` hides all keys, and others hide some"
            raise Unproven("other-rows", text_)
    return bool(weighted.guards)


def _operands(scores: Scores, weighted: Weighted, frame: Frame) -> tuple[Operand, Operand, Operand]:
    """Return queries, keys and values; keys and values have the same number of heads."""
    every, count = frame.sizes[HEAD], frame.sizes[QUERY]
    both = tuple(zip(scores.product.operands, scores.product.sizes, strict=True))
    missing: Unproven | None = None
    for (first, width), (second, other) in (both, both[::-1]):
        read = operands_above(first, (QUERY, count), width, frame)
        queries = [o for o in read if o.heads == every]
        keys = list(operands_above(second, (KEY, frame.sizes[KEY]), other, frame))
        if not queries or not keys:
            lacking = second if queries else first
            what = "keys" if queries else "queries"
            missing = missing or _unreadable(lacking, what)
            continue
        rows = KEY, weighted.rows
        read = operands_above(weighted.values, rows, weighted.size, frame)
        values = [o for o in read if o.factor == 1]  # Attention has no factor for them
        if not values:
            raise _unreadable(weighted.values, "values")
        shared = {o.heads for o in keys} & {o.heads for o in values}
        if not shared:
            text_ = f"`{keys[0].value.name}` and `{values[0].value.name}` differ in their heads"
            raise Unproven("other-layout", text_)
        fewest = min(shared, key=lambda heads: (heads.number or math.inf, str(heads)))
        keys = [o for o in keys if o.heads == fewest]
        values = [o for o in values if o.heads == fewest]
        packed = [[o for o in found if o.is_packed] for found in (queries, keys, values)]
        if all(packed) and not any(o.is_direct for o in keys):
            queries, keys, values = packed
        return _best(queries), _best(keys), _best(values)
    assert missing is not None
    raise missing


def _unreadable(seen: Seen, what: str) -> Unproven:
    text_ = f"`{seen.value.name}` is not known to contain {what} as (B, heads, rows, width)"
    return Unproven("other-layout", text_)


def _best(operands: Sequence[Operand]) -> Operand:
    """Return the operand that needs no Transpose, and of those the one furthest up."""
    return max(operands, key=lambda o: (o.is_direct, not o.is_packed, o.steps))


def _dtype(scores: Scores, weighted: Weighted, operands: Sequence[Operand]) -> ir.DataType:
    types = {o.value.dtype for o in operands} | {weighted.result.dtype, scores.value.dtype}
    (dtype, *others) = types
    if others or dtype not in FLOAT_TYPES:
        names = ", ".join(sorted("unknown" if t is None else t.name.lower() for t in types))
        text_ = f"queries, keys, values and results are {names}, expected one type"
        raise Unproven("types-differ", text_)
    assert dtype is not None
    return dtype


def _form(
    keys: Operand, values: Operand, choice: AttentionChoice, causal: Causality | None
) -> AttentionForm:
    """Return whether whole caches are read.

    Raises:
        Unproven: If the user wants the other form, and nothing says which rows are in use.
    """
    whole = all(maker(o.value, "TensorScatter") for o in (keys, values))
    if choice == "sliced" and whole:
        if causal != "written" or not (keys.is_direct and values.is_direct):
            text_ = "the source reads the whole capacity, and which rows are in use is unknown"
            raise Unproven("not-sliced", text_)
        return "sliced"
    return "full" if whole else "sliced"


def _sentences(
    queries: Operand,
    keys: Operand,
    values: Operand,
    scale: float,
    softcap: float | None,
    frame: Frame,
) -> list[str]:
    roles = (("queries", queries), ("keys", keys), ("values", values))
    said = [f"the {what} are `{operand.value.name}`{_order(operand)}" for what, operand in roles]
    heads, kv = frame.sizes[HEAD], keys.heads
    if kv != heads:
        said.append(f"query head h reads head h // {_ratio(heads, kv)} of keys and values")
    said.append(f"the scores are their products times {scale:.9g}")
    if softcap is not None:
        said.append(f"the scores are capped at {softcap:.9g}")
    return said


def _order(operand: Operand) -> str:
    """Return the order of an operand's axes if it differs from the order that Attention wants."""
    axes = [axis for axis in operand.axes if axis is not None]
    if axes == sorted(axes):
        return ""
    return f", its axes in the order {', '.join(map(str, axes))}"


def _ratio(heads: Expr, kv: Expr) -> str:
    if heads.number is not None and kv.number:
        return str(heads.number // kv.number)
    return text(heads)


def _is_zero_with(size: Expr, other: Expr) -> bool:
    """Return whether a size is 0 where another one is, both being no less."""
    factor = exact_quotient(other, size)
    if exact_quotient(size, other) is not None or (factor is not None and factor.number):
        return True
    return at_least(other, size)  # as `seq` is, where `past + seq` is
