"""MD431: a node has neither inputs nor outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["EmptyNode"]


class EmptyNode(ModelRule):
    """A node has neither inputs nor outputs.

    ## What it does

    Looks for nodes with an empty list of inputs and an empty list of outputs.

    ## Why is this bad?

    Nothing goes in and nothing comes out: the node takes no part in the model. onnx's checker
    refuses it.

    ## References

    - onnx.checker 1.23.2: "has zero input and zero output".
    """

    code = "MD431"
    name = "empty-node"
    severity = "error"
    basis = "constant"

    bad = """
        <ir_version: 12, opset_import: ["": 24, "vendor": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
            [idle] = vendor.Mark ()
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24, "vendor": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at the ends of each node."""
        for site in context.sites:
            if not site.node.inputs and not site.node.outputs:
                yield self.found(
                    site.location(),
                    f"`{site.node.op_type}` has neither inputs nor outputs",
                    help="remove the node",
                )
