"""Updates written as scatters or as Where over a one-hot mask: P1 to P7 and P9."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.writes import compared, own_axis
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import maker, read_values
from onnx_kvtool.ops.operators import ScatterElements, ScatterND
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.layout import cache_of, is_state
from onnx_kvtool.rewrite.raising.positions import (
    check_no_overflow,
    check_start,
    legal_index,
    read_positions,
    unrelated,
)
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.symbolic.expressions import (
    ONE,
    ZERO,
    Element,
    Expr,
    Exprs,
    coordinate,
    text,
)
from onnx_kvtool.symbolic.simplification import Facts, at_least, below, substitute

# Updates written as ScatterElements: P3 and P4 of the forms that exporters emit.


def raise_scatter_elements(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a ScatterElements-11/13/16/18 writes rows along its axis.

    `indices` has one position per element, and ScatterElements requires the shape of `updates`. It
    may be smaller than data, so that the other axes must be proven equal.

    Returns:
        The update; None for data of rank 1, such as a shape, which is no cache.

    Raises:
        Unproven: If a fact is missing.
    """
    view = ScatterElements(node, proof.opset)
    maps, name = proof.maps, view.indices.name
    described = maps.of(view.indices)
    grid = described.shape
    if maps.shape(view.data) is None and grid is not None and len(grid) < 2:
        return None
    sizes = _plain(proof, view)
    if sizes is None:
        return None
    rank = len(sizes)
    if grid is None or len(grid) != rank or not -rank <= view.axis < rank:
        raise Unproven("unknown-rank", f"the shape of `{name}` is unknown")
    if described.element is None:
        raise Unproven("unknown-positions", f"the value of `{name}` is unknown")
    axis = view.axis % rank
    tuples = [*map(coordinate, range(rank))]
    tuples[axis] = legal_index(proof, described.element, sizes[axis], grid)
    return _prove_rows(proof, view, sizes, grid, tuples, axis, f"`{name}`")


def _plain(proof: Proof, view: ScatterElements | ScatterND) -> Exprs | None:
    """Return the sizes of the data of a scatter, whose rows replace those that are there.

    Returns:
        None for data of rank 1, such as a shape, which is no cache.

    Raises:
        Unproven: If they do not replace them, or the rank is unknown.
    """
    sizes = proof.maps.shape(view.data)
    if sizes is not None and len(sizes) < 2:
        return None
    if view.reduction != "none":
        raise Unproven(
            "reduction", f"the rows are combined with the old ones by `{view.reduction}`"
        )
    if sizes is None:
        raise Unproven("unknown-rank", f"the rank of `{view.data.name}` is unknown")
    return sizes


# Updates written as ScatterND: P1, P2, P5, P6, P7 of the forms that exporters emit.


