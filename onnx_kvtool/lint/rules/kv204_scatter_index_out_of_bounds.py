"""KV204: a scatter writes outside its data."""

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

__all__ = ["ScatterIndexOutOfBounds"]


class ScatterIndexOutOfBounds(NodeRule):
    """A scatter writes outside its data.

    ## What it does

    Looks for an index of ScatterND or ScatterElements that is not in [-s, s-1] for the size s of
    the axis that it addresses: a constant, one that the graph computes from constants and sizes, or
    one that lies outside whatever the inputs are.

    ## Why is this bad?

    onnx's checker and shape inference do not look at the numbers. onnxruntime 1.31 and
    onnx.reference 1.23 fail when the node runs; in OpenVINO 2026.4 an index of ScatterElements
    below -s ends the process.

    ## References

    - [ScatterElements](https://onnx.ai/onnx/operators/onnx__ScatterElements.html), `indices`: "It
      is an error if any of the index values are out of bounds."
    - [ScatterND](https://onnx.ai/onnx/operators/onnx__ScatterND.html): the same.
    """

    code = "KV204"
    name = "scatter-index-out-of-bounds"
    severity = "error"
    basis = "symbolic"
    operators = ("ScatterND", "ScatterElements")

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, float[2, 2, 5] update) => (float[7, 2, 5] present)
            <int64[2, 1] index = {6, 7}> {
            [cache] present = ScatterND (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, float[2, 2, 5] update) => (float[7, 2, 5] present)
            <int64[2, 1] index = {5, -1}> {
            [cache] present = ScatterND (past, index, update)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare the indices with the sizes of the data."""
        from onnx_kvtool.lint.facts.scatter_indices import constant, scatter

        view = scatter(site)
        if view is None:
            return
        indices = constant(context, view.indices)
        if indices is not None:
            outside = _constant_outside(view, indices)
        else:
            outside = _provably_outside(context, site, view)
        if outside is not None:
            yield self.found(
                site.location(view.indices),
                f"`{view.indices.name}` holds {outside}",
                help="keep the indices within the data, or make the data larger",
            )


def _constant_outside(view: Scatter, indices: NDArray[np.int64]) -> str | None:
    import numpy as np

    from onnx_kvtool.ops.scatter import ScatterND
    from onnx_kvtool.symbolic.dims import dims_of

    sizes = dims_of(view.data)
    if sizes is None or indices.ndim == 0:
        return None
    if isinstance(view, ScatterND):
        parts = [(k, indices[..., k]) for k in range(min(indices.shape[-1], len(sizes)))]
    elif -len(sizes) <= view.axis < len(sizes):
        parts = [(view.axis % len(sizes), indices)]
    else:
        return None
    for axis, numbers in parts:
        size = sizes[axis]
        if not isinstance(size, int):
            continue
        wrong = (numbers < -size) | (numbers >= size)
        if wrong.any():
            count = int(wrong.sum())
            worst = int(numbers.ravel()[int(np.argmax(wrong.ravel()))])
            return _words(str(worst), axis, str(size), view) + (
                f", and {count - 1} more outside" if count > 1 else ""
            )
    return None


def _provably_outside(context: Context, site: Site, view: Scatter) -> str | None:
    from onnx_kvtool.lint.facts.scatter_indices import components, corners
    from onnx_kvtool.symbolic.bounds import at_least, below

    for one in components(context, site, view):
        for index, facts in corners(one.described):
            if at_least(index, one.size, facts) or below(index, -one.size, facts):
                return _words(str(index), one.axis, str(one.size), view)
    return None


def _words(index: str, axis: int, size: str, view: Scatter) -> str:
    if size.isdigit():
        bounds = f"expected {-int(size)} to {int(size) - 1}"
    else:
        bounds = f"expected -({size}) to {size} - 1"
    return f"the index {index} along axis {axis} of `{view.data.name}` (size {size}), {bounds}"
