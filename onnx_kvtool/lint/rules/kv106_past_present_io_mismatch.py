"""KV106: the past that goes in and the present that comes out cannot be one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["PastPresentIoMismatch"]


class PastPresentIoMismatch(ModelRule):
    """The input with the past and the output with its present differ in type, rank or size.

    ## What it does

    Follows each cache from its input to its output and compares what the model declares of the two:
    element type, rank, and each dimension that is a number on both sides. The sequence dimension of
    a cache that grows is left out. Symbolic dimensions may be equal and are no finding here; see
    [KV108](KV108.md).

    ## Why is this bad?

    The present of one step is the past of the next. Where the two differ, the second step fails, or
    the caller has to convert the whole cache between two steps; one buffer for both is out of the
    question.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "The past and
      present cache tensors have the same shape".
    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html).
    """

    code = "KV106"
    name = "past-present-io-mismatch"
    severity = "error"
    basis = "symbolic"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float16[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            wide = Cast <to: int = 1> (past)
            [cache] present = TensorScatter (wide, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float16[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float16[2, 3, 7, 5] present) {
            narrow = Cast <to: int = 10> (update)
            [cache] present = TensorScatter (past, narrow, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare the declarations at both ends of each cache."""
        inputs = {id(value) for value in context.model.graph.inputs}
        outputs = {value.name: value for value in context.model.graph.outputs}
        for cache in context.caches:
            past, present = cache.past_value, outputs.get(cache.present)
            if past is None or present is None or id(past) not in inputs:
                continue
            for what in _differences(cache, past, present):
                yield self.found(
                    cache.location,
                    f"the past `{past.name}` and its present `{present.name}` differ {what}",
                    help="declare both alike, and convert the new rows instead of the cache",
                )


def _differences(cache: Cache, past: ir.Value, present: ir.Value) -> Iterator[str]:
    from onnx_kvtool.lint.facts.words import shape_words
    from onnx_kvtool.ops.element_type import dtype_name
    from onnx_kvtool.symbolic.dims import contradict, dims_of

    if past.dtype is not None and present.dtype is not None and past.dtype != present.dtype:
        yield f"in type: {dtype_name(past.dtype)} and {dtype_name(present.dtype)}"
    before, after = dims_of(past), dims_of(present)
    if before is None or after is None:
        return
    shapes = f"{shape_words(before)} and {shape_words(after)}"
    if len(before) != len(after):
        yield f"in rank: {len(before)} and {len(after)}, in shapes {shapes}"
        return
    for axis, (one, other) in enumerate(zip(before, after, strict=True)):
        if cache.is_growing and axis == cache.axis:
            continue
        if contradict(one, other):
            yield f"in dimension {axis}: {one} and {other}, in shapes {shapes}"
