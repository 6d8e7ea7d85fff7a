"""KV303: TensorRT has no circular mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["TrtMode"]


class TrtMode(TargetRule):
    """TensorRT knows no circular update of a cache.

    ## What it does

    With `--target tensorrt`, looks for a TensorScatter in circular mode, in releases that have the
    operator.

    ## Why is this bad?

    The parser turns TensorScatter into the layer KVCacheUpdate, which has a linear mode alone, and
    refuses the node.

    ## References

    - [KVCacheUpdate of TensorRT](https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/KVCacheUpdate.html),
      `cacheMode`: `LINEAR` is the only value.
    - [KV cache in TensorRT](https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/transformers-kv-cache.html):
      "Currently, only kLINEAR is supported".
    """

    code = "KV303"
    name = "trt-mode"
    severity = "error"
    basis = "constant"
    runtime = "tensorrt"
    example_target = "tensorrt@11.0"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "circular"> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "linear"> (past, update, start)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Look at the mode of each TensorScatter."""
        from onnx_kvtool.lint.release import has_operator, runtime_words
        from onnx_kvtool.ops.tensor_scatter import TensorScatter

        if not has_operator(target, "TensorScatter-24"):
            return
        for site in context.sites:
            if site.node.op_type != "TensorScatter" or site.node.domain:
                continue
            view = site.view(TensorScatter)
            if view is not None and view.mode == "circular":
                yield self.found(
                    site.location(),
                    f"`mode` is `circular`, and {runtime_words(target)} takes `linear` alone",
                    help="lower the node: `kvtool lower MODEL --only TensorScatter`",
                )
