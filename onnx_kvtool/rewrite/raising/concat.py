"""Updates written as Concat of two slices of a cache and the rows between: P10."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.index_map import Element, Expr, integer, text
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.layout import cache_of
from onnx_kvtool.rewrite.raising.positions import check_start
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.rewrite.raising.unproven import Unproven
from onnx_kvtool.rewrite.raising.where import is_cache

__all__ = ["raise_concat"]

_TO_THE_END = 2**31 - 1
"""What exporters write for an end, or more."""


def raise_concat(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a Concat-4/11/13 is `cache[:p]`, rows of an update, `cache[p + L:]`.

    The result must have the size of the cache, which says that p is within it; its other axes are
    those of the cache because Concat wants them equal.

    Returns:
        The update; None for any other Concat, such as one that grows or shifts a cache.

    Raises:
        Unproven: If a fact is missing.
    """
    view = NodeView(node, proof.opset)
    if len(node.inputs) != 3:
        return None
    before, update, after = node.inputs
    if before is None or update is None or after is None:
        return None
    output = node.outputs[0]
    rank = next((len(s) for v in node.inputs if v and (s := proof.maps.shape(v))), None)
    axis = view.integer("axis")
    if rank is None or not -rank <= axis < rank:
        return None
    axis %= rank
    first, last = _cut(proof, before, axis), _cut(proof, after, axis)
    if first is None or last is None or first[0] is not last[0]:
        return None
    cache, low, start = first
    _, resumed, high = last
    sizes, given = proof.maps.shape(cache), proof.maps.shape(update)
    if low.number != 0 or sizes is None or not is_cache(proof, cache) or len(sizes) != rank:
        return None
    if high != sizes[axis] and (high.number is None or high.number < _TO_THE_END):
        return None
    cache_of(proof, cache, axis)
    if given is None or len(given) != rank:
        raise Unproven("unknown-rank", f"the rank of `{update.name}` is unknown")
    length = given[axis]
    if resumed != start + length:
        raise Unproven(
            "rows-move",
            f"the rest of the cache begins at `{text(resumed)}`, expected "
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


def _cut(proof: Proof, value: ir.Value, axis: int) -> tuple[ir.Value, Expr, Expr] | None:
    """Return x, a and b for the slice `x[..., a:b, ...]` along `axis`, whole along all others."""
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
    return source, starts[0], ends[0]


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
