"""KV112: a graph that decodes writes every token into slot 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["DecodeWithoutWriteIndices"]


class DecodeWithoutWriteIndices(ModelRule):
    """A TensorScatter that takes one token per step has no `write_indices`.

    ## What it does

    Looks for a TensorScatter without `write_indices` whose update has exactly one row, and whose
    past is an input and whose present an output of the model, with room for more than one row. A
    graph whose name says that it is for prefill, and one whose Attention is told by a constant that
    a single row is valid, start at slot 0 on purpose.

    ## Why is this bad?

    Without `write_indices` every update starts at position 0. In a graph that takes one token at a
    time each step overwrites the token before it, and the cache never holds more than one.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "During the
      prefill phase of attention, only the first two inputs are needed. During the decode phase,
      `write_indices` is also needed so that the incoming key or value update can be appended after
      the last valid token for each sample in the batch."
    """

    code = "KV112"
    name = "decode-without-write-indices"
    severity = "warning"
    basis = "heuristic"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update)
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
        """Look at the updates of caches that go round."""
        from onnx_kvtool.symbolic.dims import dims_of

        if "prefill" in (context.model.graph.name or "").lower():
            return
        inputs = {id(value) for value in context.model.graph.inputs}
        outputs = {value.name for value in context.model.graph.outputs}
        for cache in context.caches:
            goes_round = id(cache.past_value) in inputs and cache.present in outputs
            if cache.kind != "tensor_scatter" or not goes_round:
                continue
            node = cache.node
            if len(node.inputs) > 2 and node.inputs[2] is not None:
                continue
            update = dims_of(node.inputs[1])
            axis = _axis(cache)
            if update is None or axis is None or not 0 <= axis < len(update):
                continue
            if update[axis] != 1 or cache.capacity == 1 or _starts_at_zero(cache, context):
                continue
            yield self.found(
                cache.location,
                f"one row of `{update_name(cache)}` goes to position 0 of `{cache.past}` (size "
                f"{cache.capacity}) at each step, as there are no `write_indices`",
                help="pass the number of valid tokens as `write_indices`",
            )


def update_name(cache: Cache) -> str:
    """Return the name of the value with the new rows."""
    value = cache.node.inputs[1]
    return (value.name if value is not None else None) or "update"


def _axis(cache: Cache) -> int | None:
    """Return the sequence axis as the node counts it, from the front."""
    from onnx_kvtool.ops.tensor_scatter import TensorScatter
    from onnx_kvtool.ops.view import MalformedNode

    try:
        return TensorScatter(cache.node, 24).sequence_axis
    except MalformedNode:
        return None


def _starts_at_zero(cache: Cache, context: Context) -> bool:
    """Return whether an Attention that reads the present is told that one row is valid."""
    for reader, _ in cache.node.outputs[0].uses():
        if reader.op_type == "Attention" and not reader.domain and len(reader.inputs) > 6:
            numbers = context.folder.integers(reader.inputs[6])
            if numbers is not None and bool((numbers == 1).all()):
                return True
    return False
