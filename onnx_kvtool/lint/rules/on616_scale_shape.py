"""ON616: the scale of a QuantizeLinear or DequantizeLinear has a shape that it cannot have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ScaleShape"]


class ScaleShape(NodeRule):
    """A scale or zero point of a QuantizeLinear or DequantizeLinear has a wrong shape.

    ## What it does

    Looks for a scale that is neither one number, nor one for each index of `axis`, nor, with
    `block_size`, one for each block along `axis`; for a zero point of another shape than its
    scale; for a negative `block_size`. A `block_size` with one scale for the whole input counts.

    ## Why is this bad?

    The operator is not defined. onnx's checker and shape inference let it pass; onnxruntime 1.31.1
    loads the model and fails when it runs, onnx.reference 1.23.2 takes some of these scales
    for one number.

    ## References

    - [DequantizeLinear-21](https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html): "`x_scale`
      and `x_zero_point` must have the same shape, determining the quantization's granularity: a
      scalar for per-tensor/per-layer quantization, a 1-D tensor for per-axis quantization, or have
      a rank identical to the input for blocked quantization."
    - [QuantizeLinear-21](https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html): "Blocked
      quantization: The scale's shape is identical to the input's shape, except for one dimension,
      in which blocking is performed."
    """

    code = "ON616"
    name = "scale-shape"
    severity = "error"
    basis = "symbolic"
    operators = ("QuantizeLinear", "DequantizeLinear")

    bad = """
        <ir_version: 10, opset_import: ["": 21]>
        weights (int8[4, 8] w, float[4, 3] scale) => (float[4, 8] y) {
            [blocks] y = DequantizeLinear <axis: int = 1, block_size: int = 2> (w, scale)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 21]>
        weights (int8[4, 8] w, float[4, 4] scale) => (float[4, 8] y) {
            [blocks] y = DequantizeLinear <axis: int = 1, block_size: int = 2> (w, scale)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Hold the shapes against those that axis and block size give."""
        from onnx_kvtool.ops.quantization import scale_misfit
        from onnx_kvtool.ops.view import MalformedNode, NodeView
        from onnx_kvtool.symbolic.dims import dims_of

        view = site.view(NodeView)
        if view is None or site.node.domain != "":
            return
        given = [*site.node.inputs, None][:3]
        try:
            axis, block = (
                view.integer(name) if name in view.facts.attributes else 0
                for name in ("axis", "block_size")
            )
        except MalformedNode:
            return
        x, scale, zero = map(dims_of, given)
        names = tuple(value.name or "" if value is not None else "" for value in given[1:])
        problem = scale_misfit(x, scale, zero, axis, block, (names[0], names[1]))
        if problem is not None:
            subject = {"scale": given[1], "zero_point": given[2]}.get(problem.subject)
            yield self.found(site.location(subject), problem.text, help=problem.help)