def raise_scatter_nd(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a ScatterND-11/13/16/18 writes rows along one axis.

    The index tuples say where each slice of `updates` goes. One component is the position of the
    row, each other one the coordinate of an axis of the index. ScatterND writes the axes of data
    behind the components whole.

    Returns:
        The update; None for data of rank 1, which is no cache.

    Raises:
        Unproven: If a fact is missing.
    """
    view = ScatterND(node, proof.opset)
    sizes = _plain(proof, view)
    if sizes is None:
        return None
    described = proof.maps.of(view.indices)
    depth = described.shape[-1].number if described.shape else None
    if described.shape is None or depth is None or not 1 <= depth <= len(sizes):
        raise Unproven("unknown-rank", f"the shape of `{view.indices.name}` is unknown")
    grid, name = described.shape[:-1], f"`{view.indices.name}`"
    found = [described.component(k) for k in range(depth)]
    tuples = [
        legal_index(proof, c.element, size, grid)
        for c, size in zip(found, sizes, strict=False)
        if c is not None and c.element is not None
    ]
    if len(tuples) < depth:
        raise Unproven("unknown-positions", f"the value of {name} is unknown")
    refusals: list[Unproven] = []
    # Behind the sequence are no components in most exports: the last is the likeliest.
    for component in reversed(_row_components(proof, view, tuples)):
        attempt = proof.another()
        try:
            what = f"component {component} of {name}" if depth > 1 else name
            found_update = _prove_rows(attempt, view, sizes, grid, tuples, component, what)
        except Unproven as missing:
            refusals.append(missing)
            continue
        proof.adopt(attempt)
        return found_update
    raise next((r for r in refusals if r.assumption is not None), refusals[0])


def _row_components(proof: Proof, view: ScatterND, tuples: Sequence[Expr]) -> list[int]:
    """Return which components may be the position of the row.

    Usually that is the only one that is no plain coordinate. If all are, as for a start of 0, the
    sizes decide.
    """
    others = [k for k, e in enumerate(tuples) if own_axis(e) is None and e.number != 0]
    taken = [a for e in tuples if (a := own_axis(e)) is not None]
    if len(set(taken)) < len(taken):
        raise Unproven("diagonal", f"`{view.indices.name}` uses one coordinate twice")
    if not others:
        return list(range(len(tuples)))
    if len(others) > 1:
        unrelated(proof, view.indices, f"`{view.indices.name}`")
        shown = ", ".join(text(e) for e in tuples)
        raise Unproven(
            "several-axes",
            f"`{view.indices.name}` is ({shown}), expected one component that is no coordinate",
        )
    return others


def _prove_rows(
    proof: Proof,
    view: ScatterElements | ScatterND,
    sizes: Exprs,
    grid: Exprs,
    tuples: Sequence[Expr],
    component: int,
    what: str,
) -> ProvenUpdate:
    """Prove that a scatter writes rows along an axis.

    Args:
        proof: The attempt.
        view: The scatter.
        sizes: Sizes of its data.
        grid: Sizes of its index, without the axis of the tuples.
        tuples: The coordinates along the first axes of data that each point of the grid writes at.
        component: The axis of the rows.
        what: The coordinate along it, in words.

    Raises:
        Unproven: If a fact is missing.
    """
    wanted = (*grid, *sizes[len(tuples) :])
    given = proof.maps.shape(view.updates)
    known = [[size] for size in wanted]
    if given is not None and len(given) == len(wanted):
        known = [[*pair] for pair in zip(wanted, given, strict=True)]
    cache_of(proof, view.data, component)
    owners = {k: own_axis(e) for k, e in enumerate(tuples) if k != component}
    free = [m for m in range(len(grid)) if m not in owners.values()]
    wide = [m for m in free if grid[m].number != 1]
    if len(wide) > 1:
        raise Unproven(
            "duplicate-rows",
            f"axes {', '.join(map(str, wide))} of `{view.indices.name}` have more than one row "
            "each, and only one of them can count the rows",
        )
    units = [m for m in free if m not in wide]
    row = wide[0] if wide else None
    places: list[int | None] = []
    for k in range(len(tuples)):
        owner = row if k == component else owners[k]
        place = units.pop(0) if owner is None and units else owner
        if k != component:
            proof.whole(k, sizes[k], [ONE] if owner is None else known[owner])
            if place is not None:
                known[place].append(sizes[k])
        places.append(place)
    places += range(len(grid), len(known))
    if len(sizes) > len(tuples):
        proof.say("the axes behind the components of the index are written whole, by definition")
    index = tuples[component]
    if row is not None and not index.depends_on(row):
        raise Unproven("duplicate-rows", f"{what} is `{text(index)}` for every row")
    if row is not None and (index - coordinate(row)).depends_on(row):
        unrelated(proof, view.indices, f"`{view.indices.name}`")
    first, mode = read_positions(proof, index, sizes[component], grid, row, what)
    check_start(first, grid)
    if mode == "circular":
        check_no_overflow(proof, view.indices)
    back = {m: coordinate(k) for k, m in owners.items() if m is not None}
    if first.axes - set(back):
        raise Unproven("start-per-row", f"{what} is `{text(index)}`")
    start = substitute(first, back, Facts(sizes))
    ways = tuple(map(tuple, known))
    return ProvenUpdate(
        view.data, view.updates, ways, view.output, component, tuple(places), start, mode
    )


# Masks that are set at one position of an axis, and what is written through them.


class Mask(NamedTuple):
    """A value that is 1 (or true) where the coordinate along an axis is a position, else 0.

    Attributes:
        value: The value, of the rank of the cache or less.
        axis: Its axis.
        position: The position, over its other coordinates.
        is_negated: Whether it is 0 there, and 1 elsewhere.
    """

    value: ir.Value
    axis: int
    position: Expr
    is_negated: bool


def read_mask(proof: Proof, value: ir.Value) -> Mask | None:
    """Return `value` as a mask; None if it is no mask."""
    described = proof.maps.of(value)
    if described.element is None or described.shape is None:
        return None
    for element, is_negated in ((described.element, False), (1 - described.element, True)):
        if (found := compared(element)) is not None:
            return Mask(value, *found, is_negated)
    return None


def prove_one_hot(
    proof: Proof, mask: Mask, cache: ir.Value, update: ir.Value, output: ir.Value
) -> ProvenUpdate:
    """Prove that one row of a cache is replaced where a mask is set.

    The operands are broadcast. The result has the shape of the cache if every other operand has
    size 1, or that of the cache, along each axis.

    Raises:
        Unproven: If a fact is missing.
    """
    sizes, grid = proof.maps.shape(cache), proof.maps.shape(mask.value)
    given = proof.maps.shape(update)
    assert sizes is not None and grid is not None
    if given is None or len(given) > len(sizes) or len(grid) > len(sizes):
        raise Unproven("unknown-rank", f"the rank of `{update.name}` is not that of the cache")
    rank = len(sizes)
    ahead, lacking = rank - len(grid), rank - len(given)
    axis = mask.axis + ahead
    cache_of(proof, cache, axis)
    if axis >= lacking and given[axis - lacking].number != 1:
        raise Unproven(
            "several-rows",
            f"`{update.name}` has size `{text(given[axis - lacking])}` along axis {axis}, and "
            "only one row is taken",
        )
    proof.whole(axis, sizes[axis], [grid[mask.axis]])
    known: list[Exprs] = []
    for k, size in enumerate(sizes):
        if k >= ahead and k != axis and grid[k - ahead].number != 1:
            proof.whole(k, size, [grid[k - ahead]])
        ways = [given[k - lacking]] if k >= lacking else [ONE]
        if k != axis:
            proof.whole(k, size, ways)
            ways.append(size)
        if k >= lacking:
            known.append(tuple(ways))
    _check_range(proof, mask, sizes[axis], grid)
    check_start(mask.position, grid)
    proof.say(
        f"`{mask.value.name}` is set where the coordinate along axis {axis} is "
        f"`{text(mask.position)}`, and the update has one row"
    )
    there = {k: coordinate(k + ahead) for k in mask.position.axes}
    start = substitute(mask.position, there, Facts(sizes))
    places = tuple(k - lacking if k >= lacking else None for k in range(rank))
    return ProvenUpdate(cache, update, tuple(known), output, axis, places, start, "linear")


def _check_range(proof: Proof, mask: Mask, size: Expr, grid: Exprs) -> None:
    """Prove or assume that the position is one of the axis.

    Raises:
        Unproven: If it is neither.
    """
    facts, position = Facts(grid), mask.position
    if at_least(position, ZERO, facts) and below(position, size, facts):
        return
    values = [atom.value for atom in position.atoms() if isinstance(atom, Element)]
    if not values:
        raise Unproven("out-of-range", f"the position `{text(position)}` is outside the cache")
    for value in dict.fromkeys(values):
        proof.assume(
            "in-range",
            value,
            "position-in-range",
            f"a position `{text(position)}` outside the cache writes nothing here, and "
            "TensorScatter fails on it",
        )


# Updates written as Where over a one-hot mask: P9 of the forms that exporters emit.


def raise_where(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a Where-9/16 replaces one row of a cache by an update.

    Returns:
        The update; None if the condition is no mask of one position, or if the kept tensor is no
        input.

    Raises:
        Unproven: If a fact is missing.
    """
    view = NodeView(node, proof.opset)
    mask = read_mask(proof, view.required("condition"))
    if mask is None:
        return None
    new, kept = view.operands("X", "Y")
    if mask.is_negated:
        new, kept = kept, new
    if not is_cache(proof, kept):
        return None
    return prove_one_hot(proof, mask, kept, new, node.outputs[0])


def is_cache(proof: Proof, value: ir.Value) -> bool:
    """Return whether a value may be a cache: an input of rank 2 or more."""
    shape = proof.maps.shape(value)
    return shape is not None and len(shape) >= 2 and is_state(proof, value)


# Updates written as `cache * (1 - mask) + mask * update`: P9 of the forms that exporters emit.


def raise_one_hot_sum(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that an Add-7/13/14 of two masked products replaces one row of a cache.

    With floats that needs the assumption that neither tensor has NaN, infinities or negative zeros.

    Returns:
        The update; None for any other sum.

    Raises:
        Unproven: If a fact is missing.
    """
    view = NodeView(node, proof.opset)
    for one, other in permutations(view.operands("A", "B")):
        for keeping, cache in _products(proof, one):
            if not keeping.is_negated or not is_cache(proof, cache):
                continue
            for choosing, update in _products(proof, other):
                shape = proof.maps.shape
                same = (choosing.axis, choosing.position) == (keeping.axis, keeping.position)
                is_one_grid = shape(choosing.value) == shape(keeping.value)
                if same and is_one_grid and not choosing.is_negated:
                    return _prove_sum(proof, choosing, cache, update, node.outputs[0])
    return None


def _prove_sum(
    proof: Proof, mask: Mask, cache: ir.Value, update: ir.Value, output: ir.Value
) -> ProvenUpdate:
    found = prove_one_hot(proof, mask, cache, update, output)
    if cache.dtype is None or cache.dtype in FLOAT_TYPES:
        for value in (cache, update):
            proof.assume(
                "finite",
                value,
                "not-finite",
                f"a NaN or an infinity of `{value.name}` spreads through the product with zero, "
                "and a negative zero loses its sign",
            )
    return found


def _products(proof: Proof, value: ir.Value) -> Iterator[tuple[Mask, ir.Value]]:
    """Yield the ways to read a value as a mask times something."""
    node = maker(value, "Mul")
    for factor, other in () if node is None else permutations(read_values(node), 2):
        if (mask := read_mask(proof, factor)) is not None:
            yield mask, other
