"""MD413: the main graph has no nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["EmptyGraph"]


class EmptyGraph(ModelRule):
    """The main graph has no nodes.

    ## What it does

    Looks for models that compute nothing. Bodies may be empty: a branch of If that hands on a
    constant is.

    ## Why is this bad?

    It is legal, and seldom meant: a model that was cut at the wrong values, or of which an
    optimiser has folded everything.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `GraphProto`.
    """

    code = "MD413"
    name = "empty-graph"
    severity = "warning"
    basis = "constant"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 3] x) => (float[2, 3] x) {
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 3] x) => (float[2, 3] y) {
            y = Identity (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Count the nodes of the main graph."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.walk import graph_path

        graph = context.model.graph
        if not len(graph):
            yield self.found(
                Location(graph_path(graph.name)),
                "the main graph has no nodes",
                help="export the model again, with the outputs that it has to compute",
            )
