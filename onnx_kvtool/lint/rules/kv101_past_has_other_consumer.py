"""KV101: something besides the TensorScatter reads the past, so that it cannot run in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.facts.past import Branches
    from onnx_kvtool.lint.finding import Finding

__all__ = ["PastHasOtherConsumer"]


class PastHasOtherConsumer(ModelRule):
    """The past of a TensorScatter is also read by another node, or is itself an output.

    ## What it does

    Looks for a TensorScatter whose `past_cache` has another reader: a node in the same graph, in a
    body of If, Loop or Scan, in a function, behind an Identity, or the list of outputs of the
    model. A node that asks for the shape alone, and one in the other branch of an If, is no reader,
    and neither is one that `write_indices` depends on, which has read before anything is written.
    Two TensorScatter of one past are [KV102](KV102.md).

    ## Why is this bad?

    A runtime may write the new rows into the buffer of the past only if nobody needs the old
    content. With another reader it has to copy the whole cache at each step, for a token that takes
    one row of it; a runtime that aliases all the same gives the other reader a mixture of old and
    new rows.

    ## References

    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html): the backend may alias past
      and present only if "the input to `TensorScatter` is not subsequently reused by other ops".
    """

    code = "KV101"
    name = "past-has-other-consumer"
    severity = "warning"
    basis = "symbolic"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present, float[2, 3, 7, 5] before) {
            [cache] present = TensorScatter (past, update, start)
            [look] before = Neg (past)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present, float[2, 3, 7, 5] after) {
            [cache] present = TensorScatter (past, update, start)
            [look] after = Neg (present)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Ask for the readers of the past, in the main graph and in each function on the way."""
        from onnx_kvtool.lint.facts.past import Branches

        caches = [cache for cache in context.caches if cache.kind == "tensor_scatter"]
        branches = Branches(context)
        seen: set[str] = set()
        for cache in caches:
            for past, who in _others(cache, context, branches):
                finding = self.found(
                    cache.location,
                    f"`past_cache` `{past}` {who}, so that the update cannot be done in place",
                    help="read the present instead, or read the past before a copy of it is made",
                )
                if str(finding.diagnostic) not in seen:  # one body may be called many times
                    seen.add(str(finding.diagnostic))
                    yield finding


_POSITIONS = 2
"""The input of a TensorScatter that says where it writes."""


def _others(cache: Cache, context: Context, branches: Branches) -> Iterator[tuple[str, str]]:
    """Yield the name of the past and who else needs it, level by level."""
    from onnx_kvtool.analysis.caches.in_place import reads_before
    from onnx_kvtool.core.walk import is_output_of
    from onnx_kvtool.lint.facts.past import copies, is_scatter_of, levels, readers
    from onnx_kvtool.lint.facts.words import node_words

    for past, node, index in levels(cache, context):
        for copy in copies(past):
            maker = copy.producer()
            if is_output_of(copy, context.model.graph):
                way = "itself" if copy is past else f"as `{copy.name}`"
                yield past.name or "", f"is {way} an output of the model"
            elif copy.is_graph_output() and not (maker and branches.exclude(maker, node)):
                yield past.name or "", "is also what a function or a body returns"
        for reader, at in readers(past):
            if (reader is node and at == index) or is_scatter_of(reader, at):
                continue
            if reads_before(reader, node.inputs[_POSITIONS:]):
                continue
            if not branches.exclude(reader, node):
                yield past.name or "", f"is also read by {node_words(reader)}"
