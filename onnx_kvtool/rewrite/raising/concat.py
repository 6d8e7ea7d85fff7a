"""Updates written as Concat of slices of a cache and the rows beside or between them: P10."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.assumptions import Unproven
from onnx_kvtool.rewrite.raising.layout import cache_of
from onnx_kvtool.rewrite.raising.positions import check_start
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.rewrite.raising.where import is_cache
from onnx_kvtool.symbolic.atoms import Element
from onnx_kvtool.symbolic.expression import Expr, integer
from onnx_kvtool.symbolic.words import text

__all__ = ["raise_concat"]

_TO_THE_END = 2**31 - 1
"""What exporters write for an end, or more."""


def raise_concat(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a Concat-4/11/13 is `cache[:p]`, rows of an update, `cache[p + L:]`.

    At the start of a cache the first of them is left out, at its end the last. The result must have
    the size of the cache, which says that the rows are within it; its other axes are those of the
    cache because Concat wants them equal.

    Returns:
        The update; None for any other Concat, such as one that grows or shifts a cache.

    Raises:
        Unproven: If a fact is missing.
    """
    view = NodeView(node, proof.opset)
    output = node.outputs[0]
    rank = next((len(s) for v in node.inputs if v and (s := proof.maps.shape(v))), None)
    axis = view.integer("axis")
    if rank is None or not -rank <= axis < rank:
        return None
    axis %= rank
    parts = _parts(proof, node, axis)
    if parts is None:
        return None
    cache, update = parts.cache, parts.update
    sizes, given = proof.maps.shape(cache), proof.maps.shape(update)
    if sizes is None or not is_cache(proof, cache) or len(sizes) != rank:
        return None
    cache_of(proof, cache, axis)
    if given is None or len(given) != rank:
        raise Unproven("unknown-rank", f"the rank of `{update.name}` is unknown")
    length = given[axis]
    if parts.start is None and parts.resumed is not None and parts.resumed != length:
        return None  # shorter or longer than the cache, or shifted
    if parts.resumed is None and parts.start is not None and parts.start + length != sizes[axis]:
        return None
    start = integer(0) if parts.start is None else parts.start
    if parts.resumed is not None and parts.resumed != start + length:
        raise Unproven(
            "rows-move",
            f"the rest of the cache begins at `{text(parts.resumed)}`, expected "
            f"`{text(start + length)}` behind {text(length)} rows from `{text(start)}` on",
        )
    _check_size(proof, start, output, axis, sizes[axis])
    check_start(start, ())
    proof.say(
        f"rows from `{text(start)}` on are replaced by the `{text(length)}` rows of "
        f"`{update.name}`, and all others are those of `{cache.name}` at their places"
    )
    proof.say("the other axes have one size in all parts, which Concat demands")
    known = tuple((given[k],) if k == axis else (given[k], sizes[k]) for k in range(rank))
    places = tuple(range(rank))
    return ProvenUpdate(cache, update, known, output, axis, places, start, "linear")


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a Concat puts together.

    Attributes:
        cache: The cache of which the slices are.
        update: The rows beside or between them.
        start: The end of the slice before the update; None where there is none.
        resumed: The begin of the slice behind it; None where there is none.
    """

    cache: ir.Value
    update: ir.Value
    start: Expr | None
    resumed: Expr | None


def _parts(proof: Proof, node: ir.Node, axis: int) -> _Parts | None:
    values = [value for value in node.inputs if value is not None]
    cuts = [_cut(proof, value, axis) for value in values]
    if len(values) != len(node.inputs):
        return None
    if len(values) == 3:
        first, last, update = cuts[0], cuts[2], values[1]
        if first is None or last is None or first.cache is not last.cache:
            return None
    elif len(values) == 2:
        first, last = cuts[0], cuts[1]
        if first is not None and last is not None and first.cache is last.cache:
            return None  # rows of the cache alone, perhaps rolled
        if first is not None and first.is_head:
            last, update = None, values[1]
        elif last is not None:
            first, update = None, values[0]
        else:
            return None
    else:
        return None
    if (first is not None and not first.is_head) or (last is not None and not last.is_tail):
        return None
    known = first or last
    assert known is not None
    start = None if first is None else first.high
    return _Parts(known.cache, update, start, None if last is None else last.low)


def _check_size(proof: Proof, start: Expr, output: ir.Value, axis: int, size: Expr) -> None:
    """Prove or assume that the result is as long as the cache.

    A slice ends at the end of the cache wherever it was asked to: only the size of the result says
    that the update lies within the cache.

    Raises:
        Unproven: If it is neither.
    """
    shape = proof.maps.shape(output)
    if shape is not None and shape[axis] == size:
        proof.say(f"the result has size `{text(size)}` along axis {axis}, as the cache")
        return
    values = dict.fromkeys(atom.value for atom in start.atoms() if isinstance(atom, Element))
    missing = f"the result is longer than the cache if `{text(start)}` is outside it"
    if not values:
        raise Unproven("size-of-result", missing)
    for value in values:
        proof.assume("in-range", value, "position-in-range", missing)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The slice `cache[..., low:high, ...]` along an axis of `size`, whole along all others."""

    cache: ir.Value
    low: Expr
    high: Expr
    size: Expr

    @property
    def is_head(self) -> bool:
        return self.low.number == 0

    @property
    def is_tail(self) -> bool:
        return self.high == self.size or (self.high.number or 0) >= _TO_THE_END


def _cut(proof: Proof, value: ir.Value, axis: int) -> _Cut | None:
    """Return the slice along `axis` that a value is; None for anything else."""
    node = value.producer()
    if node is None or node.domain != "" or node.op_type != "Slice":
        return None
    opset = node.version if node.version is not None else proof.opset
    view = NodeView(node, opset)
    source = node.inputs[0]
    shape = None if source is None else proof.maps.shape(source)
    if source is None or shape is None:
        return None
    starts, ends = _numbers(proof, view, "starts"), _numbers(proof, view, "ends")
    if starts is None or ends is None or len(starts) != 1 or len(ends) != 1:
        return None
    axes, steps = _numbers(proof, view, "axes"), _numbers(proof, view, "steps")
    place = 0 if axes is None else axes[0].number
    if place is None or place % len(shape) != axis:
        return None
    if steps is not None and steps[0].number != 1:
        return None
    size = shape[axis]
    return _Cut(source, _from_front(starts[0], size), _from_front(ends[0], size), size)


def _from_front(place: Expr, size: Expr) -> Expr:
    """Return a place that is counted from the end of an axis as one from its start.

    A slice that begins before the axis begins with it; the result is shorter or longer than the
    cache then, so that nothing is proven of it.
    """
    return place + size if (place.number or 0) < 0 else place


def _numbers(proof: Proof, view: NodeView, name: str) -> tuple[Expr, ...] | None:
    """Return an operand of a Slice element by element; None when it is absent or unknown."""
    if name in view.facts.attributes:
        given = view.attribute(name)
        if not isinstance(given, tuple):
            return None
        return tuple(integer(n) for n in given if isinstance(n, int))
    if all(formal.name != name for formal in view.facts.inputs):
        return None
    value = view.input(name)
    return None if value is None else proof.maps.of(value).vector()
