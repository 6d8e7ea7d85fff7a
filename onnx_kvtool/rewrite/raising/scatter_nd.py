"""Updates written as ScatterND: P1, P2, P5, P6, P7 of the forms that exporters emit."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.scatter import ScatterND
from onnx_kvtool.rewrite.raising.layout import cache_of
from onnx_kvtool.rewrite.raising.overflow import check_no_overflow
from onnx_kvtool.rewrite.raising.positions import (
    check_start,
    legal_index,
    read_positions,
    unrelated,
)
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.symbolic.expressions import Coordinate, Expr, integer, text
from onnx_kvtool.symbolic.expressions import coordinate as at
from onnx_kvtool.symbolic.simplification import Facts, substitute

__all__ = ["raise_scatter_nd"]


def raise_scatter_nd(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a ScatterND-11/13/16/18 writes rows along one axis.

    The index tuples say where each slice of `updates` goes. One component is the position of the
    row, each other one the coordinate of an axis of the index; the axes of data behind the
    components are written whole, which ScatterND itself demands.

    Returns:
        The update; None for data of rank 1, which is no cache.

    Raises:
        Unproven: If a fact is missing.
    """
    view = ScatterND(node, proof.opset)
    sizes = proof.maps.shape(view.data)
    if sizes is not None and len(sizes) < 2:
        return None
    if view.reduction != "none":
        raise Unproven(
            "reduction", f"the rows are combined with the old ones by `{view.reduction}`"
        )
    if sizes is None:
        raise Unproven("unknown-rank", f"the rank of `{view.data.name}` is unknown")
    described = proof.maps.of(view.indices)
    depth = described.shape[-1].number if described.shape else None
    if described.shape is None or depth is None or not 1 <= depth <= len(sizes):
        raise Unproven("unknown-rank", f"the shape of `{view.indices.name}` is unknown")
    grid = described.shape[:-1]
    found = [described.component(k) for k in range(depth)]
    tuples = [
        legal_index(proof, c.element, size, grid)
        for c, size in zip(found, sizes, strict=False)
        if c is not None and c.element is not None
    ]
    if len(tuples) < depth:
        raise Unproven("unknown-positions", f"what `{view.indices.name}` holds is unknown")
    refusals: list[Unproven] = []
    # Behind the sequence are no components in most exports: the last is the likeliest.
    for component in reversed(_row_components(proof, view, tuples)):
        attempt = proof.another()
        try:
            found_update = _prove(attempt, view, sizes, grid, tuples, component)
        except Unproven as missing:
            refusals.append(missing)
            continue
        proof.adopt(attempt)
        return found_update
    raise next((r for r in refusals if r.assumption is not None), refusals[0])


def _row_components(proof: Proof, view: ScatterND, tuples: Sequence[Expr]) -> list[int]:
    """Return which components may be the position of the row.

    Usually that is the only one that is no plain coordinate. When all are, as for a start of 0, the
    sizes decide.
    """
    others = [k for k, e in enumerate(tuples) if _own_axis(e) is None and e.number != 0]
    taken = [a for e in tuples if (a := _own_axis(e)) is not None]
    if len(set(taken)) < len(taken):
        raise Unproven("diagonal", f"`{view.indices.name}` holds one coordinate twice")
    if not others:
        return list(range(len(tuples)))
    if len(others) > 1:
        unrelated(proof, view.indices, f"`{view.indices.name}`")
        shown = ", ".join(text(e) for e in tuples)
        raise Unproven(
            "several-axes",
            f"`{view.indices.name}` holds ({shown}), expected one component that is no coordinate",
        )
    return others


def _own_axis(component: Expr) -> int | None:
    atom = component.atom
    return atom.axis if isinstance(atom, Coordinate) else None


def _prove(
    proof: Proof,
    view: ScatterND,
    sizes: Sequence[Expr],
    grid: Sequence[Expr],
    tuples: Sequence[Expr],
    component: int,
) -> ProvenUpdate:
    name = view.indices.name
    known = _known_sizes(proof, view, [*grid, *sizes[len(tuples) :]])
    cache_of(proof, view.data, component)
    owners = {k: _own_axis(e) for k, e in enumerate(tuples) if k != component}
    free = [m for m in range(len(grid)) if m not in owners.values()]
    wide = [m for m in free if grid[m].number != 1]
    if len(wide) > 1:
        raise Unproven(
            "duplicate-rows",
            f"axes {', '.join(map(str, wide))} of `{name}` have more than one row each, and only "
            "one of them can count the rows",
        )
    units = [m for m in free if m not in wide]
    row = wide[0] if wide else None
    places: list[int | None] = []
    for k in range(len(tuples)):
        place = row if k == component else owners[k]
        if place is None and units:
            place = units.pop(0)
        if k != component:
            owner = owners[k]
            proof.whole(k, sizes[k], [integer(1)] if owner is None else known[owner])
            if place is not None:
                known[place].append(sizes[k])
        places.append(place)
    places += range(len(grid), len(known))
    if len(sizes) > len(tuples):
        proof.say("the axes behind the components of the index are written whole, by definition")
    what = f"component {component} of `{name}`" if len(tuples) > 1 else f"`{name}`"
    if row is not None and not tuples[component].depends_on(row):
        raise Unproven("duplicate-rows", f"{what} holds `{text(tuples[component])}` for every row")
    if _is_opaque(tuples[component], row):
        unrelated(proof, view.indices, f"`{name}`")
    found = read_positions(proof, tuples[component], sizes[component], grid, row, what)
    check_start(found.start, grid)
    if found.mode == "circular":
        check_no_overflow(proof, view.indices)
    back = {m: k for k, m in owners.items() if m is not None}
    foreign = found.start.axes - set(back)
    if foreign:
        raise Unproven("start-per-row", f"{what} holds `{text(tuples[component])}`")
    start = substitute(found.start, {m: at(k) for m, k in back.items()}, Facts(tuple(sizes)))
    return ProvenUpdate(
        view.data,
        view.updates,
        tuple(map(tuple, known)),
        view.output,
        component,
        tuple(places),
        start,
        found.mode,
    )


def _known_sizes(proof: Proof, view: ScatterND, wanted: Sequence[Expr]) -> list[list[Expr]]:
    """Return what is known of the sizes of `updates`: as ScatterND wants them, and as inferred."""
    given = proof.maps.shape(view.updates)
    if given is None or len(given) != len(wanted):
        return [[size] for size in wanted]
    return [[size, other] for size, other in zip(wanted, given, strict=True)]


def _is_opaque(index: Expr, row: int | None) -> bool:
    return row is not None and (index - at(row)).depends_on(row)
