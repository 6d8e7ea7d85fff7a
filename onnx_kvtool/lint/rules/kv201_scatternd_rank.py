"""KV201: the updates of a ScatterND do not fit its indices and its data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.symbolic.dims import Dim

__all__ = ["ScatterndRank"]


class ScatterndRank(NodeRule):
    """The updates of a ScatterND do not fit its indices and its data.

    ## What it does

    Compares the rank of `updates` with q + r - k - 1, where q is the rank of `indices`, r the rank
    of `data` and k the length of an index tuple, `indices.shape[-1]`; then the dimensions that are
    numbers: those before the slice with `indices`, those of the slice with `data`.

    ## Why is this bad?

    There is one slice of the data for each index tuple. onnx's checker and shape inference let
    other shapes pass, and onnxruntime 1.31 fails when the node runs.

    ## References

    - [ScatterND](https://onnx.ai/onnx/operators/onnx__ScatterND.html): "`updates` is a tensor of
      rank q + r - indices_shape[-1] - 1", "`updates.shape` must equal `indices.shape[0:q-1] ++
      data.shape[k:r-1]`".
    """

    code = "KV201"
    name = "scatternd-rank"
    severity = "error"
    basis = "symbolic"
    operators = ("ScatterND",)

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[2, 7, 3, 5] past, int64[2, 1, 2] index, float[2, 3, 5] update)
            => (float[2, 7, 3, 5] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[2, 7, 3, 5] past, int64[2, 1, 2] index, float[2, 1, 3, 5] update)
            => (float[2, 7, 3, 5] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare rank, then dimensions."""
        from onnx_kvtool.lint.facts.words import shape_words
        from onnx_kvtool.ops.view import NodeView
        from onnx_kvtool.symbolic.dims import dims_of

        view = site.view(NodeView)
        if view is None:
            return
        names = ("data", "indices", "updates")
        values = [view.required(name) for name in names]
        data, indices, updates = (dims_of(value) for value in values)
        if data is None or indices is None:
            return
        problem = _problem(data, indices, updates)
        if problem is not None:
            shown = ", ".join(
                f"{name} {shape_words(dims)}"
                for name, dims in zip(names, (data, indices, updates), strict=True)
            )
            yield self.found(
                site.location(values[2]),
                f"{problem} ({shown})",
                help="give the updates the shape indices.shape[:-1] + data.shape[k:], with k = "
                "indices.shape[-1]",
            )


def _problem(
    data: tuple[Dim, ...], indices: tuple[Dim, ...], updates: tuple[Dim, ...] | None
) -> str | None:
    from onnx_kvtool.symbolic.dims import contradict

    r, q = len(data), len(indices)
    if r == 0 or q == 0:
        return f"`data` has rank {r} and `indices` rank {q}, expected at least 1"
    depth = indices[-1]
    if isinstance(depth, int) and depth > r:
        return f"index tuples have {depth} components, `data` has rank {r}"
    if updates is None:
        return None
    k = depth if isinstance(depth, int) else q + r - 1 - len(updates)
    if not isinstance(depth, int) and not 1 <= k <= r:
        return f"`updates` has rank {len(updates)}, expected {q - 1} to {q + r - 2}"
    if len(updates) != q + r - k - 1:
        return (
            f"`updates` has rank {len(updates)}, expected {q + r - k - 1}: rank {q} of `indices` + "
            f"rank {r} of `data` - {k} index components - 1"
        )
    expected = [*indices[:-1], *data[k:]]
    for axis, (got, want) in enumerate(zip(updates, expected, strict=True)):
        if contradict(got, want):
            source = "indices" if axis < q - 1 else "data"
            return f"dimension {axis} of `updates` is {got}, expected {want} as in `{source}`"
    return None
