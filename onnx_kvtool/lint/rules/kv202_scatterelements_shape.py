"""KV202: indices and updates of a ScatterElements do not fit each other or the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.symbolic.dims import Dim

__all__ = ["ScatterelementsShape"]


class ScatterelementsShape(NodeRule):
    """The indices and updates of a ScatterElements do not fit each other or the data.

    ## What it does

    Compares the shapes of `indices` and `updates`, which have to be the same, and their ranks with
    that of `data`; looks whether `axis` is in [-r, r-1] for the rank r of `data`, and whether the
    indices reach beyond `data` along another dimension than `axis`. Only numbers are compared.

    ## Why is this bad?

    There is one index for each element of the updates, and along the other dimensions the place of
    the element is that of its index. onnx's checker and shape inference let other shapes pass, and
    onnxruntime 1.31 fails when the node runs.

    ## References

    - [ScatterElements](https://onnx.ai/onnx/operators/onnx__ScatterElements.html): "ScatterElements
      takes three inputs `data`, `updates`, and `indices` of the same rank r >= 1"; `updates`:
      "same rank and shape as indices".
    """

    code = "KV202"
    name = "scatterelements-shape"
    severity = "error"
    basis = "symbolic"
    operators = ("ScatterElements", "Scatter")

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[2, 3, 7, 5] past, int64[2, 3, 1, 1] index, float[2, 3, 1, 5] update)
            => (float[2, 3, 7, 5] present) {
            [cache] present = ScatterElements <axis: int = 2> (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[2, 3, 7, 5] past, int64[2, 3, 1, 5] index, float[2, 3, 1, 5] update)
            => (float[2, 3, 7, 5] present) {
            [cache] present = ScatterElements <axis: int = 2> (past, index, update)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare ranks, then dimensions."""
        from onnx_kvtool.lint.facts.words import shape_words
        from onnx_kvtool.ops.view import MalformedNode, NodeView
        from onnx_kvtool.symbolic.dims import dims_of

        view = site.view(NodeView)
        if view is None:
            return
        names = ("data", "indices", "updates")
        values = [view.required(name) for name in names]
        data, indices, updates = (dims_of(value) for value in values)
        try:
            axis = view.integer("axis")
        except MalformedNode:
            return
        problem = _problem(data, indices, updates, axis)
        if problem is not None:
            shown = ", ".join(
                f"{name} {shape_words(dims)}"
                for name, dims in zip(names, (data, indices, updates), strict=True)
            )
            yield self.found(
                site.location(values[2]),
                f"{problem} ({shown})",
                help="expand the indices to the shape of the updates, of the rank of the data",
            )


def _problem(
    data: tuple[Dim, ...] | None,
    indices: tuple[Dim, ...] | None,
    updates: tuple[Dim, ...] | None,
    axis: int,
) -> str | None:
    from onnx_kvtool.symbolic.dims import contradict

    if data is not None:
        if not -len(data) <= axis < len(data):
            return f"`axis` is {axis}, expected {-len(data)} to {len(data) - 1}"
        for name, dims in (("indices", indices), ("updates", updates)):
            if dims is not None and len(dims) != len(data):
                return f"`{name}` has rank {len(dims)}, expected {len(data)} as `data`"
    if indices is None:
        return None
    if updates is not None:
        if len(indices) != len(updates):
            return f"`updates` has rank {len(updates)}, expected {len(indices)} as `indices`"
        for k, (got, want) in enumerate(zip(updates, indices, strict=True)):
            if contradict(got, want):
                return f"dimension {k} of `updates` is {got}, expected {want} as in `indices`"
    for k, (got, room) in enumerate(zip(indices, data or (), strict=False)):
        if (
            isinstance(got, int)
            and isinstance(room, int)
            and got > room
            and k != axis % len(indices)
        ):
            return f"dimension {k} of `indices` is {got}, `data` has {room}"
    return None
