"""KV103: the past of a TensorScatter does not come from outside the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["PastNotGraphInput"]


class PastNotGraphInput(ModelRule):
    """The past of a TensorScatter is an initializer, a constant or computed, not a graph input.

    ## What it does

    Looks for a cache that a TensorScatter updates and whose past is not an input of the model. A
    TensorScatter that updates no cache, because its past is computed and its present does not leave
    the model, is left alone. With `--target tensorrt` the past also has to reach the node as it is,
    and a finding is an error.

    ## Why is this bad?

    A model has no memory between two runs. A past that does not come in from outside is the same at
    each step: whatever an earlier step wrote is lost, or, with an initializer that a runtime
    aliases, leaks from one sequence into the next. A graph for prefill alone may start from an
    empty cache that it makes itself; it cannot be used for the steps after.

    ## References

    - [KVCacheUpdate of
      TensorRT](https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/KVCacheUpdate.html),
      `cache`: "Must be a network input and have a static sequence length dimension."
    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html): "the backend is free to
      alias the past and present key/value tensors to avoid duplicating the cache tensors".
    """

    code = "KV103"
    name = "past-not-graph-input"
    severity = "warning"
    basis = "heuristic"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] update, int64[2] start) => (float[2, 3, 7, 5] present)
            <int64[4] size = {2, 3, 7, 5}> {
            past = ConstantOfShape (size)
            [cache] present = TensorScatter (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look where the past of each TensorScatter comes from."""
        from onnx_kvtool.lint.facts.past import levels

        inputs = {id(value) for value in context.model.graph.inputs}
        for cache in context.caches:
            past = cache.past_value
            if cache.kind != "tensor_scatter" or past is None:
                continue
            *_, (nearest, _, _) = levels(cache, context)
            strict = [t for t in context.targets if t.release.runtime == "tensorrt"]
            if id(past) not in inputs:
                place, what = past, _origin(past)
            elif strict and id(nearest) not in inputs:
                place, what = nearest, _origin(nearest)
            else:
                continue
            yield self.found(
                cache.location,
                f"`past_cache` `{place.name}` is {what}, not an input of the model"
                + (f", as {strict[0].asked} demands" if strict else ""),
                help="make the cache an input of the model and feed the present of the last step",
                severity="error" if strict else None,
            )


def _origin(value: ir.Value) -> str:
    from onnx_kvtool.lint.facts.words import node_words

    node = value.producer()
    if node is not None:
        return "a constant" if node.op_type == "Constant" else f"computed by {node_words(node)}"
    return "an initializer" if value.is_initializer() else "an input of a body"
