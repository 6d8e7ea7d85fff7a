"""KV203: a scatter without a reduction writes one place twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.facts.scatter_indices import Scatter
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ScatterDuplicateIndices"]


class ScatterDuplicateIndices(NodeRule):
    """A scatter without a reduction writes one place twice.

    ## What it does

    Looks for indices of ScatterND and ScatterElements that occur twice, where `reduction` is
    `none`. Constant ones are an error; -1 and r-1 are the same index where the size is known.
    Computed indices that provably do not change along a dimension of two or more elements are an
    information, because such graphs run where the last write wins.

    ## Why is this bad?

    Which of the two values stays is not defined. In onnxruntime, onnx.reference and OpenVINO the
    last one did when it was tried; TensorRT names it "undefined behavior".

    ## References

    - [ScatterND](https://onnx.ai/onnx/operators/onnx__ScatterND.html): "In cases where `reduction`
      is set to "none", indices should not have duplicate entries".
    - [TensorRT,
      Scatter](https://docs.nvidia.com/deeplearning/tensorrt/operators/docs/Scatter.html).
    """

    code = "KV203"
    name = "scatter-duplicate-indices"
    severity = "error"
    basis = "symbolic"
    operators = ("ScatterND", "ScatterElements")

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, float[2, 2, 5] update) => (float[7, 2, 5] present)
            <int64[2, 1] index = {3, 3}> {
            [cache] present = ScatterND (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, float[2, 2, 5] update) => (float[7, 2, 5] present)
            <int64[2, 1] index = {3, 4}> {
            [cache] present = ScatterND (past, index, update)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare constant indices with each other, others by what they depend on."""
        from onnx_kvtool.lint.facts.scatter_indices import constant, scatter

        view = scatter(site)
        if view is None or view.reduction != "none":
            return
        indices = constant(context, view.indices)
        if indices is not None:
            twice = _constant_twice(view, indices)
            if twice is not None:
                yield self.found(
                    site.location(view.indices),
                    f"`{view.indices.name}` holds {twice}, without a reduction",
                    help="write each place once, or say with `reduction` how the values combine",
                )
            return
        axis = _repeated_axis(context, site, view)
        if axis is not None:
            yield self.found(
                site.location(view.indices),
                f"`{view.indices.name}` holds the same index at every coordinate along its "
                f"dimension {axis}, without a reduction",
                help="write each place once; which of the values stays is not defined",
                severity="info",
            )


def _constant_twice(view: Scatter, indices: NDArray[np.int64]) -> str | None:
    from onnx_kvtool.ops.scatter import ScatterND
    from onnx_kvtool.symbolic.dims import dims_of

    sizes = dims_of(view.data)
    if indices.ndim == 0 or indices.size == 0:
        return None
    if isinstance(view, ScatterND):
        return _tuple_twice(indices, sizes)
    rank = indices.ndim
    if (sizes is not None and len(sizes) != rank) or not -rank <= view.axis < rank:
        return None
    axis = view.axis % rank
    return _element_twice(indices, axis, None if sizes is None else sizes[axis])


def _tuple_twice(indices: NDArray[np.int64], sizes: tuple[object, ...] | None) -> str | None:
    import numpy as np

    depth = indices.shape[-1]
    tuples = indices.reshape(-1, depth).copy()
    for k, size in enumerate((sizes or ())[:depth]):
        if isinstance(size, int):
            tuples[:, k] += np.where(tuples[:, k] < 0, size, 0)
    order = np.lexsort(tuples.T[::-1]) if depth else np.arange(len(tuples))
    ranked = tuples[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1)
    if not same.any():
        return None
    first = int(np.argmax(same))
    one, other = sorted(int(n) for n in order[first : first + 2])
    count = int(same.sum())
    return (
        f"the index {indices.reshape(-1, depth)[one].tolist()} twice, at tuples {one} and {other}"
        + (f", and {count - 1} more repetitions" if count > 1 else "")
    )


def _element_twice(indices: NDArray[np.int64], axis: int, size: object) -> str | None:
    import numpy as np

    lines = np.moveaxis(indices, axis, -1)
    if isinstance(size, int):
        lines = lines + np.where(lines < 0, size, 0)
    ranked = np.sort(lines, axis=-1)
    same = ranked[..., 1:] == ranked[..., :-1]
    if not same.any():
        return None
    place = np.unravel_index(int(np.argmax(same)), same.shape)
    count = int(same.sum())
    return f"the index {int(ranked[place])} twice along axis {axis}" + (
        f", and {count - 1} more repetitions" if count > 1 else ""
    )


def _repeated_axis(context: Context, site: Site, view: Scatter) -> int | None:
    """Return a dimension of the indices along which nothing changes and that has two or more."""
    from onnx_kvtool.ops.scatter import ScatterElements
    from onnx_kvtool.symbolic.bounds import Facts, interval

    maps = context.index_maps(site)
    described = maps.of(view.indices)
    if not described.known or not described.shape:
        return None
    if isinstance(view, ScatterElements):
        rank = len(described.shape)
        axes = [view.axis % rank] if -rank <= view.axis < rank else []
    else:
        axes = list(range(len(described.shape) - 1))
        if described.shape[-1].number is None:
            return None
    if any(interval(size, Facts())[0] < 1 for size in described.shape):
        return None
    for axis in axes:
        fixed = described.axis != axis and not any(p.depends_on(axis) for p in described.parts)
        if fixed and interval(described.shape[axis], Facts())[0] >= 2:
            return axis
    return None
