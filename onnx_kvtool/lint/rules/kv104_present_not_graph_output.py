"""KV104: the updated cache never leaves the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding, Fix

__all__ = ["PresentNotGraphOutput"]


class PresentNotGraphOutput(ModelRule):
    """The cache that a TensorScatter updates never leaves the model.

    ## What it does

    Looks for a TensorScatter into a cache whose present is no output of the model, directly or
    through nodes that only arrange it differently. With `--target tensorrt` it has to be an output
    directly, and a finding is an error.

    ## Why is this bad?

    The rows of this step are lost: the next step starts from the same past. The result of the step
    itself is right, so that a test of a single step does not show it.

    ## Fix safety

    The fix is unsafe because it adds an output to the interface of the model. Results do not
    change.

    ## References

    - [KVCacheUpdate of
      TensorRT](https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/KVCacheUpdate.html),
      `output`: "Must be a network output and shares the same device memory address with the cache
      input".
    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html): "the backend is free to
      alias the past and present key/value tensors to avoid duplicating the cache tensors".
    """

    code = "KV104"
    name = "present-not-graph-output"
    severity = "warning"
    basis = "heuristic"
    fix = "unsafe"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] y) {
            [cache] present = TensorScatter (past, update, start)
            y = Neg (present)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] y, float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update, start)
            y = Neg (present)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look where the present of each TensorScatter goes."""
        names = {value.name for value in context.model.graph.outputs}
        for cache in context.caches:
            if cache.kind != "tensor_scatter":
                continue
            present = cache.node.outputs[0]
            strict = [t for t in context.targets if t.release.runtime == "tensorrt"]
            if cache.present not in names:
                what = "is not an output of the model"
            elif strict and not cache.calls and not present.is_graph_output():
                what = f"is no output itself, only behind other nodes as `{cache.present}`"
            else:
                continue
            yield self.found(
                cache.location,
                f"`present_cache` `{present.name}` {what}"
                + (f", as {strict[0].asked} demands" if strict else ""),
                help="return it as an output, and feed it back as the past of the next step",
                severity="error" if strict else None,
                fix=_fix(cache, context),
            )


def _fix(cache: Cache, context: Context) -> Fix | None:
    """Return the fix for an update in the main graph, whose present can be returned as it is."""
    from onnx_kvtool.lint.finding import Fix

    graph, present = context.model.graph, cache.node.outputs[0]
    if cache.node.graph is not graph or present.type is None or present.is_graph_output():
        return None
    return Fix("unsafe", f"return `{present.name}` as an output", _adding(graph, present))


def _adding(graph: ir.Graph, present: ir.Value) -> Callable[[], None]:
    # Inference has written type and shape on the value, and takes them away after the rules ran.
    type_, shape = present.type, present.shape

    def apply() -> None:
        node = present.producer()
        if node is None or node.graph is not graph or present.is_graph_output():
            return
        if present.type is None:
            present.type = type_
        if present.shape is None:
            present.shape = shape
        graph.outputs.append(present)

    return apply
