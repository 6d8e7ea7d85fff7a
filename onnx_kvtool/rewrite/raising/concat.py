"""Updates written as Concat of slices of a cache and the rows beside or between them: P10."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import read_values
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.layout import cache_of, cut_of
from onnx_kvtool.rewrite.raising.positions import check_start
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate, Roll
from onnx_kvtool.rewrite.raising.scatters import is_cache
from onnx_kvtool.symbolic.expressions import ZERO, Element, Expr, text


def raise_concat(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a Concat-4/11/13 is `cache[:p]`, rows of an update, `cache[p + L:]`.

    At the start of a cache the first part is absent, at its end the last. The result must have the
    size of the cache, which says that the rows are within it.

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
        return _appended(proof, node, axis, rank)
    cache, update, head_end, tail_begin = parts
    sizes, given = proof.maps.shape(cache), proof.maps.shape(update)
    if sizes is None or not is_cache(proof, cache) or len(sizes) != rank:
        return None
    cache_of(proof, cache, axis)
    if given is None or len(given) != rank:
        raise Unproven("unknown-rank", f"the rank of `{update.name}` is unknown")
    length = given[axis]
    if head_end is None and tail_begin is not None and tail_begin != length:
        return None  # shorter or longer than the cache, or shifted
    if tail_begin is None and head_end is not None and head_end + length != sizes[axis]:
        return None
    start = ZERO if head_end is None else head_end
    if tail_begin is not None and tail_begin != start + length:
        raise Unproven(
            "rows-move",
            f"the rest of the cache begins at `{text(tail_begin)}`, expected "
            f"`{text(start + length)}` behind {text(length)} rows from `{text(start)}` on",
        )
    _check_size(proof, start, output, axis, sizes[axis])
    check_start(start, ())
    proof.say(
        f"rows from `{text(start)}` on are replaced by the `{text(length)}` rows of "
        f"`{update.name}`, and all others are those of `{cache.name}` at their places"
    )
    return _written(proof, cache, update, output, axis, start)


def _written(
    proof: Proof, cache: ir.Value, update: ir.Value, output: ir.Value, axis: int, start: Expr
) -> ProvenUpdate:
    """Return the update of a Concat, whose other axes have the sizes of the cache."""
    sizes, given = proof.maps.shape(cache), proof.maps.shape(update)
    assert sizes is not None and given is not None
    proof.say("the other axes have one size in all parts, which Concat demands")
    rank = len(sizes)
    known = tuple((given[k],) if k == axis else (given[k], sizes[k]) for k in range(rank))
    places = tuple(range(rank))
    return ProvenUpdate(cache, update, known, output, axis, places, start, "linear")


def _appended(proof: Proof, node: ir.Node, axis: int, rank: int) -> ProvenUpdate | None:
    """Return the update of a window that is `cache[L:]` and then L new rows."""
    values = read_values(node)
    if len(values) != 2:
        return None
    kept, update = values
    cut = cut_of(proof, kept, axis)
    given = proof.maps.shape(update)
    if cut is None or cut.is_head or not cut.is_tail or given is None or len(given) != rank:
        return None
    sizes = proof.maps.shape(cut.source)
    if (other := cut_of(proof, update, axis)) is not None and other.source is cut.source:
        return None  # rows of the cache alone, rolled
    if cut.low != given[axis] or sizes is None or not is_cache(proof, cut.source):
        return None
    proof.roll = Roll(cut.source, cut.low, node)
    start = sizes[axis] - given[axis]
    return _written(proof, cut.source, update, node.outputs[0], axis, start)


_Parts = tuple[ir.Value, ir.Value, Expr | None, Expr | None]
"""A cache and the rows between slices of it, where the first slice ends and the last begins."""


def _parts(proof: Proof, node: ir.Node, axis: int) -> _Parts | None:
    values = read_values(node)
    if len(values) not in (2, 3):
        return None
    first, last = (cut_of(proof, value, axis) for value in (values[0], values[-1]))
    is_one = first is not None and last is not None and first.source is last.source
    if is_one != (len(values) == 3):
        return None  # two parts of one cache are its rows alone, perhaps rolled
    if first is not None and first.is_head and not is_one:
        last = None
    elif not is_one:
        first = None
    known = first or last
    if known is None or not (first is None or first.is_head) or not (last is None or last.is_tail):
        return None
    update = values[0] if first is None else values[1]
    head_end = None if first is None else first.high
    return known.source, update, head_end, None if last is None else last.low


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
