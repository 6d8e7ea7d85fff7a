"""KV305: an operand of a scatter has more elements than TensorRT can count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["TrtVolume"]

_MOST = 2**31 - 1


class TrtVolume(TargetRule):
    """An operand of a scatter has more than 2^31 - 1 elements, which TensorRT does not take.

    ## What it does

    With `--target tensorrt`, looks for a scatter with data, indices or updates of more than
    2,147,483,647 elements, all dimensions being numbers.

    ## Why is this bad?

    TensorRT counts the elements of these operands in 32 bits. ScatterND and ScatterElements with
    one index per element reach that limit long before the memory of the device does: the indices of
    a large cache take eight bytes per element.

    ## References

    - [Scatter of
      TensorRT](https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/Scatter.html),
      "Volume Limits".
    """

    code = "KV305"
    name = "trt-volume"
    severity = "error"
    basis = "symbolic"
    runtime = "tensorrt"
    example_target = "tensorrt@11.0"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[65536, 32769] past, int64[1, 1] index, float[1, 32769] update)
            => (float[65536, 32769] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[65536, 32767] past, int64[1, 1] index, float[1, 32767] update)
            => (float[65536, 32767] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Count the elements of each operand whose dimensions are numbers."""
        from onnx_kvtool.lint.facts.release import runtime_words
        from onnx_kvtool.lint.facts.words import shape_words
        from onnx_kvtool.ops.traits import Trait, traits
        from onnx_kvtool.symbolic.dims import dims_of, product

        for site in context.sites:
            if Trait.UPDATES not in traits(site.node):
                continue
            for value in site.node.inputs:
                dims = dims_of(value)
                count = None if dims is None else product(dims)
                if value is not None and count is not None and count > _MOST:
                    yield self.found(
                        site.location(value),
                        f"`{value.name}` {shape_words(dims)} has {count:,} elements, and "
                        f"{runtime_words(target)} takes {_MOST:,} at most",
                        help="scatter into parts of the tensor, or write whole rows by ScatterND",
                    )
