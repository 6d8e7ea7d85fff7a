"""KV304: TensorRT takes caches of one layout only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.release import Limit
    from onnx_kvtool.targets.target import Target

__all__ = ["TrtLayout"]

_DIMENSIONS = 4
_SEQUENCE = 2


class TrtLayout(TargetRule):
    """A TensorScatter has a rank, axis, size or type that TensorRT does not take.

    ## What it does

    With `--target tensorrt`, in releases that have the operator, looks for a TensorScatter whose
    cache has not 4 dimensions, whose `axis` is not the last but one, whose capacity is not a
    number, or whose type the layer does not take. What is not known is no finding. Whether past and
    present are inputs and outputs of the model is for [KV103](KV103.md) and [KV104](KV104.md).

    ## Why is this bad?

    The parser turns TensorScatter into the layer KVCacheUpdate, which takes caches of shape
    (batch, heads, capacity, size) with a static capacity, and refuses all others. Exporters that
    merge heads and size into one dimension write 3-dimensional caches with axis 1.

    ## References

    - [KVCacheUpdate of TensorRT](https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/KVCacheUpdate.html):
      shapes `[b, d, s_max, h]`, types float32, float16, bfloat16, "a static sequence length
      dimension".
    - [Operators of the parser](https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md):
      TensorScatter.
    """

    code = "KV304"
    name = "trt-layout"
    severity = "error"
    basis = "symbolic"
    runtime = "tensorrt"
    example_target = "tensorrt@11.0"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 7, 15] past, float[2, 1, 15] update, int64[2] start)
            => (float[2, 7, 15] present) {
            [cache] present = TensorScatter <axis: int = 1> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = -2> (past, update, start)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Compare each TensorScatter with the layer."""
        from onnx_kvtool.lint.facts.release import limits_named, lowering_command, runtime_words

        for limit in limits_named(target, "kv-cache-update"):
            for site in context.sites:
                if site.node.op_type != "TensorScatter" or site.node.domain:
                    continue
                reasons = list(_reasons(site, limit))
                if reasons:
                    past = site.node.inputs[0]
                    yield self.found(
                        site.location(past),
                        f"{runtime_words(target)} takes caches of 4 dimensions, axis 2 and a fixed "
                        f"capacity, and `{past.name if past else ''}` has {', '.join(reasons)}",
                        help="export 4-dimensional caches, or lower the model for this release: "
                        + lowering_command(target),
                    )


def _reasons(site: Site, limit: Limit) -> Iterator[str]:
    from onnx_kvtool.lint.facts.release import dtype_word
    from onnx_kvtool.ops.tensor_scatter import TensorScatter
    from onnx_kvtool.ops.view import MalformedNode
    from onnx_kvtool.symbolic.dims import dims_of

    view = site.view(TensorScatter)
    if view is None:
        return
    dims = dims_of(view.past_cache)
    if dims is not None:
        if len(dims) != _DIMENSIONS:
            yield f"{len(dims)} dimensions"
        try:
            axis = view.sequence_axis
        except MalformedNode:
            return
        if axis is not None and len(dims) == _DIMENSIONS and axis != _SEQUENCE:
            yield f"axis {axis}"
        capacity = 0 if axis is None else dims[axis]
        # Nothing but the file can fix the size of an input.
        is_open = capacity is None and view.past_cache.is_graph_input()
        if isinstance(capacity, str) or is_open:
            yield f"the capacity `{capacity or '?'}`"
    dtype = dtype_word(site.node)
    if dtype is not None and dtype not in limit.types:
        yield f"type {dtype}"
