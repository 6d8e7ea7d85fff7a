"""Updates written as ScatterElements: P3 and P4 of the forms that exporters emit."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.scatter import ScatterElements
from onnx_kvtool.rewrite.raising.layout import cache_of
from onnx_kvtool.rewrite.raising.overflow import check_no_overflow
from onnx_kvtool.rewrite.raising.positions import (
    check_start,
    legal_index,
    read_positions,
    unrelated,
)
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.symbolic.expressions import Expr, coordinate, text

__all__ = ["raise_scatter_elements"]


def raise_scatter_elements(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a ScatterElements-11/13/16/18 writes rows along its axis.

    `indices` has one position per element and the shape of `updates`, which ScatterElements itself
    demands; it may be smaller than data, so that the other axes must be proven equal.

    Returns:
        The update; None for data of rank 1, such as a shape, which is no cache.

    Raises:
        Unproven: If a fact is missing.
    """
    view = ScatterElements(node, proof.opset)
    maps, name = proof.maps, view.indices.name
    sizes = maps.shape(view.data)
    described = maps.of(view.indices)
    if sizes is None and described.shape is not None and len(described.shape) < 2:
        return None
    if sizes is not None and len(sizes) < 2:
        return None
    if view.reduction != "none":
        raise Unproven(
            "reduction", f"the rows are combined with the old ones by `{view.reduction}`"
        )
    if sizes is None:
        raise Unproven("unknown-rank", f"the rank of `{view.data.name}` is unknown")
    grid, rank = described.shape, len(sizes)
    if grid is None or len(grid) != rank or not -rank <= view.axis < rank:
        raise Unproven("unknown-rank", f"the shape of `{name}` is unknown")
    axis = view.axis % rank
    cache_of(proof, view.data, axis)
    given = maps.shape(view.updates)
    if described.element is None:
        raise Unproven("unknown-positions", f"what `{name}` holds is unknown")
    index = legal_index(proof, described.element, sizes[axis], grid)
    row = None if grid[axis].number == 1 else axis
    if row is not None and (index - coordinate(row)).depends_on(row):
        unrelated(proof, view.indices, f"`{name}`")
    if row is not None and not index.depends_on(row):
        raise Unproven("duplicate-rows", f"`{name}` holds `{text(index)}` for every row")
    found = read_positions(proof, index, sizes[axis], grid, row, f"`{name}`")
    check_start(found.start, grid)
    if found.mode == "circular":
        check_no_overflow(proof, view.indices)
    known: list[tuple[Expr, ...]] = []
    for k, size in enumerate(sizes):
        ways = [grid[k]] + ([given[k]] if given is not None and len(given) == rank else [])
        if k != axis:
            proof.whole(k, size, ways)
            ways.append(size)
        known.append(tuple(ways))
    places = tuple(range(rank))
    return ProvenUpdate(
        view.data, view.updates, tuple(known), view.output, axis, places, found.start, found.mode
    )
