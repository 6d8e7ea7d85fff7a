"""KV303: TensorRT has no circular mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding, Fix
    from onnx_kvtool.ops.tensor_scatter import TensorScatter
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

    ## Fix safety

    The fix is safe: where no row can pass the end of the cache, both modes are one, and the mode
    becomes `linear`. That is so without `write_indices`, as in a prefill, because no update may be
    longer than its cache, and for constant ones that leave room. Any other node has no fix: it has
    to be lowered, which is what `kvtool lower` is there for.

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
    fix = "safe"
    runtime = "tensorrt"
    example_target = "tensorrt@11.0"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 4, 5] update) => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "circular"> (past, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 4, 5] update) => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "linear"> (past, update)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Look at the mode of each TensorScatter."""
        from onnx_kvtool.lint.facts.release import has_operator, lowering_command, runtime_words
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
                    help=f"lower the model for this release: {lowering_command(target)}",
                    fix=_linear(site) if _never_wraps(view, context) else None,
                )


def _never_wraps(view: TensorScatter, context: Context) -> bool:
    """Return whether no row passes the end of the cache in any run that TensorScatter allows."""
    from onnx_kvtool.ops.view import MalformedNode
    from onnx_kvtool.symbolic.dims import dims_of

    if view.write_indices is None:
        return True  # from 0 on, more rows than the cache has are refused in both modes
    starts = context.folder.integers(view.write_indices)
    past, update = dims_of(view.past_cache), dims_of(view.update)
    try:
        axis = view.sequence_axis
    except MalformedNode:
        return False
    if starts is None or past is None or update is None or axis is None:
        return False
    capacity, length = past[axis], update[axis]
    if not isinstance(capacity, int) or not isinstance(length, int):
        return False
    return all(0 <= start <= capacity - length for start in starts.ravel())


def _linear(site: Site) -> Fix:
    import onnx_ir as ir

    from onnx_kvtool.lint.finding import Fix

    def apply() -> None:
        site.node.attributes["mode"] = ir.AttrString("mode", "linear")

    return Fix("safe", "write `linear`, which is the same where no row wraps", apply)
